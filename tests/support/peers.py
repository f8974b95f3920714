"""What Argo CD, Kamaji and kubelets say next of an object, as pure functions of what they said last and of a draw.

A draw is a number from 0 to 1. Below `failure` something goes wrong: a resource is degraded, or a control plane or a
node is not ready. Below `relapse` something goes wrong that was ready before. The next step is always possible, so
everything becomes ready in the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FINALIZER = "resources-finalizer.argocd.argoproj.io"
SKIP_RECONCILE = "argocd.argoproj.io/skip-reconcile"


def next_application(item: Mapping[str, Any], draw: float, failure: float = 0.0) -> dict[str, Any] | None:
    """The next status of an Application; None if nothing changes. Argo CD leaves paused ones alone, and reports its
    resources with their health."""
    if (item["metadata"].get("annotations") or {}).get(SKIP_RECONCILE) == "true":
        return None
    wanted = item["spec"]["source"]["targetRevision"]
    status = item.get("status") or {}
    sync = status.get("sync") or {}
    health = (status.get("health") or {}).get("status", "Missing")
    if sync.get("revision") != wanted:
        return _application(item, "OutOfSync" if not sync else "Synced", wanted, "Progressing", "1 of 3 pods are ready")
    if sync.get("status") != "Synced":
        return _application(item, "Synced", wanted, health, "")
    if health == "Healthy":
        return None
    if health != "Degraded" and draw < failure:
        return _application(item, "Synced", wanted, "Degraded", "container crashed")
    return _application(item, "Synced", wanted, "Healthy", "")


def crashed_application(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """The status of an Application whose containers crash, however often they are started; None if it has it."""
    if ((item.get("status") or {}).get("health") or {}).get("status") == "Degraded":
        return None
    return _application(item, "Synced", item["spec"]["source"]["targetRevision"], "Degraded", "container crashed")


def next_control_plane(
    item: Mapping[str, Any], draw: float, failure: float = 0.0, relapse: float = 0.0
) -> dict[str, Any] | None:
    """The next status of a TenantControlPlane; None if nothing changes."""
    wanted = item["spec"]["kubernetes"]["version"]
    found = ((item.get("status") or {}).get("kubernetesResources") or {}).get("version") or {}
    phase = found.get("status", "")
    if phase == "Ready" and found.get("version") == wanted:
        return _control_plane("NotReady", wanted) if draw < relapse else None
    if phase == "Ready":
        return _control_plane("Upgrading", wanted)
    if not phase or (phase != "NotReady" and draw < failure):
        return _control_plane("NotReady" if phase else "Provisioning", wanted)
    return _control_plane("Ready", wanted)


def next_node(item: Mapping[str, Any], draw: float, failure: float = 0.0, boot_id: str = "") -> dict[str, Any] | None:
    """The next status of a Node, as its kubelet states it; None if nothing changes. A node is not ready right after a
    boot, of which `boot_id` is the id; without one, the status names no boot."""
    status, ready = item.get("status") or {}, ready_condition(item)
    if boot_id and (status.get("nodeInfo") or {}).get("bootID") != boot_id:
        return _node("False", "KubeletNotReady", "container runtime network not ready", boot_id)
    if ready.get("status") == "True":
        return None
    if not ready and draw < failure:
        return _node("False", "KubeletNotReady", "cni plugin not initialized", boot_id)
    return _node("True", "KubeletReady", "kubelet is posting ready status", boot_id)


def silent_node(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """The status that the control plane states of a Node whose kubelet is not heard any more; None if it has it."""
    if ready_condition(item).get("status") == "Unknown":
        return None
    boot_id = ((item.get("status") or {}).get("nodeInfo") or {}).get("bootID", "")
    return _node("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.", boot_id)


def ready_condition(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """The condition Ready of an object; empty if it has none."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "Ready"), {})


def _node(status: str, reason: str, message: str, boot_id: str) -> dict[str, Any]:
    condition = {"type": "Ready", "status": status, "reason": reason, "message": message}
    return {"conditions": [condition]} | ({"nodeInfo": {"bootID": boot_id}} if boot_id else {})


def _application(item: Mapping[str, Any], sync: str, revision: str, health: str, message: str) -> dict[str, Any]:
    destination = item["spec"]["destination"]
    name = item["metadata"]["labels"]["dpu.nvidia.com/dpuservice-name"]
    part = {"group": "apps", "version": "v1", "kind": "DaemonSet", "namespace": destination["namespace"], "name": name}
    state = {"status": health} | ({"message": message} if message else {})
    return {
        "sync": {"status": sync, "revision": revision, "comparedTo": {**_compared(item)}},
        "health": {"status": health},
        "resources": [{**part, "status": sync, "health": state}],
    }


def _compared(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"source": item["spec"]["source"], "destination": item["spec"]["destination"]}


def _control_plane(phase: str, version: str) -> dict[str, Any]:
    return {"kubernetesResources": {"version": {"status": phase, "version": version}}}
