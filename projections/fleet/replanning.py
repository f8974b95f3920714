"""Edits of policies and of zones' labels: what they would do to every zone's list, and doing it.

An edit is first proposed: the plan under it, and for each zone the list it has and the list it would have. What turns
from allow to deny is counted over label sets, not addresses: the same cost for a thousand nodes as for a million.
Switching to the new plan keeps every set that stays in some list, with its cover and history; a zone whose list became
another gets a new version, and remembers the former list so that a delta can still start from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from eventstore.folding.fold import At
from projections.fleet.effects import charge
from projections.fleet.rulesets import LEAST_HISTORY_BYTES, RuleSet
from projections.fleet.state import ANY_ZONE, MAX_FORMER, FleetState, Former, SetRow, ZoneInfo, window_key
from projections.fleet.withdrawals import EMPTY, KINDS, Window, merged
from projections.rules.lists import Plan, turned
from projections.rules.policies import BUILT_IN, DEFAULT, Policy, selector


class Edit(NamedTuple):
    """A change of one policy (None after: it is deleted), or of one zone's labels."""

    policy: str = ""
    policy_after: Policy | None = None
    zone: str = ANY_ZONE
    labels_after: dict[str, str] | None = None


class Proposal(NamedTuple):
    """An edit with the plan under it, and each zone's list now and then, by number."""

    edit: Edit
    plan: Plan
    moves: Mapping[str, tuple[int, int]]


def propose(state: FleetState, edit: Edit, version: int) -> Proposal:
    """What an edit at `version` would lead to."""
    policies = dict(state.policies.rows)
    if edit.policy_after is not None:
        policies[edit.policy] = replace(edit.policy_after, version=version)
    elif edit.policy == DEFAULT:
        policies[DEFAULT] = replace(BUILT_IN, version=version)
    else:
        policies.pop(edit.policy, None)
    labels: dict[str, dict[str, str]] = {ANY_ZONE: {}}
    labels.update((name, zone.labels) for name, zone in state.zones.rows.items())
    after = labels if edit.labels_after is None else labels | {edit.zone: edit.labels_after}
    plan = Plan(policies.values(), {selector(found) for found in after.values()}, state.plan)
    moves = {
        name: (state.plan.number_of(labels.get(name, {})), plan.number_of(becomes)) for name, becomes in after.items()
    }
    return Proposal(edit, plan, moves)


def losses(state: FleetState, proposal: Proposal) -> dict[tuple[int, int], int]:
    """Addresses that would lose something, per move of zones from one list to another."""
    old, new = state.plan, proposal.plan
    pairs = {(was, becomes) for was, becomes in proposal.moves.values() if old.lists[was] != new.lists[becomes]}
    if not pairs:
        return {}
    becoming = {number: new.bits_of(state.labels.sets[number]) for number in state.labels.uses()}
    held: Counter[tuple[int, int]] = Counter()
    for numbers, count in state.roster.count_by_labels().items():
        before = after = 0
        for number in numbers:
            before |= state.labels.bits[number]
            after |= becoming[number]
        held[before, after] += count
    return turned(old, new, pairs, held)


def switch(state: FleetState, proposal: Proposal, lost: Mapping[tuple[int, int], int], at: At) -> None:
    """Make an edit; `lost` of it is charged to the budget."""
    edit, old, new = proposal.edit, state.plan, proposal.plan
    if edit.policy:
        after = next((policy for policy in new.policies if policy.name == edit.policy), None)
        state.policies.remove(edit.policy) if after is None else state.policies.put(edit.policy, after)
    if edit.labels_after is not None:
        state.hear_of((edit.zone,), at.offset + 1)
        labelled = replace(state.zones.rows[edit.zone], labels=edit.labels_after, labelled=at.offset + 1)
        state.zones.put(edit.zone, labelled)
    _carry_windows(state, proposal, lost, at)
    before = state.sets
    _switch_sets(state, new, SetRow(at.offset + 1, at.append_ms))
    for name, (was, becomes) in sorted(proposal.moves.items()):
        if old.lists[was] != new.lists[becomes]:
            _move_zone(state, name, old.ids[was], tuple(before[bit] for bit in old.set_bits(was)), at)
    _forget_retired(state)


def _carry_windows(state: FleetState, proposal: Proposal, lost: Mapping[tuple[int, int], int], at: At) -> None:
    old, new = state.plan, proposal.plan
    carried: dict[str, list[Window]] = {}
    charges: dict[str, int] = {}
    for was, becomes in sorted(set(proposal.moves.values())):
        for kind in KINDS:
            windows = carried.setdefault(window_key(kind, new.ids[becomes]), [])
            windows.append(state.windows.rows.get(window_key(kind, old.ids[was]), EMPTY))
        list_id = new.ids[becomes]
        charges[list_id] = max(charges.get(list_id, 0), lost.get((was, becomes), 0))
    for key in sorted(state.windows.rows.keys() - carried.keys()):
        state.windows.remove(key)
    for key, windows in carried.items():
        window = merged(windows, at.time_ms)
        if window != state.windows.rows.get(key, EMPTY):
            state.windows.put(key, window)
    charge(state, ((KINDS[0], list_id, count) for list_id, count in charges.items() if count), at.time_ms)


def _switch_sets(state: FleetState, plan: Plan, fresh: SetRow) -> None:
    """Keep the sets that stay; those that go take in what is pending while it can still be told."""
    had = {found.key: (bit, found) for bit, found in enumerate(state.sets)}
    for key in state.plan.keys:
        bit, found = had[key]
        if key not in plan.keys:
            state.set_rows.remove(found.text)
            if found.is_read():
                found.bring_up(state.roster, bit)
                state.retired.append(found)
    sets: list[RuleSet] = []
    for key in plan.keys:
        if key in had:
            sets.append(had[key][1])
            continue
        made = state.new_set(key, fresh)
        state.set_rows.put(made.text, fresh)
        sets.append(made)
    changed = plan.keys != state.plan.keys
    state.plan, state.sets = plan, tuple(sets)
    if changed:
        state.labels.replan(plan)
        state.recount()


def _move_zone(state: FleetState, name: str, list_id: str, sets: tuple[RuleSet, ...], at: At) -> None:
    rows = state.unheard if name == ANY_ZONE else state.zones
    zone: ZoneInfo = rows.rows[name]
    version = at.offset + 1
    former = Former(zone.moved, version, list_id, sets)
    state.trails[name] = (*state.trails.get(name, ()), former)[-MAX_FORMER:]
    rows.put(name, replace(zone, moved=version, moved_ms=at.append_ms))


def _forget_retired(state: FleetState) -> None:
    """Sets of former lists never hold more than those of present lists do."""
    most = max(LEAST_HISTORY_BYTES, sum(found.bytes() for found in state.sets))
    held = sum(found.bytes() for found in state.retired)
    while held > most:
        oldest = state.retired.popleft()
        held -= oldest.bytes()
        oldest.forget()
