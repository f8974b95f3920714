"""The status of an object of DPF's kinds, from what the plane knows of it.

A condition keeps the time of its last transition while its status stays the same. Everything else follows from the
folds, so every replica computes the same status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from projections.kubernetes.resources.server_schemas import JSON, allowed_values, pruned
from projections.kubernetes.status_body import TRANSITION, shortened, to_rfc3339
from projections.resources import kinds, views
from projections.resources.blame import Blame
from projections.resources.conditions.causes import conditions_of as conditions_of_object
from projections.resources.conditions.condition import BLAMES_MAX, READY, Condition, condition
from projections.resources.conditions.world import World
from projections.resources.state import Resource, object_id
from projections.resources.status_fields import OPERATIONAL, status_fields

MESSAGE_MAX = 1_024
_OLD_PHASES = {
    "Initialize Interface": "DMS Deployment",
    "Perform ARM Force Restart": "DMS Deployment",
    "Update Firmware": "DMS Deployment",
    "Config FW Parameters": "DMS Deployment",
    "Prepare BFB": "DMS Deployment",
    "DPU Config": "OS Installing",
    "Checking Host Reboot Required": "Rebooting",
    "Service Readiness": "DPU Cluster Config",
    "Node Effect Removal": "DPU Cluster Config",
}
"""The phase of release 24.10 that stands for one that it does not have."""

_OUTDATED = "outdated"
_OBSERVED = {
    kinds.BFB: ("fileName", "versions"),
    kinds.BLUEFIELD_SOFTWARE: ("versions", "downloadedComponents"),
    kinds.DPU: (
        "bfbFile",
        "bfCFGFile",
        "bfbVersion",
        "pciDevice",
        "firmware",
        "addresses",
        "requiredReset",
    ),
    kinds.DPU_CLUSTER: ("version", "nodesCount"),
    kinds.DPU_DISCOVERY: ("lastScanTime", "foundDPUs"),
    kinds.DPU_SERVICE_CREDENTIAL_REQUEST: (
        "serviceAccount",
        "targetCluster",
        "secret",
        "issuedAt",
        "expirationTimestamp",
    ),
}
"""The fields of an observation that are fields of the status, too."""


def status_of(key: str, row: Resource, world: World, waits_for: Sequence[Blame], generation: int) -> dict[str, Any]:
    """The status of an object, without the times of transitions. `waits_for` is what an object that is being deleted
    waits for. `generation` is the version of the spec that the plane knows."""
    kind = object_id(key).kind
    more = max(0, world.state.uses(key) - BLAMES_MAX)
    conditions = _with_deletion(row, conditions_of_object(key, world), waits_for, more)
    status: dict[str, Any] = {}
    if phase := views.phase(key, row, conditions, world):
        status["phase"] = phase
    seen = world.observed.get(key)
    if seen is not None:
        fields = seen.fields
        status |= {name: fields[name] for name in _OBSERVED.get(kind, ()) if name in fields}
    status |= status_fields(key, world)
    if OPERATIONAL in status:
        found = status[OPERATIONAL]
        status[OPERATIONAL] = [each | {"message": shortened(each["message"], MESSAGE_MAX)} for each in found]
    if conditions:
        status["conditions"] = [_document(each, generation) for each in conditions]
    return {**status, "observedGeneration": generation}


def fitting(status: Mapping[str, Any], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The part of a status that the definition of its kind has. Phases of a later release become earlier ones."""
    if schema is None:
        return dict(status)
    phases = allowed_values(schema, "status", "phase")
    found: JSON = pruned(status, (schema.get("properties") or {}).get("status") or {})
    if phases is not None and "phase" in found and found["phase"] not in phases:
        earlier = _OLD_PHASES.get(found["phase"])
        if earlier in phases:
            found["phase"] = earlier
        else:
            del found["phase"]
    return found


def stamped(status: Mapping[str, Any], present: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """A status with the times of transitions: those of the present status where nothing changed, else this time."""
    found = dict(status)
    for field in ("conditions", OPERATIONAL):
        if status.get(field):
            found[field] = _with_times(status[field], present.get(field) or (), now_ms)
    return found | {_OUTDATED: _outdated_since(status, present)} if _OUTDATED in status else found


def _with_times(conditions: Sequence[JSON], present: Sequence[JSON], now_ms: int) -> list[JSON]:
    known = {found.get("type"): found for found in present}
    stamps = []
    for each in conditions:
        before = known.get(each["type"], {})
        is_same = before.get("status") == each["status"] and TRANSITION in before
        stamps.append({**each, TRANSITION: before[TRANSITION] if is_same else to_rfc3339(now_ms)})
    return stamps


def _outdated_since(status: Mapping[str, Any], present: Mapping[str, Any]) -> JSON:
    """Why a DPU is outdated, with the time in the present status if that one has the same reason: edits of its DPUSet
    that change nothing about it cause no write."""
    found, before = dict(status[_OUTDATED]), present.get(_OUTDATED) or {}
    is_same = before.get("reason") == found["reason"] and "timeStamp" in before
    return found | {"timeStamp": before["timeStamp"]} if is_same else found


def _with_deletion(
    row: Resource, conditions: tuple[Condition, ...], waits_for: Sequence[Blame], more: int
) -> tuple[Condition, ...]:
    """The conditions of an object that is being deleted: what it waits for replaces why it is not ready."""
    if not row.deleted_ms or not conditions:
        return conditions
    if waits_for:
        return (condition(READY, waits_for, "AwaitingDeletion", more), *conditions[1:])
    return (Condition(READY, "AwaitingDeletion", "the object is being deleted"), *conditions[1:])


def _document(each: Condition, generation: int) -> dict[str, Any]:
    return {
        "type": each.type,
        "status": each.status,
        "observedGeneration": generation,
        "reason": each.reason,
        "message": shortened(each.message, MESSAGE_MAX),
    }
