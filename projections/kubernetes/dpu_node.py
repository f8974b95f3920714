"""The node of a DPU in its DPU cluster: its labels and annotations, and the services that it must run.

The node has an annotation with the keys that the plane has set. So a label that a DPU no longer has is removed, and one
that somebody else has set stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from projections.kubernetes.status_body import shortened
from projections.label_selectors import matches
from projections.resources.selectors import compiled, of_labels
from schemas.resources.dpf.names import SERVICE_ID

JSON = dict[str, Any]
_REASON_MAX = 100
LAST_APPLIED = "dpuplane.io/last-applied-node-metadata"


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether a node, or a pod, has the condition Ready."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def patch_of(node: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str]) -> JSON | None:
    """The merge patch that gives a node these labels and annotations; None if it has them, and no earlier ones."""
    metadata = node["metadata"]
    earlier = _last_applied(metadata)
    patch: JSON = {}
    for field, wanted in (("labels", labels), ("annotations", annotations)):
        present = metadata.get(field) or {}
        changes: JSON = {key: value for key, value in wanted.items() if present.get(key) != value}
        changes |= {key: None for key in earlier.get(field, ()) if key not in wanted and key in present}
        if changes:
            patch[field] = changes
    applied = {"annotations": sorted(annotations), "labels": sorted(labels)}
    if earlier != applied:
        text = msgspec.json.encode(applied, order="sorted").decode()
        patch.setdefault("annotations", {})[LAST_APPLIED] = text
    if not patch:
        return None
    return {"metadata": patch | {"resourceVersion": metadata["resourceVersion"]}}


class UnreadyService(NamedTuple):
    """A service that does not run on a node, and its pod there, with what is known of it."""

    service: str
    pod: str = ""
    why: str = ""

    @property
    def text(self) -> str:
        """The service in words, for a sentence that begins with "waits for"."""
        if not self.pod:
            return f"a pod of service {self.service}"
        return f"pod {self.pod} of service {self.service}" + (f" ({self.why})" if self.why else "")


def unready_services(
    node: Mapping[str, Any], sets: Sequence[JSON], pods: Sequence[JSON], awaited: frozenset[str] | None = None
) -> list[UnreadyService]:
    """The services that have no ready pod on a node: those whose DaemonSets select it. If only some are awaited, each
    must have a pod, even before there is a DaemonSet of it, and all its pods count."""
    by_owner = {owner: pod for pod in sorted(pods, key=is_ready) for owner in _owners(pod)}
    found: dict[str, UnreadyService] = {}
    for each in sets:
        service, pod = _service(each), by_owner.get(each["metadata"]["uid"])
        is_awaited = bool(service) if awaited is None else service in awaited
        if is_awaited and _selects(each, node) and (pod is None or not is_ready(pod)):
            found[service] = _unready(service, pod)
    for service in awaited or ():
        own = [pod for pod in pods if _labels(pod).get(SERVICE_ID) == service and not _is_leaving(pod)]
        unready = next((pod for pod in own if not is_ready(pod)), None)
        if unready is not None or not own:
            found.setdefault(service, _unready(service, unready))
    return [found[service] for service in sorted(found)]


def _unready(service: str, pod: Mapping[str, Any] | None) -> UnreadyService:
    if pod is None:
        return UnreadyService(service)
    return UnreadyService(service, pod["metadata"]["name"], _waiting_reason(pod))


def _waiting_reason(pod: Mapping[str, Any]) -> str:
    """Why a pod does not start, in one word of Kubernetes, such as ImagePullBackOff; empty if no container says so."""
    status = pod.get("status") or {}
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        if reason := ((each.get("state") or {}).get("waiting") or {}).get("reason"):
            return shortened(str(reason), _REASON_MAX)
    return shortened(str(status.get("reason") or ""), _REASON_MAX)


def _last_applied(metadata: Mapping[str, Any]) -> dict[str, list[str]]:
    try:
        found = msgspec.json.decode(
            (metadata.get("annotations") or {}).get(LAST_APPLIED, "{}"), type=dict[str, list[str]]
        )
    except msgspec.MsgspecError:
        return {}
    return found


def _labels(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = pod["metadata"].get("labels") or {}
    return found


def _is_leaving(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _owners(pod: Mapping[str, Any]) -> Iterator[str]:
    if not _is_leaving(pod):
        yield from (owner.get("uid", "") for owner in pod["metadata"].get("ownerReferences") or ())


def _service(daemon_set: Mapping[str, Any]) -> str:
    template = daemon_set["spec"]["template"]
    return str(((template.get("metadata") or {}).get("labels") or {}).get(SERVICE_ID, ""))


def _selects(daemon_set: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    spec, labels = daemon_set["spec"]["template"]["spec"], node["metadata"].get("labels") or {}
    if not matches(of_labels(spec.get("nodeSelector")), labels):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not affinity:
        return True
    terms = (
        compiled({"matchExpressions": each.get("matchExpressions") or []}) for each in affinity["nodeSelectorTerms"]
    )
    return any(not isinstance(term, str) and matches(term, labels) for term in terms)
