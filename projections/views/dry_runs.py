"""Dry runs: the effect of an edit or a leave on the tables of zones. The state is not changed.

The functions that decide a command also compute its effect: the plan under an edit (`propose`), the slots that would be
freed (`evaluate`). A dry run turns that into prefixes, and counts the addresses whose verdict changes. Prefixes alone
mislead: a drop policy adds prefixes to a table and yet denies traffic, and the leave of an address splits the prefix of
its neighbours, whose verdict does not change. `TableEffects` copies the state that must be consistent: the present
covers, and the addresses that would be in each set. Computing covers takes some milliseconds per set, so `effects` is
an iterator that its reader can pause.

Zones whose tables would change in the same way share one effect. A held change is shown as if it were approved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from projections.fleet.membership.joins import MembersChanged
from projections.fleet.policies.edits import Edit, Proposal, edit_impact, propose
from projections.fleet.state import ANY_ZONE, FleetState
from projections.fleet.tables.covers import NO_CHANGE, PrefixChange, covers_of
from projections.fleet.withdrawals.budgets import ALLOWED_BY_CHANGE, DENIAL_KINDS, DENIED_BY_CHANGE
from projections.fleet.withdrawals.holds import EditApplied, EditHeld
from projections.fleet.withdrawals.impact import MemberChange, evaluate
from projections.rules.lists import Plan, SetKey, VerdictCounts
from projections.rules.prefixes import (
    NO_KEYS4,
    NO_KEYS6,
    SIZE4,
    SIZE6,
    Keys,
    cover4,
    cover6,
    diff,
    keys_of,
    pack,
)
from projections.rules.rule import Rule
from projections.zones.rows import NodeTombstone
from schemas.events import Envelope, MembershipChanged

_Picked: TypeAlias = tuple[npt.NDArray[np.uint32], tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]]


class RuleChange(NamedTuple):
    """The prefixes that one rule of a table would gain and lose, and the policies that produce it."""

    rule: Rule
    policy: str
    change: PrefixChange


class ZoneEffect(NamedTuple):
    """The effect on these zones: changed verdicts, and changed prefixes per rule.

    An address that would gain one kind of traffic and lose another counts as allowed and as denied.
    """

    zones: tuple[str, ...]
    verdict_counts: VerdictCounts
    rules: tuple[RuleChange, ...]


class _Side(NamedTuple):
    """The set of one rule, before or after the change: the names of its policies, and either its present cover (`now`)
    or the addresses to be covered (`picked`)."""

    policy: str
    now: PrefixChange | None
    picked: _Picked | None


_ZoneGroup: TypeAlias = tuple[tuple[str, ...], VerdictCounts, Mapping[Rule, tuple[_Side | None, _Side | None]]]
"""Zones, the counts of changed verdicts there, and each rule's set before and after."""


class TableEffects:
    """The effects on tables, copied from the state, per group of zones."""

    def __init__(self, groups: Iterable[_ZoneGroup]) -> None:
        self._groups = list(groups)
        self._covered: dict[int, tuple[Keys, Keys]] = {}

    def effects(self) -> Iterator[ZoneEffect | None]:
        """Yield the effect on each group. Between effects, yield None wherever the reader can pause."""
        for zones, verdict_counts, rules in self._groups:
            changes = []
            for rule, (before, after) in rules.items():
                change = self._change(before, after)
                if any(change):
                    side = after or before
                    assert side is not None, "a rule is on one side at least"
                    changes.append(RuleChange(rule, side.policy, change))
                yield None
            if changes:
                yield ZoneEffect(zones, verdict_counts, tuple(changes))

    def _change(self, before: _Side | None, after: _Side | None) -> PrefixChange:
        if before is not None and after is not None and before.now is after.now and after.picked is None:
            return NO_CHANGE
        (old4, old6), (new4, new6) = self._keys(before), self._keys(after)
        add4, remove4 = diff(old4, new4)
        add6, remove6 = diff(old6, new6)
        return PrefixChange(pack(add4), pack(add6), pack(remove4), pack(remove6))

    def _keys(self, side: _Side | None) -> tuple[Keys, Keys]:
        if side is None:
            return NO_KEYS4, NO_KEYS6
        if side.picked is None:
            assert side.now is not None, "a side without picked prefixes has its present set"
            return keys_of(side.now.add4, SIZE4), keys_of(side.now.add6, SIZE6)
        known = self._covered.get(id(side.picked))
        if known is None:
            four, six = side.picked
            known = (cover4(four) if len(four) else NO_KEYS4, cover6(*six) if len(six[0]) else NO_KEYS6)
            self._covered[id(side.picked)] = known
        return known


class DryRun(NamedTuple):
    """The effect of a change of fleet: the budget that would hold it ("" for none), the highest number of addresses
    that would lose traffic in one list, and the effects on tables."""

    budget: str
    addresses: int
    table_effects: TableEffects

    @classmethod
    def nothing(cls) -> DryRun:
        """The dry run of a change that leaves every table unchanged."""
        return cls("", 0, TableEffects([]))


def of_change(state: FleetState, change: Any, version: int) -> DryRun:
    """The effect on tables of a change that fleet decided. A held change is treated as approved."""
    match change:
        case EditApplied(proposal, charged, _):
            denied = [count for (kind, _), count in charged.items() if kind == DENIED_BY_CHANGE]
            return DryRun("", max(denied, default=0), of_edit(state, proposal))
        case EditHeld(hold):
            edit = Edit(hold.policy, hold.policy_after, hold.zone, hold.labels_after)
            return DryRun(hold.kind, hold.addresses, of_edit(state, propose(state, edit, version)))
        case MembersChanged(_, impact, _, holds, _, _, _):
            denied = [count for (kind, _), count in impact.charges.items() if kind in DENIAL_KINDS]
            most = max(impact.exceeded.values() if holds else denied, default=0)
            return DryRun(holds[0].kind if holds else "", most, of_leaves(state, impact.changes))
    return DryRun.nothing()


def leave_of(
    tombstones: Mapping[str, NodeTombstone], partition: int, mark: int, envelope: Envelope
) -> MembershipChanged:
    """A forward that contains only these leaves."""
    return MembershipChanged(
        envelope=envelope,
        cause_partition=partition,
        from_offset=mark,
        to_offset=mark + 1,
        earliest_ms=envelope.issued_at_ms,
        zones=[row.zone for row in tombstones.values()],
        names=[*tombstones],
        states=[row.state for row in tombstones.values()],
        created_ms=[row.created_ms for row in tombstones.values()],
        uids=[row.uid for row in tombstones.values()],
        addresses4=b"",
        addresses6=b"",
        label_sets=[],
        label_index=[],
        changed_ms=[row.changed_ms for row in tombstones.values()],
        last_present_ms=[row.last_present_ms for row in tombstones.values()],
    )


def of_edit(state: FleetState, proposal: Proposal) -> TableEffects:
    """The dry run of an edit, for DPUs without a staged change."""
    proposal = proposal.without_cohorts()
    old, new = state.plan, proposal.plan
    read = {bit for was, _ in proposal.pairs() for bit in old.set_bits(was)}
    had = dict(zip(old.keys, _contents(state, read), strict=True))
    fresh = _picked_under(state, new, [key for key in new.keys if key not in had or had[key] is None])
    verdict_counts = edit_impact(state, proposal)
    groups: dict[tuple[int, int], list[str]] = {}
    for name, pair in sorted(proposal.by_zone(state.zones)):
        if name != ANY_ZONE and old.lists[pair[0]] != new.lists[pair[1]]:
            groups.setdefault(pair, []).append(name)

    def group(zones: list[str], was: int, becomes: int) -> _ZoneGroup:
        labels = state.zone(zones[0]).labels
        edit = proposal.edit
        labels_after = edit.labels_after if edit.labels_after is not None and zones[0] == edit.zone else labels
        before = {
            key.rule: _Side(policy, had[key], None)
            for key, policy in zip(old.lists[was], old.names_of(labels), strict=True)
        }
        after = {
            key.rule: _Side(policy, had.get(key), fresh.get(key))
            for key, policy in zip(new.lists[becomes], new.names_of(labels_after), strict=True)
        }
        pair = was, becomes
        counted = VerdictCounts(
            denied=verdict_counts[DENIED_BY_CHANGE, pair], allowed=verdict_counts[ALLOWED_BY_CHANGE, pair]
        )
        return tuple(zones), counted, {rule: (before.get(rule), after.get(rule)) for rule in {**before, **after}}

    return TableEffects([group(zones, *pair) for pair, zones in groups.items()])


def of_leaves(state: FleetState, moves: Sequence[MemberChange]) -> TableEffects:
    """The dry run of a leave of these nodes, as if no hold applied."""
    slots = {part.slot for move in moves for part in move.removed}
    tombstones = np.zeros(len(state.slot_table.label), np.bool_)
    tombstones[list(slots)] = True
    numbers = {state.slot_table.label[slot] for slot in slots}
    bits = {bit for bit in range(len(state.sets)) if any(state.labels.bits[number] >> bit & 1 for number in numbers)}
    contents = _contents(state, bits)
    picked = {bit: _addresses(state, state.slot_table.in_set(bit) & ~tombstones) for bit in sorted(bits)}
    shifts = Counter((before, after) for _, before, after in evaluate(state, moves, 0, approved=True).shifts)
    lists: dict[int, list[str]] = {}
    for labels, zones in sorted(state.zones.by_labels.items()):
        lists.setdefault(state.plan.number_for(labels), []).extend(zones)

    def group(number: int, zones: list[str]) -> _ZoneGroup:
        named = zip(state.plan.set_bits(number), state.plan.names_of(state.zone(zones[0]).labels), strict=True)
        return (
            tuple(zones),
            _turned(state.plan, number, shifts),
            {
                state.plan.keys[bit].rule: (_Side(policy, contents[bit], None), _Side(policy, None, picked[bit]))
                for bit, policy in named
                if bit in bits
            },
        )

    return TableEffects([group(number, sorted(zones)) for number, zones in lists.items() if zones])


def _turned(plan: Plan, number: int, shifts: Mapping[tuple[int, int], int]) -> VerdictCounts:
    """The number of verdicts that change in a list. `shifts` counts addresses by their sets before and after."""
    allowed = denied = 0
    for (before, after), count in shifts.items():
        had, becomes = plan.allows(number, before), plan.allows(number, after)
        allowed += count if becomes & ~had else 0
        denied += count if had & ~becomes else 0
    return VerdictCounts(denied, allowed)


def _contents(state: FleetState, bits: Iterable[int]) -> list[PrefixChange | None]:
    """The present content of the sets with these bits; None for every other set. The index in the result is the set's
    bit."""
    contents: list[PrefixChange | None] = [None] * len(state.sets)
    for bit in sorted(bits):
        contents[bit] = covers_of(state).at(state, bit).content()
    return contents


def _picked_under(state: FleetState, plan: Plan, keys: Iterable[SetKey]) -> dict[SetKey, _Picked]:
    """The addresses that would be in these sets of another plan."""
    wanted = [(key, plan.keys.index(key)) for key in keys]
    if not wanted:
        return {}
    label = np.asarray(state.slot_table.label, np.int32)
    bits = [0] * len(state.labels.bits)
    for number in state.labels.uses():
        bits[number] = plan.bits_of(state.labels.sets[number])
    found = {}
    for key, bit in wanted:
        inside = np.array([value >> bit & 1 for value in (*bits, 0)], np.bool_)  # a free slot (-1) reads the last 0
        found[key] = _addresses(state, inside[label])
    return found


def _addresses(state: FleetState, picked: npt.NDArray[np.bool_]) -> _Picked:
    return state.slot_table.addresses4(picked), state.slot_table.addresses6(picked)
