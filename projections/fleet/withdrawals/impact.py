"""The impact of one record on verdicts: which members it changes, and which of these changes must be held.

A `MemberChange` is about one node: its reachable states that would go, and its new row. All changes of a record are
evaluated together, per address: the rule sets that hold the address before and after, and the lists in which it would
lose or gain traffic. A change is held as a whole: if a verdict change of one of its addresses counts against an
exceeded budget, the previous state of the node stays reachable, and its new state waits. The changes are evaluated in
rounds, and each round holds more of them. If all changes are held, no verdict changes, so the rounds end within the
budgets, whatever the policies say.

While a hold delays the new state of a node, any further new state of the node is held too, whatever the budgets.
Otherwise a held bulk change could be made piece by piece, as budgets recover, while two people look at it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from projections.fleet.membership.address_index import Address
from projections.fleet.membership.rows import Member, ReachableState
from projections.fleet.state import FleetState
from projections.fleet.withdrawals.budgets import (
    ALLOWED_BY_CHANGE,
    ALLOWED_BY_JOIN,
    DENIED_BY_CHANGE,
    DENIED_BY_LEAVE,
    BudgetKind,
)


class MemberChange(NamedTuple):
    """The change of one node by a record. `kind` is the budget that counts its denials if no other change concerns the
    same address.

    `removed` are reachable states that would go, `untouched` those that stay in any case. `after` is the new row, None
    if the node left. `needs_slot` says that `after` needs a slot; otherwise it keeps the slot that it names.
    """

    name: str
    kind: BudgetKind
    before: Member | None
    after: Member | None
    removed: tuple[ReachableState, ...]
    untouched: tuple[ReachableState, ...]
    needs_slot: bool


class AddressShift(NamedTuple):
    """An address, and the rule sets that hold it before and after, one bit per set."""

    address: Address
    before: int
    after: int


class Impact(NamedTuple):
    """The effect of some changes. `held` has the indices of the held changes, and `shifts` has the addresses that
    the changes concern, with the rule sets before and after the remaining changes.

    `charges` has the number of addresses denied or allowed, per kind and list. `exceeded` has the kinds and lists whose
    budget was exceeded, with the number of addresses.
    """

    changes: Sequence[MemberChange]
    held: frozenset[int]
    shifts: Sequence[AddressShift]
    charges: dict[tuple[BudgetKind, int], int]
    exceeded: dict[tuple[BudgetKind, int], int]


class _RemovedState(NamedTuple):
    """A reachable state that would go: the sets that hold it, and the budget that counts its denial if no other change
    concerns the address."""

    change: int
    bits: int
    kind: BudgetKind


class _AddedState(NamedTuple):
    """A new state of a node: the sets that would hold it, and whether the node is new to the fleet."""

    change: int
    bits: int
    is_new: bool


class _AddressImpact:
    """One address: the sets that hold it for other nodes, the removed states, and the added states."""

    __slots__ = ("added", "removed", "rest")

    def __init__(self, rest: int) -> None:
        self.rest = rest
        self.removed: list[_RemovedState] = []
        self.added: list[_AddedState] = []

    def changes(self) -> Iterable[int]:
        """The changes that remove or add a state with this address. A change with several such states occurs several
        times."""
        yield from (removed.change for removed in self.removed)
        yield from (added.change for added in self.added)

    def before(self) -> int:
        bits = self.rest
        for removed in self.removed:
            bits |= removed.bits
        return bits

    def after(self, held: Collection[int]) -> int:
        bits = self.rest
        for removed in self.removed:
            if removed.change in held:
                bits |= removed.bits
        for added in self.added:
            if added.change not in held:
                bits |= added.bits
        return bits

    def denied_by(self, held: Collection[int]) -> BudgetKind:
        """The budget that counts this address if a list begins to deny it."""
        comes = any(added.change not in held for added in self.added)
        stated = all(removed.kind == DENIED_BY_LEAVE for removed in self.removed if removed.change not in held)
        return DENIED_BY_LEAVE if stated and not comes else DENIED_BY_CHANGE

    def allowed_by(self, held: Collection[int]) -> BudgetKind:
        """The budget that counts this address if a list begins to allow it."""
        goes = any(removed.change not in held for removed in self.removed)
        new = all(added.is_new for added in self.added if added.change not in held)
        return ALLOWED_BY_JOIN if new and not goes else ALLOWED_BY_CHANGE


class _Totals:
    """The verdict changes by all changes that are not held.

    A round updates only the addresses of the changes that it holds. A hostile record can need a round for each of its
    nodes: a pass over all addresses in each round would stop the fold for seconds.
    """

    def __init__(self, state: FleetState, impacts: Mapping[Address, _AddressImpact], held: Iterable[int]) -> None:
        self.held = set(held)
        self.counts: Counter[tuple[BudgetKind, int]] = Counter()
        self._plan = state.plan
        self._address_impacts = list(impacts.values())
        self.shifts = [AddressShift(address, impact_of.before(), 0) for address, impact_of in impacts.items()]
        self._turns: dict[int, tuple[tuple[BudgetKind, int], ...]] = {}
        self._by_change: dict[int, list[int]] = {}
        for number, impact_of in enumerate(self._address_impacts):
            for change in set(impact_of.changes()):
                self._by_change.setdefault(change, []).append(number)
            self._recompute(number)

    def hold_more(self, kinds: Collection[BudgetKind]) -> None:
        """Hold every change that affects an address with a verdict change of one of these kinds."""
        held = {
            change
            for number, turns in self._turns.items()
            if any(kind in kinds for kind, _ in turns)
            for change in self._address_impacts[number].changes()
        }
        held -= self.held
        self.held |= held
        for number in {number for change in held for number in self._by_change[change]}:
            self._recompute(number)

    def _recompute(self, number: int) -> None:
        impact_of, (address, before, _) = self._address_impacts[number], self.shifts[number]
        for key in self._turns.pop(number, ()):
            self._count(key, -1)
        after = impact_of.after(self.held)
        self.shifts[number] = AddressShift(address, before, after)
        if before == after:
            return
        turns: list[tuple[BudgetKind, int]] = []
        if denied := self._plan.lost(before, after):
            kind = impact_of.denied_by(self.held)
            turns += ((kind, of) for of in denied)
        if allowed := self._plan.lost(after, before):
            kind = impact_of.allowed_by(self.held)
            turns += ((kind, of) for of in allowed)
        if turns:
            self._turns[number] = tuple(turns)
        for key in turns:
            self._count(key, 1)

    def _count(self, key: tuple[BudgetKind, int], by: int) -> None:
        self.counts[key] += by
        if not self.counts[key]:
            del self.counts[key]


class _BudgetLimits:
    """The remaining budget of each list for denials and allowances: constant over the rounds, and computed once."""

    def __init__(self, state: FleetState, now_ms: int) -> None:
        self._state = state
        self._now_ms = now_ms
        self._remaining: dict[tuple[BudgetKind, int], int | None] = {}

    def exceeds(self, key: tuple[BudgetKind, int], count: int) -> bool:
        if key not in self._remaining:
            self._remaining[key] = self._state.budget_remaining(*key, self._now_ms)
        remaining = self._remaining[key]
        return remaining is not None and count > remaining


def evaluate(state: FleetState, changes: Sequence[MemberChange], now_ms: int, *, approved: bool = False) -> Impact:
    """The impact of these changes: those over a budget are held, unless they were approved."""
    balance = _Totals(
        state, _address_impacts(state, changes), () if approved else _joining_held_changes(state, changes)
    )
    exceeded: dict[tuple[BudgetKind, int], int] = {}
    budgets = _BudgetLimits(state, now_ms)
    while not approved:
        over_now = [key for key in sorted(balance.counts) if budgets.exceeds(key, balance.counts[key])]
        if not over_now:
            break
        for key in over_now:
            exceeded[key] = max(balance.counts[key], exceeded.get(key, 0))
        balance.hold_more({kind for kind, _ in over_now})
    return Impact(changes, frozenset(balance.held), balance.shifts, dict(balance.counts), exceeded)


def _joining_held_changes(state: FleetState, changes: Sequence[MemberChange]) -> list[int]:
    """The changes that are held because an open hold delays the last state of their node. A change that returns the
    node to its state in effect is not among them."""
    return [
        index
        for index, change in enumerate(changes)
        if change.needs_slot
        and change.after is not None
        and change.before is not None
        and str(change.before.delayed_by) in state.holds.rows
        and not any(_is_same(part, change.after) for part in change.removed)
    ]


def _is_same(part: ReachableState, after: Member) -> bool:
    return (part.address4, part.address6, part.labels) == (after.address4, after.address6, after.labels)


def _address_impacts(state: FleetState, changes: Sequence[MemberChange]) -> dict[Address, _AddressImpact]:
    slot_table, labels = state.slot_table, state.labels
    addresses = slot_table.address_index
    impacts: dict[Address, _AddressImpact] = {}
    removed = {part.slot for change in changes for part in change.removed}

    def impact_of(address: Address, holder: int = -1) -> _AddressImpact:
        """The impact on an address. `holder`, if given, is the slot that holds it."""
        found = impacts.get(address)
        if found is None:
            rest = 0
            for slot in addresses.slots_of(address) if holder < 0 else addresses.shared.get(address, ()):
                if slot not in removed:
                    rest |= labels.bits[slot_table.label[slot]]
            found = impacts[address] = _AddressImpact(rest)
        return found

    for index, change in enumerate(changes):
        for part in change.removed:
            entry = _RemovedState(index, labels.bits[slot_table.label[part.slot]], change.kind)
            for address in (part.address4, part.address6):
                if address:
                    impact_of(address, part.slot).removed.append(entry)
        if change.after is not None and change.needs_slot:
            added = _AddedState(index, labels.known(change.after.labels, state.plan), change.before is None)
            for address in (change.after.address4, change.after.address6):
                if address:
                    impact_of(address).added.append(added)
    return impacts
