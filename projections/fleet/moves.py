"""What one record does to members, decided as a whole: who comes, goes and changes, and what of it must be held.

A `Move` is one node's: the parts of it that were effective and would go, and its new row. All moves of a record are
weighed together, per address: the sets it was in before, the sets it would be in after, and the lists in which it would
lose something. While a budget is exceeded, what takes part in those losses is held: first the parts that would go are
kept, and if something is still lost, because a newcomer matches a drop policy, the newcomer is withheld; as it is where
its node would have too many parts. Each round holds more and the last possible one holds everything, so this ends,
within budget, whatever the policies say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from projections.fleet.holders import Address
from projections.fleet.membership import Member, Part
from projections.fleet.state import FleetState
from projections.fleet.withdrawals import Kind

MAX_PARTS = 16
"""Former states of a node that are kept while it goes on changing. Beyond, it is its newest that waits: a node that
changes its address over and over while a budget is spent would have one kept for each."""


class Move(NamedTuple):
    """What a record does to one node.

    `outs` are its effective parts that would go, `stays` those that are not touched. `after` is its new row, None if it
    left; `arrives` says that `after` needs a slot (else it keeps the one it names).
    """

    name: str
    kind: Kind
    before: Member | None
    after: Member | None
    outs: tuple[Part, ...]
    stays: tuple[Part, ...]
    arrives: bool


class Shift(NamedTuple):
    """An address that moves from some sets to others."""

    address: Address
    before: int
    after: int


class Weighed(NamedTuple):
    """Moves with what of them is held: slots that stay, moves that are withheld; and what that comes to.

    `charges` are the addresses withdrawn per kind and list; `held` the lists that would have lost too much, with how
    many addresses, by kind.
    """

    moves: Sequence[Move]
    retained: frozenset[int]
    withheld: frozenset[int]
    shifts: Sequence[Shift]
    charges: dict[tuple[Kind, int], int]
    held: dict[tuple[Kind, int], int]


class _Touch:
    """An address that some moves take part in: its other holders' bits, the parts that would go, those that come."""

    __slots__ = ("ins", "outs", "rest")

    def __init__(self, rest: int) -> None:
        self.rest = rest
        self.outs: list[tuple[int, int, Kind]] = []
        self.ins: list[tuple[int, int]] = []

    def before(self) -> int:
        bits = self.rest
        for _, out, _ in self.outs:
            bits |= out
        return bits

    def after(self, retained: set[int], withheld: set[int]) -> int:
        bits = self.rest
        for slot, out, _ in self.outs:
            if slot in retained:
                bits |= out
        for move, coming in self.ins:
            if move not in withheld:
                bits |= coming
        return bits

    def kind(self, retained: set[int], withheld: set[int]) -> Kind:
        """`stated` if nothing but stated leaves takes part in what happens here."""
        comes = any(move not in withheld for move, _ in self.ins)
        asked = all(kind == "stated" for slot, _, kind in self.outs if slot not in retained)
        return "stated" if asked and not comes else "inferred"


class _Loss(NamedTuple):
    """That something is lost at an address: of which kind, and in which lists."""

    kind: Kind
    lists: tuple[int, ...]


class _Balance:
    """What all moves come to, with what is held of them.

    It is brought up to date where more is held. A record can be made that takes a round for each of its nodes, and to
    go through all of them in each would hold up the fold for seconds.
    """

    def __init__(self, state: FleetState, touches: Mapping[Address, _Touch]) -> None:
        self.retained: set[int] = set()
        self.withheld: set[int] = set()
        self.counts: Counter[tuple[Kind, int]] = Counter()
        self._plan = state.plan
        self._touches = list(touches.values())
        self.shifts = [Shift(address, touch.before(), 0) for address, touch in touches.items()]
        self._losses: dict[int, _Loss] = {}
        self._by_slot: dict[int, list[int]] = {}
        self._by_move: dict[int, list[int]] = {}
        for number, touch in enumerate(self._touches):
            for slot, _, _ in touch.outs:
                self._by_slot.setdefault(slot, []).append(number)
            for move, _ in touch.ins:
                self._by_move.setdefault(move, []).append(number)
            self._weigh_anew(number)

    def hold_more(self, kinds: Collection[Kind]) -> None:
        """Hold what takes part in losses of these kinds."""
        altered: set[int] = set()
        for touch in [self._touches[number] for number in sorted(self._losses) if self._losses[number].kind in kinds]:
            going = [slot for slot, _, _ in touch.outs if slot not in self.retained]
            if going:
                self.retained.update(going)
                altered.update(number for slot in going for number in self._by_slot[slot])
            else:
                coming = [move for move, _ in touch.ins if move not in self.withheld]
                self.withheld.update(coming)
                altered.update(number for move in coming for number in self._by_move[move])
        for number in altered:
            self._weigh_anew(number)

    def crowded(self, moves: Sequence[Move]) -> list[int]:
        """Moves whose node would have more parts kept than may be, beside its newcomer."""
        return [
            index
            for index, move in enumerate(moves)
            if len(move.outs) > MAX_PARTS
            and move.arrives
            and index not in self.withheld
            and sum(part.slot in self.retained for part in move.outs) > MAX_PARTS
        ]

    def withhold(self, moves: Collection[int]) -> None:
        """Hold the newcomers of these moves."""
        self.withheld.update(moves)
        for number in {number for move in moves for number in self._by_move.get(move, ())}:
            self._weigh_anew(number)

    def _weigh_anew(self, number: int) -> None:
        touch, (address, before, _) = self._touches[number], self.shifts[number]
        if (former := self._losses.pop(number, None)) is not None:
            self._count(former, -1)
        after = touch.after(self.retained, self.withheld)
        self.shifts[number] = Shift(address, before, after)
        if before != after and (lists := self._plan.lost(before, after)):
            loss = self._losses[number] = _Loss(touch.kind(self.retained, self.withheld), lists)
            self._count(loss, 1)

    def _count(self, loss: _Loss, by: int) -> None:
        for number in loss.lists:
            key = loss.kind, number
            self.counts[key] += by
            if not self.counts[key]:
                del self.counts[key]


class _Budgets:
    """What may be withdrawn of each list: the same in every round, and to add up what a list allows takes longer."""

    def __init__(self, state: FleetState, now_ms: int) -> None:
        self._state = state
        self._now_ms = now_ms
        self._rooms: dict[tuple[Kind, int], int] = {}

    def exceeds(self, key: tuple[Kind, int], count: int) -> bool:
        if key not in self._rooms:
            if not self._state.exceeds(*key, count, self._now_ms):
                return False
            self._rooms[key] = self._state.room(*key, self._now_ms)
        return count > self._rooms[key]


def weigh(state: FleetState, moves: Sequence[Move], now_ms: int, *, approved: bool = False) -> Weighed:
    """What happens when these moves are made, within the budgets unless it was approved."""
    balance = _Balance(state, _touches(state, moves))
    counts, held = balance.counts, dict[tuple[Kind, int], int]()
    budgets = _Budgets(state, now_ms)
    while not approved:
        if over := [key for key in sorted(counts) if budgets.exceeds(key, counts[key])]:
            for key in over:
                held[key] = max(counts[key], held.get(key, 0))
            balance.hold_more({kind for kind, _ in over})
        elif crowded := balance.crowded(moves):
            balance.withhold(crowded)
        else:
            break
    retained, withheld = frozenset(balance.retained), frozenset(balance.withheld)
    return Weighed(moves, retained, withheld, balance.shifts, dict(counts), held)


def _touches(state: FleetState, moves: Sequence[Move]) -> dict[Address, _Touch]:
    roster, labels = state.roster, state.labels
    touches: dict[Address, _Touch] = {}
    going = {part.slot for move in moves for part in move.outs}

    def touch(address: Address) -> _Touch:
        found = touches.get(address)
        if found is None:
            rest = 0
            for slot in roster.holders.of(address):
                if slot not in going:
                    rest |= labels.bits[roster.label[slot]]
            found = touches[address] = _Touch(rest)
        return found

    for index, move in enumerate(moves):
        for part in move.outs:
            entry = (part.slot, labels.bits[roster.label[part.slot]], move.kind)
            for address in (part.address4, part.address6):
                if address:
                    touch(address).outs.append(entry)
        if move.after is not None and move.arrives:
            coming = labels.known(move.after.labels, state.plan)
            for address in (move.after.address4, move.after.address6):
                if address:
                    touch(address).ins.append((index, coming))
    return touches
