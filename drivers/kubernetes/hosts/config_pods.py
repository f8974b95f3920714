"""Pods that users give in ConfigMaps: the custom action of a node effect, and the script that reboots a host.

A failed pod is deleted, and its failure is that of the attempt: the next attempt makes a new one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from drivers.backends.bmc import NeedsOperator, TaskFailed
from drivers.hosts.host import DONE, Progress, RebootRequest
from drivers.kubernetes.hosts.calls import create, named, read, remove
from projections.kubernetes.node_claims import NodeClaim
from projections.kubernetes.object_names import OWN_LABELS
from schemas.kubernetes.api import KubernetesApi

TEMPLATE = "pod-template"
"""The key of a ConfigMap with the pod. A ConfigMap with one key may have another one."""
JOB_RETRIES = 3
POD_INFO = "/etc/dpu/dpf-pod-info"
_CLAIM = "dpuplane.io/maintenance"
_REBOOT_FOR = "dpuplane.io/host-reboot-for"


async def act(api: KubernetesApi, node: str, claim: NodeClaim) -> Progress:
    """One move towards the end of the pod of a custom action."""
    path = _pods(claim.namespace, claim.name)
    found = await read(api, path)
    waits = Progress(False, f"waits for the end of pod {claim.namespace}/{claim.name}")
    if found is None:
        template = await _template(api, claim.namespace, str(claim.effect.settings))
        body = _pod(template, claim.name, {_CLAIM: claim.uid}, {"DPUNODE_NAME": node})
        await create(api, _pods(claim.namespace), body | {"apiVersion": "v1", "kind": "Pod"})
        return waits
    phase = (found.get("status") or {}).get("phase")
    if found["metadata"].get("annotations", {}).get(_CLAIM) != claim.uid:
        await remove(api, path, found["metadata"]["uid"])
        return Progress(False, f"waits for the end of an earlier pod {claim.namespace}/{claim.name}")
    if phase == "Failed":
        await remove(api, path, found["metadata"]["uid"])
        raise TaskFailed(f"nodeEffect: pod {claim.namespace}/{claim.name} of the custom action failed{_why(found)}")
    return DONE if phase == "Succeeded" else waits


async def holder(api: KubernetesApi, claim: NodeClaim) -> str:
    """The uid of the maintenance that the pod of a custom action is of; empty if there is no pod."""
    found = await read(api, _pods(claim.namespace, claim.name))
    return "" if found is None else str((found["metadata"].get("annotations") or {}).get(_CLAIM, ""))


async def end_action(api: KubernetesApi, claim: NodeClaim) -> None:
    """Delete the pod of a custom action."""
    found = await read(api, _pods(claim.namespace, claim.name))
    if found is not None and found["metadata"].get("annotations", {}).get(_CLAIM) == claim.uid:
        await remove(api, _pods(claim.namespace, claim.name), found["metadata"]["uid"])


async def run_script(api: KubernetesApi, request: RebootRequest) -> Progress:
    """One move towards the reboot of a host by its script."""
    namespace, name = request.host.namespace, f"{request.host.name}-script-job"
    path = f"/apis/batch/v1/namespaces/{named(namespace)}/jobs"
    found = await read(api, f"{path}/{named(name)}")
    waits = Progress(False, f"waits for the end of Job {namespace}/{name}")
    if found is None:
        template = await _template(api, namespace, request.how.script)
        environment = {
            "DPUNODE_NAME": request.host.name,
            "DPUNODE_REBOOT_METHOD": request.method,
            "DPUNODE_REBOOT_METHODS_PER_DPU": json.dumps(request.methods, sort_keys=True),
        }
        pod = _pod(template, "", {}, environment)
        pod["spec"].setdefault("restartPolicy", "Never")
        metadata = {
            "name": name,
            "labels": OWN_LABELS,
            "annotations": {_REBOOT_FOR: ",".join(sorted(request.ids))},
        }
        spec = {"backoffLimit": JOB_RETRIES, "template": pod}
        await create(api, path, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
        return waits
    is_for_us = request.own in found["metadata"].get("annotations", {}).get(_REBOOT_FOR, "").split(",")
    ended = _ended(found)
    if ended == "Complete" and is_for_us:
        return DONE
    if ended:
        await remove(api, f"{path}/{named(name)}", found["metadata"]["uid"])
        if is_for_us:
            raise TaskFailed(f"reboot: Job {namespace}/{name} failed{_job_failure(found)}")
    return waits


def _ended(job: Mapping[str, Any]) -> str:
    conditions = (job.get("status") or {}).get("conditions") or []
    return next(
        (each["type"] for each in conditions if each["type"] in ("Complete", "Failed") and each["status"] == "True"), ""
    )


def _job_failure(job: Mapping[str, Any]) -> str:
    conditions = (job.get("status") or {}).get("conditions") or []
    return next((f": {each.get('message', '')}" for each in conditions if each["type"] == "Failed"), "")


async def _template(api: KubernetesApi, namespace: str, name: str) -> dict[str, Any]:
    """The pod in a ConfigMap."""
    import yaml

    found = await read(api, f"/api/v1/namespaces/{named(namespace)}/configmaps/{named(name)}")
    if found is None:
        raise NeedsOperator(f"ConfigMap {namespace}/{name} does not exist")
    data = found.get("data") or {}
    text = data.get(TEMPLATE) or (next(iter(data.values())) if len(data) == 1 else None)
    if text is None:
        raise NeedsOperator(f"ConfigMap {namespace}/{name} has no key {TEMPLATE}")
    try:
        pod = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise NeedsOperator(f"ConfigMap {namespace}/{name}: {TEMPLATE} is no YAML: {error}") from error
    if not isinstance(pod, dict) or not isinstance(pod.get("spec"), dict):
        raise NeedsOperator(f"ConfigMap {namespace}/{name}: {TEMPLATE} has no pod with a spec")
    return pod


def _pod(
    template: dict[str, Any], name: str, annotations: dict[str, str], environment: dict[str, str]
) -> dict[str, Any]:
    """A pod from a template. Its containers have these variables, and files with its labels and annotations."""
    given = template.get("metadata") or {}
    metadata = {
        "labels": (given.get("labels") or {}) | OWN_LABELS,
        "annotations": (given.get("annotations") or {}) | annotations,
    }
    spec = dict(template["spec"])
    variables = [{"name": key, "value": value} for key, value in environment.items()]
    mount = {"name": "dpf-pod-info", "mountPath": POD_INFO}
    for field in ("initContainers", "containers"):
        if field in spec:
            spec[field] = [
                each
                | {
                    "env": [*(each.get("env") or ()), *variables],
                    "volumeMounts": [*(each.get("volumeMounts") or ()), mount],
                }
                for each in spec[field]
            ]
    fields = ("labels", "annotations")
    items = [{"path": each, "fieldRef": {"fieldPath": f"metadata.{each}"}} for each in fields]
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": "dpf-pod-info", "downwardAPI": {"items": items}}]
    return {"metadata": metadata | ({"name": name} if name else {}), "spec": spec}


def _why(pod: Mapping[str, Any]) -> str:
    status = pod.get("status") or {}
    text = status.get("message") or status.get("reason")
    return f": {text}" if text else ""


def _pods(namespace: str, name: str = "") -> str:
    path = f"/api/v1/namespaces/{named(namespace)}/pods"
    return f"{path}/{named(name)}" if name else path
