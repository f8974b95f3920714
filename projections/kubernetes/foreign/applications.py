"""Application of Argo CD: whether the objects of a service are synced and healthy, and the first one that is not."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from projections.kubernetes.foreign.kind import Condition, ForeignKind, decoded, told
from schemas.kubernetes.objects import Custom, Fields

HEALTHY = "Healthy"
SYNCED = "Synced"
_BAD_OPERATIONS = ("Failed", "Error")


class _Health(Fields, frozen=True, gc=False):
    status: str = ""
    message: str = ""


class _Sync(Fields, frozen=True, gc=False):
    status: str = ""
    revision: str = ""


class _Operation(Fields, frozen=True, gc=False):
    phase: str = ""
    message: str = ""


class _Part(Fields, frozen=True, gc=False):
    """An object that an Application made."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    status: str = ""
    health: _Health | None = None

    @property
    def is_healthy(self) -> bool:
        return self.health is None or self.health.status in ("", HEALTHY)


class _Status(Fields, frozen=True):
    health: _Health | None = None
    sync: _Sync | None = None
    operation_state: _Operation | None = None
    resources: list[_Part] | None = None
    conditions: list[Condition] | None = None


_status = msgspec.json.Decoder(_Status)


def observe(item: Custom) -> Mapping[str, object]:
    """The fields of the observation of an Application."""
    found = decoded(_status, item.status, _Status())
    health, sync, operation = found.health or _Health(), found.sync or _Sync(), found.operation_state or _Operation()
    is_ready = (health.status, sync.status) == (HEALTHY, SYNCED)
    worst = next((part for part in found.resources or () if not part.is_healthy), None)
    name = "" if worst is None else f"{worst.kind} {worst.namespace}/{worst.name}"
    why = "" if worst is None or worst.health is None else worst.health.message or f"it is {worst.health.status}"
    error = next((each.message for each in found.conditions or () if each.type.endswith("Error")), "")
    failed = operation.message if operation.phase in _BAD_OPERATIONS else ""
    unsynced = f"its sync status is {sync.status or 'not known'}" if sync.status != SYNCED else ""
    unhealthy = f"its health is {health.status or 'not known'}"
    message = told(error, failed, f"{name}: {why}" if name else "", health.message, unsynced, unhealthy)
    return {
        "ready": is_ready,
        "phase": health.status,
        "message": "" if is_ready else message,
        "health": health.status,
        "sync": sync.status,
        "revision": sync.revision,
        "resource": "" if is_ready else name,
    }


APPLICATION = ForeignKind("Application.argoproj.io", "argoproj.io/v1alpha1", "applications", observe)
