"""Decisions about nodes and DPUs, rendered from the change of a record in a zones partition."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from eventstore.folding.fold import Outcome, RecordMetadata
from projections.decisions.items import (
    DecisionItems,
    items_in_zones,
    limits_detail,
    result_detail,
    single_item,
    zone_detail,
)
from projections.zones.nodes.new_nodes import NewNodes
from projections.zones.rows import Dpu, Zone
from projections.zones.state import ZonesChange
from schemas.events import (
    INFERRED,
    LEFT,
    SUPERSEDED,
    DeadlinePassed,
    DpuRegistered,
    Event,
    LifecycleRequested,
    NodesChanged,
    OutboxAcknowledged,
    SnapshotCompleted,
    StepFailed,
    StepProgressed,
    StepStarted,
    StepSucceeded,
    ZoneDeleted,
    ZoneLimitsSet,
)

_ZONE = attrgetter("zone")
_WAYS = {LEFT: "stated", INFERRED: "inferred", SUPERSEDED: "superseded"}


def items(event: Event, change: ZonesChange, outcome: Outcome, at: RecordMetadata) -> Iterator[DecisionItems]:
    kind = "node_changed" if isinstance(event, NodesChanged) else "node_joined"
    if change.new is not None:
        yield from _joined(change.new)
    yield from items_in_zones(kind, change.nodes, map(_ZONE, change.nodes.values()))
    for name, tombstone in change.tombstones.items():
        yield single_item(
            "node_left", name, {"zone": tombstone.zone, "how": _WAYS.get(tombstone.state, str(tombstone.state))}
        )
    if isinstance(event, SnapshotCompleted):
        detail = {"count": str(event.count), "total": str(event.total), "restored": str(event.restored).lower()}
        yield from (single_item("snapshot_completed", key, detail) for key in change.snapshots)
    if isinstance(event, ZoneLimitsSet):
        for zone, limits in change.zones.items():
            yield single_item("zone_limits_set", zone, limits_detail(limits or Zone()))
    if isinstance(event, ZoneDeleted):
        yield from (single_item("zone_deleted", zone, {}) for zone in change.zones)
    for name, dpu in change.dpus.items():
        yield from _dpu(name, dpu, event, outcome, at)
    if isinstance(event, OutboxAcknowledged) and change.marks is not None:
        yield single_item("forwarded", str(at.partition), {"to_offset": str(change.marks.forwarded)})


def _joined(new: NewNodes) -> Iterator[DecisionItems]:
    names, zones = new.event.names, new.zones
    if len(zones) == 1:
        yield DecisionItems("node_joined", names, zone_detail(zones[0]))
    else:
        yield from items_in_zones("node_joined", names, zones)


def _dpu(name: str, dpu: Dpu | None, event: Event, outcome: Outcome, at: RecordMetadata) -> Iterator[DecisionItems]:
    if _subject(event) == name:
        yield from _record_items(name, dpu, event)
    if dpu is None:
        yield single_item("dpu_deleted", name, {})
        return
    began = dpu.since == at.offset
    if began:
        yield single_item("dpu_phase_changed", name, {"zone": dpu.zone, "phase": dpu.phase, **_why(dpu)})
    if dpu.step_state == "open" and (began or isinstance(event, StepFailed | DeadlinePassed)):
        detail = {"phase": dpu.phase, "attempt": str(dpu.attempt + 1)}
        yield single_item("step_opened", name, detail | _if("not_before_ms", dpu.not_before_ms))
    if outcome.code == "waiting" and _subject(event) == name:
        yield single_item("dpu_waiting", name, result_detail(outcome.result))


def _subject(event: Event) -> str:
    match event:
        case DpuRegistered() | LifecycleRequested() | StepStarted() | StepProgressed() | StepSucceeded() | StepFailed():
            return event.dpu
        case DeadlinePassed():
            return event.envelope.subject
    return ""


def _record_items(name: str, dpu: Dpu | None, event: Event) -> Iterator[DecisionItems]:
    """The item that says what this record reports about the DPU."""
    match event:
        case DpuRegistered():
            yield single_item("dpu_registered", name, {"zone": event.zone})
        case LifecycleRequested():
            yield single_item(
                "dpu_requested", name, {"request": event.request} | ({"image": event.image} if event.image else {})
            )
        case StepStarted():
            yield single_item("step_started", name, _step(event) | {"provisioner": event.provisioner})
        case StepProgressed():
            yield single_item(
                "step_progressed", name, _step(event) | {"task": event.task, "percent": str(event.percent)}
            )
        case StepSucceeded():
            yield single_item("step_succeeded", name, _step(event))
        case StepFailed():
            yield single_item(
                "step_failed", name, _step(event) | {"kind": event.kind, "message": dpu.message if dpu else ""}
            )
        case DeadlinePassed():
            yield single_item("step_expired", name, {"deadline_ms": str(event.deadline_ms)})


def _step(event: StepStarted | StepProgressed | StepSucceeded | StepFailed) -> dict[str, str]:
    return {"phase": event.phase, "attempt": str(event.attempt)}


def _why(dpu: Dpu) -> dict[str, str]:
    return {"message": dpu.message} if dpu.message else {}


def _if(name: str, value: int) -> dict[str, str]:
    return {name: str(value)} if value else {}
