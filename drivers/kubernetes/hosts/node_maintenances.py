"""The drain of a node by the maintenance operator: a NodeMaintenance that the plane requests, and shares with others.

It is used where the API server has the kind: then other operators that drain nodes use it as well, and a node that two
of them need is drained once.
"""

from __future__ import annotations

from typing import Any

from drivers.hosts.host import DONE, Progress
from drivers.kubernetes.hosts.calls import create, named, read, remove, replace
from projections.kubernetes.node_claims import NodeClaim, claim_annotation
from projections.kubernetes.object_names import OWN_LABELS
from schemas.kubernetes.api import KubernetesApi
from schemas.resources.dpf.names import PROVISIONING, SHARED

API = "/apis/maintenance.nvidia.com/v1alpha1"
REQUESTOR = SHARED
ADDITIONAL_REQUESTOR = PROVISIONING
"""Both are those of release 24.10 of DPF."""


def collection(namespace: str) -> str:
    """The path of the objects of a namespace."""
    return f"{API}/namespaces/{named(namespace)}/nodemaintenances"


async def is_served(api: KubernetesApi) -> bool:
    """Whether the API server has the kind NodeMaintenance."""
    return await read(api, API) is not None


async def request(api: KubernetesApi, node: str, claim: NodeClaim) -> Progress:
    """One move towards the drain of a node."""
    path = _path(claim.namespace, node)
    found = await read(api, path)
    waits = Progress(False, f"waits for NodeMaintenance {claim.namespace}/{node}")
    if found is None:
        await create(api, collection(claim.namespace), _new(node, claim))
        return waits
    if "deletionTimestamp" in found["metadata"]:
        return Progress(False, f"waits for the end of NodeMaintenance {claim.namespace}/{node}")
    requestors = found["spec"].get("additionalRequestors") or []
    missing = [each for each in _requestors(claim) if each not in requestors]
    if missing or _holder(found, claim) != claim.uid:
        found["spec"]["additionalRequestors"] = [*requestors, *missing]
        found["metadata"].setdefault("annotations", {})[claim_annotation(claim)] = claim.uid
        await replace(api, path, found)
        return waits
    conditions = {each["type"]: each for each in (found.get("status") or {}).get("conditions") or []}
    if conditions.get("Ready", {}).get("status") == "True":
        return DONE
    failed = conditions.get("Failed", {})
    why = failed.get("message") or failed.get("reason") if failed.get("status") == "True" else ""
    return Progress(False, f"{waits.message}: {why}" if why else waits.message)


async def holder(api: KubernetesApi, node: str, claim: NodeClaim) -> str:
    """The uid of the maintenance that a drain of the node was requested for; empty if none was."""
    found = await read(api, _path(claim.namespace, node))
    return "" if found is None else _holder(found, claim)


async def end(api: KubernetesApi, node: str, claim: NodeClaim) -> Progress:
    """One move towards the end of the drain. Other requestors of the object keep it."""
    path = _path(claim.namespace, node)
    found = await read(api, path)
    if found is None or _holder(found, claim) != claim.uid:
        return DONE
    own = _requestors(claim)
    requestors = found["spec"].get("additionalRequestors") or []
    others = [each for each in requestors if each not in own]
    is_ours = found["spec"].get("requestorID") == REQUESTOR
    if others != requestors or (others and not is_ours):
        found["spec"]["additionalRequestors"] = others
        if others:
            del found["metadata"]["annotations"][claim_annotation(claim)]
        await replace(api, path, found)
    elif is_ours and "deletionTimestamp" not in found["metadata"]:
        await remove(api, path, found["metadata"]["uid"])
    return Progress(False, f"waits for the end of NodeMaintenance {claim.namespace}/{node}")


def _new(node: str, claim: NodeClaim) -> dict[str, Any]:
    metadata = {"name": node, "labels": OWN_LABELS, "annotations": {claim_annotation(claim): claim.uid}}
    return {
        "apiVersion": API.removeprefix("/apis/"),
        "kind": "NodeMaintenance",
        "metadata": metadata,
        "spec": {
            "requestorID": REQUESTOR,
            "additionalRequestors": _requestors(claim),
            "nodeName": node,
            "drainSpec": {"force": True, "deleteEmptyDir": True},
        },
    }


def _requestors(claim: NodeClaim) -> list[str]:
    return [*dict.fromkeys((ADDITIONAL_REQUESTOR, *claim.effect.additional_requestors))]


def _holder(found: dict[str, Any], claim: NodeClaim) -> str:
    return str((found["metadata"].get("annotations") or {}).get(claim_annotation(claim), ""))


def _path(namespace: str, node: str) -> str:
    return f"{collection(namespace)}/{named(node)}"
