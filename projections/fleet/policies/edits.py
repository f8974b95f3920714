"""Edits of policies and of zones' labels: their impact on every zone's list, and how they are applied.

An edit is first proposed. The proposal has the plan that the edit would lead to. For each label set of zones, it also
has the present list and the next list of these zones. Verdict changes are counted over label sets of nodes, so an edit
costs the same for a thousand nodes and zones as for a million. The new plan retains every set that stays in some list,
with its cover and history. Zones whose list changes get a new version, and their previous list is retained so that a
delta can still start from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from eventstore.folding.fold import RecordMetadata
from projections.fleet.membership.effects import charge
from projections.fleet.policies.fleet_zones import (
    NO_LIST_CHANGE,
    FleetZones,
    ListChange,
    PreviousList,
    key_of_labels,
    labels_of_key,
)
from projections.fleet.state import ALL_MEMBERS, ANY_ZONE, FleetState, SetRow, window_key
from projections.fleet.tables.rulesets import RuleSet
from projections.fleet.withdrawals.budgets import (
    ALLOWED_BY_CHANGE,
    BUDGET_KINDS,
    DENIED_BY_CHANGE,
    EMPTY_WINDOW,
    BudgetKind,
    BudgetWindow,
    merged_windows,
)
from projections.fleet.withdrawals.settled_levels import NO_LEVELS, LevelHistory, merged_levels
from projections.rules.lists import Plan, count_verdict_changes, is_cohort
from projections.rules.policies import BUILT_IN, DEFAULT, Policy, Selector, selector

ListPair: TypeAlias = tuple[int, int]
"""The list that zones have, as its number in the present plan, and the list that replaces it, as its number in the plan
of the edit."""


class Edit(NamedTuple):
    """A change of one policy, or of the labels of one zone. `policy_after` is None if the policy is deleted."""

    policy: str = ""
    policy_after: Policy | None = None
    zone: str = ANY_ZONE
    labels_after: dict[str, str] | None = None


class Proposal(NamedTuple):
    """An edit, the plan that it would lead to, and the lists that zones would change from and to, by number.

    `list_changes` has the change of list per label set of zones. `own_change` is the change of the one zone whose
    labels are edited.
    """

    edit: Edit
    plan: Plan
    list_changes: Mapping[Selector, ListPair]
    own_change: ListPair | None = None

    def pairs(self) -> set[ListPair]:
        """All changes of zones from one list to another, or to the same one."""
        return {*self.list_changes.values(), *([self.own_change] if self.own_change is not None else [])}

    def without_cohorts(self) -> Proposal:
        """The proposal for DPUs without a staged change."""
        kept = {labels: pair for labels, pair in self.list_changes.items() if not is_cohort(labels)}
        return self._replace(list_changes=kept)

    def by_zone(self, zones: FleetZones) -> Iterator[tuple[str, ListPair]]:
        """The change of each zone, ANY_ZONE included, in no particular order. A zone with cohorts has one for each."""
        yield ANY_ZONE, self.list_changes[()]
        for labels, pair in self.list_changes.items():
            yield from (
                (name, pair) for name in zones.with_labels(labels) if self.own_change is None or name != self.edit.zone
            )
        if self.own_change is not None:
            yield self.edit.zone, self.own_change


def propose(state: FleetState, edit: Edit, version: int) -> Proposal:
    """The proposal of an edit at `version`."""
    policies = dict(state.policies.rows)
    if edit.policy_after is not None:
        policies[edit.policy] = replace(edit.policy_after, version=version)
    elif edit.policy == DEFAULT:
        policies[DEFAULT] = replace(BUILT_IN, version=version)
    else:
        policies.pop(edit.policy, None)
    if edit.labels_after is None:
        plan = state.plan_for(policies.values(), state.plan)
        return Proposal(edit, plan, _list_changes(state, plan, state.label_sets()))
    before, after = state.zone(edit.zone).labels, edit.labels_after
    label_sets = [
        labels
        for labels, zones in state.zones.by_labels.items()
        if not labels or labels != selector(before) or len(zones) > 1
    ]
    plan = Plan(policies.values(), [*label_sets, selector(after)], state.plan)
    own = state.plan.number_of(before), plan.number_of(after)
    return Proposal(edit, plan, _list_changes(state, plan, label_sets), own)


def _list_changes(state: FleetState, plan: Plan, label_sets: Iterable[Selector]) -> dict[Selector, ListPair]:
    """The change of list of each of these label sets, which both plans have."""
    return {labels: (state.plan.number_for(labels), plan.number_for(labels)) for labels in label_sets}


EditImpact: TypeAlias = Mapping[tuple[BudgetKind, ListPair], int]
"""The number of addresses that an edit denies or allows, by budget and by change of list."""


def edit_impact(state: FleetState, proposal: Proposal) -> EditImpact:
    """The verdict changes that an edit would cause."""
    old, new = state.plan, proposal.plan
    pairs = {(was, becomes) for was, becomes in proposal.pairs() if old.lists[was] != new.lists[becomes]}
    if not pairs:
        return {}
    becoming = {number: new.bits_of(state.labels.sets[number]) for number in state.labels.uses()}
    held: Counter[tuple[int, int]] = Counter()
    for numbers, count in state.slot_table.count_by_labels().items():
        before = after = 0
        for number in numbers:
            before |= state.labels.bits[number]
            after |= becoming[number]
        held[before, after] += count
    found = count_verdict_changes(old, new, pairs, held)
    counts: dict[tuple[BudgetKind, ListPair], int] = {}
    for pair, by_verdict in found.items():
        counts[DENIED_BY_CHANGE, pair] = by_verdict.denied
        counts[ALLOWED_BY_CHANGE, pair] = by_verdict.allowed
    return counts


def apply_edit(state: FleetState, proposal: Proposal, charged: EditImpact, at: RecordMetadata) -> None:
    """Apply an edit. `charged` is the part of its impact that counts against the budgets."""
    edit, old, new = proposal.edit, state.plan, proposal.plan
    if edit.policy:
        after = next((policy for policy in new.policies if policy.name == edit.policy), None)
        state.policies.remove(edit.policy) if after is None else state.policies.put(edit.policy, after)
    changed = [labels for labels, pair in proposal.list_changes.items() if old.lists[pair[0]] != new.lists[pair[1]]]
    switch_plan(state, proposal, charged, changed, at)


def switch_plan(
    state: FleetState, proposal: Proposal, charged: EditImpact, changed: Iterable[Selector], at: RecordMetadata
) -> None:
    """Make the plan of a proposal the present one. `changed` are the label sets that get a new table version."""
    edit, old, new = proposal.edit, state.plan, proposal.plan
    _carry_windows(state, proposal, charged, at)
    before = state.sets
    for labels in sorted(changed):
        was, _ = proposal.list_changes[labels]
        _change_list(state, labels, old.ids[was], tuple(before[bit] for bit in old.set_bits(was)), at)
    if proposal.own_change is not None:
        state.ensure_zones((edit.zone,), at.offset + 1)
        _label_zone(state, proposal, tuple(before[bit] for bit in old.set_bits(proposal.own_change[0])), at)
    _switch_sets(state, new, SetRow(at.offset + 1, at.append_ms))
    label_sets = {*state.label_sets()}
    for key in [key for key in state.list_changes.rows if labels_of_key(key) not in label_sets]:
        state.list_changes.remove(key)
    state.previous.keep(label_sets)


def _carry_windows(state: FleetState, proposal: Proposal, charged: EditImpact, at: RecordMetadata) -> None:
    old, new = state.plan, proposal.plan
    _carry_levels(state, proposal)
    carried: dict[str, list[BudgetWindow]] = {}
    charges: dict[tuple[BudgetKind, str], int] = {}
    for was, becomes in sorted(proposal.pairs()):
        for kind in BUDGET_KINDS:
            windows = carried.setdefault(window_key(kind, new.ids[becomes]), [])
            windows.append(state.windows.rows.get(window_key(kind, old.ids[was]), EMPTY_WINDOW))
    for (kind, (_, becomes)), count in charged.items():
        key = kind, new.ids[becomes]
        charges[key] = max(charges.get(key, 0), count)
    for row in sorted(state.windows.rows.keys() - carried.keys()):
        state.windows.remove(row)
    for row, windows in carried.items():
        window = merged_windows(windows, at.time_ms)
        if window != state.windows.rows.get(row, EMPTY_WINDOW):
            state.windows.put(row, window)
    charge(state, ((*key, count) for key, count in sorted(charges.items()) if count), at.time_ms)


def _carry_levels(state: FleetState, proposal: Proposal) -> None:
    """Give each list of the new plan the merged level history of the lists that its zones had. So zones gain no budget
    by moving to another list."""
    old, new = state.plan, proposal.plan
    carried: dict[str, list[LevelHistory]] = {}
    for was, becomes in sorted(proposal.pairs()):
        carried.setdefault(new.ids[becomes], []).append(state.levels.rows.get(old.ids[was], NO_LEVELS))
    for key in sorted(state.levels.rows.keys() - carried.keys() - {ALL_MEMBERS}):
        state.levels.remove(key)
    for key, histories in carried.items():
        levels = merged_levels(histories)
        if levels != state.levels.rows.get(key, NO_LEVELS):
            state.levels.put(key, levels)


def _switch_sets(state: FleetState, plan: Plan, fresh: SetRow) -> None:
    """Make this plan the present one. A set that both plans have is kept, with its cover and history; any other set of
    the plan is new, with `fresh` as its row."""
    had = {found.key: found for found in state.sets}
    for key in state.plan.keys:
        if key not in plan.keys:
            state.set_rows.remove(had[key].text)
    sets: list[RuleSet] = []
    for key in plan.keys:
        if key in had:
            sets.append(had[key])
            continue
        made = state.new_set(key, fresh)
        state.set_rows.put(made.text, fresh)
        sets.append(made)
    changed = plan.keys != state.plan.keys
    state.plan, state.sets = plan, tuple(sets)
    if changed:
        state.labels.replan(plan)
    state.recount()


def _change_list(
    state: FleetState, labels: Selector, list_id: str, sets: tuple[RuleSet, ...], at: RecordMetadata
) -> None:
    """Give zones with these labels another list; `list_id` and `sets` are those of their former list."""
    key, version = key_of_labels(labels), at.offset + 1
    state.previous.add(
        labels, PreviousList(state.list_changes.rows.get(key, NO_LIST_CHANGE).version, version, list_id, sets)
    )
    state.list_changes.put(key, ListChange(version, at.append_ms))


def _label_zone(state: FleetState, proposal: Proposal, sets: tuple[RuleSet, ...], at: RecordMetadata) -> None:
    """Give a zone the labels of an edit; `sets` are those of its former list."""
    edit, pair, version = proposal.edit, proposal.own_change, at.offset + 1
    assert edit.labels_after is not None
    assert pair is not None
    zone, change, previous = edit.zone, state.list_change(edit.zone), state.previous_lists(edit.zone)
    if state.plan.lists[pair[0]] != proposal.plan.lists[pair[1]]:
        previous = (*previous, PreviousList(change.version, version, state.plan.ids[pair[0]], sets))
        change = ListChange(version, at.append_ms)
    state.previous.label(zone, previous)
    info = state.zones.rows[zone]
    labelled = replace(
        info,
        labels=edit.labels_after,
        labels_version=version,
        list_version=change.version,
        list_since_ms=change.time_ms,
    )
    state.zones.put(zone, labelled)
