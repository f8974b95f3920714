"""The zone fold: the nodes and DPUs of the zones that share a partition.

Each record from fleet's outbox carries the range [from, to) of fleet offsets that caused it. The fold accepts it only
if `from` equals the `to` of the last accepted record, so a duplicate or a record of a lagging driver changes nothing.
Changes for fleet wait in this partition's outbox (`state`) until the forwarder has appended them to fleet
(`forwarding`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from eventstore.avro.columns import EventColumns
from eventstore.folding.fold import DONE, Decision, RecordMetadata, refusal, unchanged
from eventstore.log import ZONES, Partition
from eventstore.reasons import Fault, Reason
from projections.attempt_limits import fault_of_limits, updated_limits
from projections.field_checks import check_label_keys, check_networks, check_zone, quoted
from projections.zones.dpus import decide as dpus
from projections.zones.dpus import renewals
from projections.zones.dpus.networks import report_networks, want_networks
from projections.zones.dpus.rollout import DpuChange, admit, limits_of
from projections.zones.dpus.wanted import want
from projections.zones.nodes import decide as nodes
from projections.zones.rows import ForwardingMarks, Zone
from projections.zones.state import ZonesChange, ZonesState
from schemas.events import (
    DeadlinePassed,
    DpuRegistered,
    DpusWanted,
    Event,
    LifecycleRequested,
    NetworksReported,
    NetworksWanted,
    NodesChanged,
    NodesJoined,
    NodesLeft,
    NodesSuperseded,
    OutboxAcknowledged,
    SnapshotCompleted,
    StepFailed,
    StepProgressed,
    StepStarted,
    StepSucceeded,
    ZoneDeleted,
    ZoneLimitsSet,
)

__all__ = ["ZonesFold", "ZonesFold2", "ZonesState"]


class ZonesFold:
    """The zones fold, version 1: every DPU is an operator's."""

    topic = ZONES
    version = 1
    run_of = NodesJoined.__name__
    accepts = frozenset(
        event.__name__
        for event in (
            NodesJoined,
            NodesChanged,
            NodesLeft,
            SnapshotCompleted,
            NodesSuperseded,
            ZoneLimitsSet,
            ZoneDeleted,
            OutboxAcknowledged,
            DpuRegistered,
            LifecycleRequested,
            StepStarted,
            StepProgressed,
            StepSucceeded,
            StepFailed,
            DeadlinePassed,
        )
    )

    def initial_state(self, partition: Partition) -> ZonesState:
        return ZonesState()

    def decide(self, state: ZonesState, event: Event, at: RecordMetadata) -> Decision:
        match event:
            case NodesJoined():
                return nodes.join(state, event, at)
            case NodesChanged():
                return nodes.change(state, event, at)
            case NodesLeft():
                return nodes.leave(state, event, at)
            case SnapshotCompleted():
                return nodes.complete_snapshot(state, event, at)
            case DpuRegistered():
                return dpus.register(state, event, at)
            case LifecycleRequested():
                return dpus.request(state, event, at)
            case StepStarted() | StepProgressed() | StepSucceeded() | StepFailed():
                return dpus.apply_step_event(state, event, at)
            case DeadlinePassed():
                return dpus.expire(state, event, at)
            case OutboxAcknowledged():
                return _acknowledge_outbox(state, event, at)
            case ZoneDeleted():
                return _delete(state, event)
            case NodesSuperseded() | ZoneLimitsSet():
                return _apply_from_fleet(state, event, at)
            case _:
                return refusal(f"event: {type(event).__name__} is not an event of the zones topic")

    def rewind(self, state: ZonesState, time_ms: int) -> None:
        """Correct the state for a clock that was fast and has been set back to `time_ms`.

        A deadline that lies further ahead than a full step moves to a full step after `time_ms`, so that attempts still
        time out. A snapshot with a later time gets `time_ms`, so that new snapshots do not count as older.
        """
        state.rewind(time_ms)

    def evolve(self, state: ZonesState, change: ZonesChange, at: RecordMetadata) -> None:
        state.apply(change, at)

    def decide_run(
        self, state: ZonesState, run: EventColumns, offsets: Sequence[int], append_ms: Sequence[int], time_ms: int
    ) -> tuple[ZonesChange, int] | None:
        return nodes.join_run(state, run, offsets, append_ms, time_ms)

    def changes_of_run(self, change: ZonesChange) -> Iterable[ZonesChange]:
        assert change.new is not None, "the nodes of a run are new"
        rows = zip(change.new.event.names, change.new.rows(), strict=True)
        return (ZonesChange(nodes={name: node}) for name, node in rows)


class ZonesFold2(ZonesFold):
    """The zones fold, version 2: objects of custom resources want DPUs, too, and network documents on them; the
    certificates of devices are renewed while their DPUs are Ready."""

    version = 2
    accepts = ZonesFold.accepts | {each.__name__ for each in (DpusWanted, NetworksWanted, NetworksReported)}

    def decide(self, state: ZonesState, event: Event, at: RecordMetadata) -> Decision:
        match event:
            case DpusWanted():
                return want(state, event, at)
            case NetworksWanted():
                return want_networks(state, event, at)
            case NetworksReported():
                return report_networks(state, event)
            case DpuRegistered():
                return dpus.register(state, event, at, renewals.readdressed)
            case LifecycleRequested():
                return dpus.request(state, event, at, renewals.transition)
            case StepStarted() | StepProgressed() | StepSucceeded() | StepFailed():
                return dpus.apply_step_event(state, event, at, renewals.transition)
            case DeadlinePassed():
                return dpus.expire(state, event, at, renewals.transition)
            case _:
                return super().decide(state, event, at)


def _apply_from_fleet(state: ZonesState, event: NodesSuperseded | ZoneLimitsSet, at: RecordMetadata) -> Decision:
    """Apply a record of fleet's outbox that begins at the mark, and move the mark to the end of the record's range. The
    mark moves even if the record changes nothing; otherwise no later record would be accepted."""
    mark = state.fleet_mark
    if event.from_offset != mark or event.to_offset <= mark:
        reason = (
            f"from_offset: {event.from_offset} to {event.to_offset} must begin at {mark}, where the last forward ended"
        )
        return refusal(Fault(reason, Reason.OUT_OF_ORDER, mark=mark))
    decision = nodes.supersede(state, event, at) if isinstance(event, NodesSuperseded) else _limit(state, event, at)
    change: ZonesChange = decision.change or ZonesChange()
    return Decision(change._replace(marks=ForwardingMarks(event.to_offset, state.forwarded)), decision.outcome)


def _limit(state: ZonesState, event: ZoneLimitsSet, at: RecordMetadata) -> Decision:
    fault = (
        check_zone("zone", event.zone)
        or check_networks("agent_networks", event.agent_networks)
        or check_label_keys("agent_label_keys", event.agent_label_keys)
        or fault_of_limits(event.attempt_limits)
    )
    if fault is not None:
        return refusal(fault)
    old = state.zone_rows.rows.get(event.zone) or Zone()
    row = Zone(
        old.parallel_installs if event.parallel_installs < 0 else event.parallel_installs,
        old.unavailable_nodes if event.unavailable_nodes < 0 else event.unavailable_nodes,
        old.ordinals,
        tuple(event.agent_networks),
        tuple(event.agent_label_keys),
        updated_limits(old.attempt_limits, event.attempt_limits),
    )
    if old.deleted and row == Zone(ordinals=old.ordinals):
        row = replace(row, deleted=True)
    if row == Zone(deleted=row.deleted) and state.existing_zone(event.zone) is None:
        return Decision(ZonesChange(zones={event.zone: None}), DONE)
    admitted = admit(state, event.zone, limits_of(row), DpuChange(), at)
    return Decision(ZonesChange(zones={event.zone: row}, dpus=admitted.rows), DONE)


def _delete(state: ZonesState, event: ZoneDeleted) -> Decision:
    """Delete a zone without nodes and DPUs, and the snapshots of its sources."""
    fault = check_zone("zone", event.zone)
    if fault is not None:
        return refusal(fault)
    row = state.existing_zone(event.zone)
    if row is None:
        return unchanged(f"zone: {quoted(event.zone)} has no node and no DPU, and did not exist in its partition")
    if not state.is_empty(event.zone):
        nodes_left, dpus_left = state.node_counts.get(event.zone, 0), len(state.dpu_index.zone(event.zone).names)
        reason = f"zone: {quoted(event.zone)} has {nodes_left} nodes and {dpus_left} DPUs and must have none"
        return refusal(Fault(reason, Reason.ZONE_NOT_EMPTY, zone=event.zone, nodes=nodes_left, dpus=dpus_left))
    deleted = replace(row, deleted=True)
    snapshots = dict.fromkeys(sorted(key for key in state.snapshots.rows if key.startswith(f"{event.zone}/")))
    return Decision(
        ZonesChange(zones={event.zone: deleted if deleted.must_stay() else None}, snapshots=snapshots), DONE
    )


def _acknowledge_outbox(state: ZonesState, event: OutboxAcknowledged, at: RecordMetadata) -> Decision:
    """Prune the changes from the outbox that fleet has folded."""
    if event.to_offset > at.offset:
        reason = f"to_offset: {event.to_offset} must not lie after this record, at {at.offset}"
        return refusal(Fault(reason, Reason.OUT_OF_ORDER))
    if event.to_offset <= state.forwarded:
        return unchanged(f"to_offset: {state.forwarded} is already confirmed by fleet")
    return Decision(ZonesChange(marks=ForwardingMarks(state.fleet_mark, event.to_offset)), DONE)
