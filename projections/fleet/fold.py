"""The fleet fold: it decides all events that concern more than one zone, in the order of one partition. Its state has
the members, policies, budgets, holds, freezes and limits of all zones. One module decides each event and returns one
change, and `evolve` passes each change to the module that applies it. The fold computes no covers; a reader of a table
does (projections/fleet/tables/zone_table).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from eventstore.folding.fold import DONE, UNCHANGED, Decision, RecordMetadata, refusal
from eventstore.log import FLEET, Partition
from eventstore.reasons import Fault, Reason
from projections import field_checks
from projections.attempt_limits import fault_of_limits, updated_limits
from projections.fleet.membership.contested import faults_of_agent
from projections.fleet.membership.effects import apply_changes, charge, hold_key
from projections.fleet.membership.joins import (
    ForwardRange,
    MembersAdded,
    MembersChanged,
    add_members,
    decide_membership,
)
from projections.fleet.policies.edits import Edit, apply_edit
from projections.fleet.policies.fleet_zones import ZoneLimits
from projections.fleet.staging import apply as staging
from projections.fleet.staging.decide import (
    ChargedRelease,
    DpusNamed,
    decide_naming,
    decide_stages_request,
    fault_of_another,
    fault_of_edit,
)
from projections.fleet.staging.release import decide_release
from projections.fleet.staging.rows import CURRENT
from projections.fleet.staging.statements import fault_of_staged, plan_of, set_at_once
from projections.fleet.state import ANY_ZONE, LAST_HOLD, FleetState, Freeze
from projections.fleet.withdrawals import command_outcomes
from projections.fleet.withdrawals.budget_edits import decide_budget
from projections.fleet.withdrawals.budgets import Hold
from projections.fleet.withdrawals.command_outcomes import CommandOutcome
from projections.fleet.withdrawals.holds import (
    BudgetChanged,
    EditApplied,
    EditHeld,
    EditRejected,
    EditStaged,
    HoldUpdated,
    MembersRejected,
    MembersReleased,
    decide_approval,
    decide_edit,
    decide_rejection,
    holds_of_edit,
)
from projections.fleet.zone_outbox import enqueue_limits, enqueue_superseded
from projections.rules.policies import BUILT_IN, DEFAULT, MAX_POLICIES, fault_of_policy, policy_of
from projections.staging.decide import StageReleased, StagingFinished, StagingUndone, StagingUpdated
from projections.staging.plan import StagePlan
from schemas.events import (
    BudgetSet,
    Envelope,
    Event,
    HoldApproved,
    HoldRejected,
    MembershipChanged,
    PolicyDeleted,
    PolicySet,
    PolicyStaged,
    StageDpusNamed,
    StageObserved,
    StagesRequested,
    WritesFrozen,
    WritesThawed,
    ZoneUpdated,
)

__all__ = ["FleetFold", "FleetFold2", "FleetState"]

MAX_LIMIT = 1_000_000
"""Maximum value of a zone's limits of parallel installs and of nodes out of service: more than a zone can have."""


class EditWithdrawn(NamedTuple):
    """Pending edits end, because a later command asks for the policy or labels that are in force."""

    ended_holds: tuple[int, ...]


class ZoneEdited(NamedTuple):
    """A zone's limits, and the decision on the edit of its labels, if there is one."""

    zone: str
    limits: ZoneLimits
    edit: EditApplied | EditHeld | EditWithdrawn


class FreezeChanged(NamedTuple):
    """A zone (or all) is frozen, or thawed."""

    zone: str
    freeze: Freeze | None


class FleetFold:
    """The fleet fold, version 1. `partition_count` is the log's number of partitions: it determines the zones partition
    of each zone."""

    topic = FLEET
    version = 1
    accepts = frozenset(
        event.__name__
        for event in (
            MembershipChanged,
            PolicySet,
            PolicyDeleted,
            BudgetSet,
            HoldApproved,
            HoldRejected,
            ZoneUpdated,
            WritesFrozen,
            WritesThawed,
        )
    )

    def __init__(self, partition_count: int) -> None:
        self._partition_count = partition_count

    def initial_state(self, partition: Partition) -> FleetState:
        return FleetState(self._partition_count)

    def decide(self, state: FleetState, event: Event, at: RecordMetadata) -> Decision:
        match event:
            case MembershipChanged():
                return decide_membership(state, event, at)
            case PolicySet():
                return _decide_policy_set(state, event, at)
            case PolicyDeleted():
                return _decide_policy_deleted(state, event, at)
            case BudgetSet():
                return decide_budget(state, event, at)
            case HoldApproved():
                return decide_approval(state, event, at)
            case HoldRejected():
                return decide_rejection(state, event)
            case ZoneUpdated():
                return _decide_zone_update(state, event, at)
            case WritesFrozen(envelope, zone):
                return _decide_freeze(zone, Freeze(at.append_ms, envelope.actor))
            case WritesThawed(_, zone):
                return _decide_thaw(state, zone)
            case _:
                return refusal(f"event: {type(event).__name__} is not an event of the fleet topic")

    def rewind(self, state: FleetState, time_ms: int) -> None:
        """Correct the state for a clock that was fast and has been set back to `time_ms`: levels and budget windows
        with later times move back to it. Otherwise the budgets would count these levels and windows until the clock
        reached their times."""
        state.set_levels_back(time_ms)
        for key, window in sorted(state.windows.rows.items()):
            corrected = window.rewind(time_ms)
            if corrected != window:
                state.windows.put(key, corrected)

    def evolve(self, state: FleetState, change: Any, at: RecordMetadata) -> None:
        state.sample(at.time_ms)
        match change:
            case MembersAdded():
                add_members(state, change, at)
                _advance(state, change.source)
            case MembersChanged():
                _advance(state, change.source)
                _change_members(state, change, at)
            case EditApplied() | EditHeld() | EditWithdrawn():
                _edit(state, change, at)
            case BudgetChanged(budget, ended_holds, approved_by):
                _end_holds(state, ended_holds, at, approved_by)
                state.budgets.put(budget.kind, budget)
            case HoldUpdated(hold):
                state.holds.put(hold_key(hold.id), hold)
            case MembersRejected(hold):
                state.holds.remove(hold_key(hold.id))
                state.rejected.put(hold_key(hold.id), hold)
                state.command_outcomes.note({hold.command_id: command_outcomes.rejected(hold, at)})
            case EditRejected(hold):
                _end(state, {hold.id: command_outcomes.rejected(hold, at)})
            case MembersReleased(number, impact, approved_by):
                hold = state.holds.rows[hold_key(number)]
                state.command_outcomes.note({hold.command_id: command_outcomes.approved(number, approved_by, at)})
                apply_changes(state, impact, {}, at.offset + 1, at.append_ms)
            case ZoneEdited():
                _edit_zone(state, change, at)
            case FreezeChanged(zone, freeze) if freeze is not None:
                state.freezes.put(zone, freeze)
            case FreezeChanged(zone):
                state.freezes.remove(zone)
            case _:
                raise AssertionError(f"{type(change).__name__} is not a change of fleet")


class FleetFold2(FleetFold):
    """The fleet fold, version 2: a change of a policy can take effect in stages."""

    version = 2
    accepts = FleetFold.accepts | {
        each.__name__ for each in (PolicyStaged, StageDpusNamed, StageObserved, StagesRequested)
    }

    def decide(self, state: FleetState, event: Event, at: RecordMetadata) -> Decision:
        match event:
            case PolicyStaged():
                return _decide_staged(state, event, at)
            case StageDpusNamed():
                return decide_naming(state, event)
            case StageObserved():
                return decide_release(state, event, at)
            case StagesRequested():
                return decide_stages_request(state, event, at)
            case _:
                return super().decide(state, event, at)

    def evolve(self, state: FleetState, change: Any, at: RecordMetadata) -> None:
        match change:
            case EditStaged(edit):
                state.sample(at.time_ms)
                _end_holds(state, edit.ended_holds, at, edit.approved_by)
                staging.begin(state, change, at)
            case DpusNamed(rows):
                staging.name_dpus(state, rows)
            case StageReleased(row):
                state.sample(at.time_ms)
                staging.release(state, row, at)
            case ChargedRelease(row, charged):
                state.sample(at.time_ms)
                staging.release(state, row, at, charged)
            case StagingUpdated(row):
                state.staged_changes.put(CURRENT, row)
            case StagingUndone(row):
                state.sample(at.time_ms)
                staging.undo(state, row, at)
            case StagingFinished(row):
                state.sample(at.time_ms)
                staging.finish(state, row, at)
            case _:
                super().evolve(state, change, at)


def _decide_staged(state: FleetState, event: PolicyStaged, at: RecordMetadata) -> Decision:
    fault = fault_of_staged(event) or fault_of_another(state)
    if fault is not None:
        return refusal(fault)
    if event.is_deleted:
        return _decide_policy_deleted(state, PolicyDeleted(event.envelope, event.name), at, plan_of(event))
    return _decide_policy_set(state, set_at_once(event), at, plan_of(event))


def _decide_policy_set(
    state: FleetState, event: PolicySet, at: RecordMetadata, stages: StagePlan | None = None
) -> Decision:
    fault = fault_of_policy(event) or fault_of_edit(state, policy=event.name)
    if fault is not None:
        return refusal(fault)
    policies, policy = state.policies.rows, policy_of(event, at.offset + 1)
    if policy.name not in policies and _policies_but(state, policy.name) >= MAX_POLICIES:
        reason = f"name: {field_checks.quoted(policy.name)} would be more than the {MAX_POLICIES} policies allowed"
        return refusal(Fault(reason, Reason.LIMIT_REACHED, limit=MAX_POLICIES))
    present = policies.get(policy.name)
    if present is not None and present.content() == policy.content():
        return _withdraw_edits(holds_of_edit(state, policy=policy.name))
    return _decide_edit(state, Edit(policy=policy.name, policy_after=policy), event.envelope, at, stages)


def _decide_edit(
    state: FleetState, edit: Edit, envelope: Envelope, at: RecordMetadata, stages: StagePlan | None
) -> Decision:
    change, outcome = decide_edit(state, edit, envelope, at, stages)
    if stages is not None and isinstance(change, EditApplied):
        return Decision(EditStaged(change, stages, envelope.actor), outcome)
    return Decision(change, outcome)


def _policies_but(state: FleetState, name: str) -> int:
    """The number of policies, including those that pending edits would add. `name`, which is no policy yet, is not
    counted."""
    waiting = {hold.policy for hold in state.holds.rows.values() if hold.policy_after is not None}
    return len(state.policies.rows.keys() | waiting - {name})


def _decide_policy_deleted(
    state: FleetState, event: PolicyDeleted, at: RecordMetadata, stages: StagePlan | None = None
) -> Decision:
    if (fault := fault_of_edit(state, policy=event.name)) is not None:
        return refusal(fault)
    name, waiting = event.name, holds_of_edit(state, policy=event.name)
    present = state.policies.rows.get(name)
    if present is None and not waiting:
        reason = f"name: {field_checks.quoted(name)} must be the name of an existing policy"
        return refusal(Fault(reason, Reason.POLICY_NOT_FOUND, policy=name))
    if present is None or (name == DEFAULT and present.content() == BUILT_IN.content()):
        return _withdraw_edits(waiting)
    return _decide_edit(state, Edit(policy=name), event.envelope, at, stages)


def _withdraw_edits(waiting: tuple[int, ...]) -> Decision:
    """Withdraw the pending edits of a policy or of labels, after a command that asks for the present ones; nothing else
    changes."""
    return Decision(EditWithdrawn(waiting), DONE) if waiting else Decision(None, UNCHANGED)


def _decide_zone_update(state: FleetState, event: ZoneUpdated, at: RecordMetadata) -> Decision:
    fault = _fault_of_zone_update(event)
    if fault is not None:
        return refusal(fault)
    info = state.zone(event.zone)
    limits = ZoneLimits(
        info.parallel_installs if event.parallel_installs < 0 else event.parallel_installs,
        info.unavailable_nodes if event.unavailable_nodes < 0 else event.unavailable_nodes,
        tuple(sorted({*event.agent_networks})) if event.set_agent_networks else info.agent_networks,
        tuple(sorted({*event.agent_label_keys})) if event.set_agent_label_keys else info.agent_label_keys,
        updated_limits(info.attempt_limits, event.attempt_limits),
    )
    labels = dict(sorted(event.labels.items()))
    if not event.set_labels or labels == info.labels:
        waiting = holds_of_edit(state, zone=event.zone) if event.set_labels else ()
        if not waiting and limits == info.limits:
            return Decision(None, UNCHANGED)
        return Decision(ZoneEdited(event.zone, limits, EditWithdrawn(waiting)), DONE)
    if (found := fault_of_edit(state, zone=event.zone)) is not None:
        return refusal(found)
    edited, outcome = decide_edit(state, Edit(zone=event.zone, labels_after=labels), event.envelope, at)
    return Decision(ZoneEdited(event.zone, limits, edited), outcome)


def _fault_of_zone_update(event: ZoneUpdated) -> str | None:
    for field in ("parallel_installs", "unavailable_nodes"):
        limit = getattr(event, field)
        if not -1 <= limit <= MAX_LIMIT:
            return f"{field}: {limit} must be from -1 to {MAX_LIMIT}"
    return (
        field_checks.check_zone("zone", event.zone)
        or field_checks.check_labels("labels", event.labels)
        or field_checks.check_networks("agent_networks", event.agent_networks)
        or field_checks.check_label_keys("agent_label_keys", event.agent_label_keys)
        or fault_of_limits(event.attempt_limits)
    )


def _decide_freeze(zone: str, freeze: Freeze) -> Decision:
    fault = field_checks.check_zone("zone", zone) if zone else None
    return refusal(fault) if fault is not None else Decision(FreezeChanged(zone, freeze), DONE)


def _decide_thaw(state: FleetState, zone: str) -> Decision:
    if zone in state.freezes.rows:
        return Decision(FreezeChanged(zone, None), DONE)
    if zone != ANY_ZONE and ANY_ZONE in state.freezes.rows:
        reason = f"zone: {field_checks.quoted(zone)} is frozen by the freeze of all zones; thaw all zones"
        return refusal(Fault(reason, Reason.ALL_ZONES_FROZEN, zone=zone))
    reason = f"zone: {field_checks.quoted(zone) if zone else 'all zones'} must be frozen before it can be thawed"
    return refusal(Fault(reason, Reason.ZONE_NOT_FROZEN, zone=zone))


def _advance(state: FleetState, source: ForwardRange) -> None:
    state.marks[source.partition] = source.to_offset
    state.mark_rows.put(str(source.partition), source.to_offset)


def _change_members(state: FleetState, change: MembersChanged, at: RecordMetadata) -> None:
    for hold in change.holds:
        _open_hold(state, hold)
    charges = ((kind, state.plan.ids[number], count) for (kind, number), count in change.impact.charges.items())
    charge(state, charges, at.time_ms)
    apply_changes(state, change.impact, change.hold_by_change, at.offset + 1, change.source.earliest_ms)
    state.tombstones.note(change.tombstones, at.offset)
    enqueue_superseded(state, change.superseded, at)
    faults = {command_id: faults_of_agent(state, name, zone) for (name, zone), command_id in change.agents.items()}
    refused = {command_id: command_outcomes.contested(of, at) for command_id, of in faults.items() if of}
    state.command_outcomes.note(refused)


def _edit(state: FleetState, change: EditApplied | EditHeld | EditWithdrawn, at: RecordMetadata) -> None:
    _end_holds(state, change.ended_holds, at, change.approved_by if isinstance(change, EditApplied) else ())
    if isinstance(change, EditApplied):
        apply_edit(state, change.proposal, change.charged, at)
    elif isinstance(change, EditHeld):
        _open_hold(state, change.hold)
        if change.stages is not None:
            state.stage_plans.put(hold_key(change.hold.id), change.stages)


def _open_hold(state: FleetState, hold: Hold) -> None:
    state.holds.put(hold_key(hold.id), hold)
    state.held_names.setdefault(hold.id, {})
    state.clocks.put(LAST_HOLD, max(hold.id, state.clocks.rows.get(LAST_HOLD, 0)))


def _end_holds(state: FleetState, holds: tuple[int, ...], at: RecordMetadata, approved_by: tuple[str, ...]) -> None:
    """End holds of edits. With `approved_by`, the edits were approved; without it, a later command superseded them."""
    if approved_by:
        _end(state, {hold: command_outcomes.approved(hold, approved_by, at) for hold in holds})
    else:
        _end(state, {hold: command_outcomes.overtaken(hold, at) for hold in holds})


def _end(state: FleetState, holds: Mapping[int, CommandOutcome]) -> None:
    for hold in holds:
        state.holds.remove(hold_key(hold))
        state.stage_plans.remove(hold_key(hold))
        state.held_names.pop(hold, None)
    state.command_outcomes.note({hold_key(hold): verdict for hold, verdict in holds.items()})


def _edit_zone(state: FleetState, change: ZoneEdited, at: RecordMetadata) -> None:
    state.ensure_zones((change.zone,), at.offset + 1)
    info = state.zones.rows[change.zone]
    if change.limits != info.limits:
        state.zones.put(change.zone, replace(info, **change.limits._asdict()))
        enqueue_limits(state, change.zone, change.limits, at)
    _edit(state, change.edit, at)
    state.forget_zones((change.zone,))
