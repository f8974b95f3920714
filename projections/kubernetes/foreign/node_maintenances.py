"""NodeMaintenance of the maintenance operator: a Node that is cordoned and drained for those who request it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from projections.kubernetes.foreign.kind import Condition, ForeignKind, condition, decoded, told
from schemas.kubernetes.objects import Custom, Fields


class _Spec(Fields, frozen=True):
    node_name: str = ""
    requestor_id: str = msgspec.field(default="", name="requestorID")
    additional_requestors: list[str] | None = None


class _Status(Fields, frozen=True):
    conditions: list[Condition] | None = None


_spec = msgspec.json.Decoder(_Spec)
_status = msgspec.json.Decoder(_Status)


def observe(item: Custom) -> Mapping[str, object]:
    """The fields of the observation of a NodeMaintenance. Its progress is left out: it changes with each pod."""
    spec, status = decoded(_spec, item.spec, _Spec()), decoded(_status, item.status, _Status())
    ready, failed = condition(status.conditions, "Ready"), condition(status.conditions, "Failed")
    is_ready = ready is not None and ready.status == "True"
    message = told(failed.message if failed and failed.status == "True" else "", ready.message if ready else "")
    return {
        "ready": is_ready,
        "phase": ready.reason if ready else "",
        "message": "" if is_ready else message,
        "node": spec.node_name,
        "requestor": spec.requestor_id,
        "additional": sorted(spec.additional_requestors or ()),
        "deleting": item.metadata.deletion_timestamp is not None,
    }


NODE_MAINTENANCE = ForeignKind(
    "NodeMaintenance.maintenance.nvidia.com", "maintenance.nvidia.com/v1alpha1", "nodemaintenances", observe
)
