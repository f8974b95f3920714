"""Pod of a service in a DPU cluster that is not ready. A ready one is not observed: most pods are ready, most of the
time, and the log has only what is wrong."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from projections.kubernetes.foreign.kind import Condition, ForeignKind, condition, decoded, told
from projections.resources.kinds import POD
from schemas.kubernetes.objects import Custom, Fields, PodSpec
from schemas.resources.dpf.names import SERVICE_ID

_ENDED = ("Succeeded",)


class _Waiting(Fields, frozen=True, gc=False):
    reason: str = ""


class _State(Fields, frozen=True, gc=False):
    waiting: _Waiting | None = None


class _Container(Fields, frozen=True, gc=False):
    state: _State | None = None


class _Status(Fields, frozen=True):
    phase: str = ""
    reason: str = ""
    conditions: list[Condition] | None = None
    init_container_statuses: list[_Container] | None = None
    container_statuses: list[_Container] | None = None


_spec = msgspec.json.Decoder(PodSpec)
_status = msgspec.json.Decoder(_Status)


def observe(item: Custom) -> Mapping[str, object] | None:
    """The fields of the observation of a pod; None for one that is ready, has ended, is being deleted, or has no node
    yet."""
    about, status = item.metadata, decoded(_status, item.status, _Status())
    node = decoded(_spec, item.spec, PodSpec()).node_name
    ready = condition(status.conditions, "Ready")
    is_ready = ready is not None and ready.status == "True"
    if is_ready or status.phase in _ENDED or about.deletion_timestamp is not None or not node:
        return None
    containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    waiting = (each.state.waiting.reason for each in containers if each.state and each.state.waiting)
    return {
        "ready": False,
        "message": told(next(filter(None, waiting), ""), status.reason),
        "node": node,
        "service": (about.labels or {}).get(SERVICE_ID, ""),
    }


UNREADY_POD = ForeignKind(POD, "v1", "pods", observe, label_selector=SERVICE_ID)
