"""How a staged change takes effect: at its begin, with each stage, when it is rolled back, and at its end.

A release gives the DPUs of one stage the list with the change, at a version of their own; before it they have the
history of their zone. The release of the last stage and an undo give all concerned DPUs one list, at one common
version. So at the end the cohorts can be dropped: a DPU with that version or a later one has the same content with or
without its cohort. What zones had between the first release and the common version is ambiguous without cohorts, and
is forgotten: a DPU that still has such a version gets the whole table.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from eventstore.folding.fold import RecordMetadata
from projections.fleet.membership.effects import charge
from projections.fleet.policies.edits import Edit, Proposal, switch_plan
from projections.fleet.policies.fleet_zones import key_of_labels
from projections.fleet.staging.rows import CURRENT, StagedChange, cohort_labels
from projections.fleet.state import FleetState
from projections.fleet.withdrawals.budgets import BudgetKind
from projections.fleet.withdrawals.holds import EditStaged
from projections.rules.policies import Policy, Selector
from projections.staging.course import StagedDpus
from projections.staging.decide import ended


def begin(state: FleetState, change: EditStaged, at: RecordMetadata) -> None:
    """Begin a staged change. No DPU gets it yet."""
    if (last := state.staged) is not None and not last.result:
        finish(state, ended(last, at), at)
    edit = change.edit.proposal
    name = edit.edit.policy
    row = StagedChange(
        version=at.offset + 1,
        policy=name,
        before=state.policies.rows.get(name),
        after=next((policy for policy in edit.plan.policies if policy.name == name), None),
        plan=change.stages,
        requested_by=change.requested_by,
        began_ms=at.append_ms,
        since_ms=at.time_ms,
        approved=change.approved,
    )
    state.staged_dpus.remove_all([*state.staged_dpus.rows])
    state.recount_stages()
    state.staged_changes.put(CURRENT, row)


def name_dpus(state: FleetState, rows: dict[str, StagedDpus]) -> None:
    """Add DPUs to the next stage."""
    state.staged_dpus.put_all(rows)
    state.recount_stages()


def release(
    state: FleetState, row: StagedChange, at: RecordMetadata, charged: Iterable[tuple[BudgetKind, str, int]] = ()
) -> None:
    """Release the next stage of the present change. `row` is the change after it."""
    if row.is_everywhere:
        _set_policy(state, row.policy, row.after, at.offset + 1)
        _switch(state, row, _with_cohorts(row, _concerned(state, row)), at)
    else:
        _add_cohorts(state, row, at)
    charge(state, charged, at.time_ms)


def _add_cohorts(state: FleetState, row: StagedChange, at: RecordMetadata) -> None:
    """Give the DPUs of the last released stage the list with the change."""
    concerned = _concerned(state, row)
    cohorts = {cohort_labels(labels, row.stage): labels for labels in concerned}
    for cohort, labels in cohorts.items():
        known = state.list_changes.rows.get(key_of_labels(labels))
        if known is not None:
            state.list_changes.put(key_of_labels(cohort), known)
        state.previous.copy(labels, cohort)
    _switch(state, row, cohorts, at, added=cohorts)


def undo(state: FleetState, row: StagedChange, at: RecordMetadata) -> None:
    """Give all DPUs the policy from before the change. `row` is the change after the undo."""
    if row.is_everywhere:
        _set_policy(state, row.policy, row.before, at.offset + 1)
    _switch(state, row, _with_cohorts(row, _concerned(state, row)), at)


def finish(state: FleetState, row: StagedChange, at: RecordMetadata) -> None:
    """End the present change: drop its cohorts. `row` is the change after its end."""
    assert row.undone_by or row.is_everywhere, "a change ends with all DPUs, or after an undo"
    _switch(state, row, (), at)
    for labels in _concerned(state, row):
        state.previous.cut(labels, row.released[0])


def _concerned(state: FleetState, row: StagedChange) -> list[Selector]:
    return [labels for labels in state.zones.by_labels if row.concerns(dict(labels))]


def _with_cohorts(row: StagedChange, concerned: list[Selector]) -> list[Selector]:
    return [*concerned, *(cohort_labels(labels, stage) for stage in row.cohorts for labels in concerned)]


def _set_policy(state: FleetState, name: str, policy: Policy | None, version: int) -> None:
    if policy is None:
        state.policies.remove(name)
    else:
        state.policies.put(name, replace(policy, version=version))


def _switch(
    state: FleetState,
    row: StagedChange,
    changed: Iterable[Selector],
    at: RecordMetadata,
    added: dict[Selector, Selector] | None = None,
) -> None:
    """Make `row` the present change, and follow it with the plan. `changed` are the label sets with a new version, and
    `added` those that the plan lacks, each with the one whose list it has until now."""
    state.staged_changes.put(CURRENT, row)
    plan = state.plan_for(state.policies.rows.values(), state.plan)
    before = {labels: labels for labels in state.label_sets()} | (added or {})
    moves = {labels: (state.plan.number_for(was), plan.number_for(labels)) for labels, was in before.items()}
    switch_plan(state, Proposal(Edit(policy=row.policy), plan, moves), {}, changed, at)
