"""The drain of a node by evictions, as `kubectl drain --ignore-daemonsets --delete-emptydir-data --force` does it.

A disruption budget refuses an eviction with 429. It is tried again as long as the step lasts: nothing is deleted
against a budget.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from drivers.hosts.host import DONE, Progress
from drivers.kubernetes.hosts.calls import PODS, named, read_list, step_error
from eventstore.errors import PlaneError
from projections.kubernetes.object_names import OWN_LABELS
from schemas.kubernetes.api import CONFLICT, NOT_FOUND, TOO_MANY_REQUESTS, ApiError, KubernetesApi

EVICTIONS_AT_ONCE = 10
_MIRROR = "kubernetes.io/config.mirror"
_ENDED = ("Succeeded", "Failed")


class PodsOfNode(NamedTuple):
    """The pods that must leave a node, and the version of the list."""

    pods: list[dict[str, Any]]
    version: str


def node_field(node: str) -> str:
    """Selects the pods of a node."""
    return f"spec.nodeName={node}"


async def pods_to_evict(api: KubernetesApi, node: str) -> PodsOfNode:
    """The pods of a node but for those of DaemonSets, static ones, those that have ended, and the plane's own."""
    found, version = await read_list(api, PODS, {"fieldSelector": node_field(node)})
    return PodsOfNode([pod for pod in found if _must_leave(pod)], version)


async def evict(api: KubernetesApi, found: PodsOfNode) -> Progress:
    """Ask for the eviction of these pods. Done if there are none."""
    if not found.pods:
        return DONE
    places = asyncio.Semaphore(EVICTIONS_AT_ONCE)
    async with asyncio.TaskGroup() as tasks:
        asked = [
            tasks.create_task(_evict(api, pod, places))
            for pod in found.pods
            if "deletionTimestamp" not in pod["metadata"]
        ]
    answers = [task.result() for task in asked]
    for answer in answers:
        if isinstance(answer, PlaneError):
            raise answer
    refusals = [str(answer) for answer in answers if answer]
    first = found.pods[0]["metadata"]
    waits = f"waits for {len(found.pods)} pods of the host to end, such as {first['namespace']}/{first['name']}"
    return Progress(False, f"{waits}; {refusals[0]}" if refusals else waits)


async def _evict(api: KubernetesApi, pod: dict[str, Any], places: asyncio.Semaphore) -> str | PlaneError:
    """Evict a pod. Returns why it must stay for now, or the error."""
    metadata = pod["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    path = f"/api/v1/namespaces/{named(namespace)}/pods/{named(name)}/eviction"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": metadata["uid"]}},
    }
    async with places:
        try:
            await api.create(path, body)
        except ApiError as error:
            if error.status == TOO_MANY_REQUESTS:
                return f"{namespace}/{name}: {error}"
            if error.status not in (NOT_FOUND, CONFLICT):
                return step_error(f"eviction of {namespace}/{name}", error)
    return ""


def _must_leave(pod: dict[str, Any]) -> bool:
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences") or []
    is_own = OWN_LABELS.items() <= (metadata.get("labels") or {}).items()
    is_daemon = any(owner.get("controller") and owner.get("kind") == "DaemonSet" for owner in owners)
    is_static = _MIRROR in (metadata.get("annotations") or {})
    has_ended = (pod.get("status") or {}).get("phase") in _ENDED
    return not (is_own or is_daemon or is_static or has_ended)
