"""What one record does to members, decided as a whole: who comes, goes and changes, and what of it must be held.

A `Move` is one node's: the parts of it that were effective and would go, and its new row. All moves of a record are
weighed together, per address: the sets it was in before, the sets it would be in after, and the lists in which it would
lose or gain something. A move is held whole: if one of its addresses takes part in a verdict that is over a budget, the
former state of its node stays, and the new state waits. Each round holds more moves, and with every move held no
verdict changes, so this ends within budget, whatever the policies say.

A change of a node whose last change waits joins what waits, whatever the budgets: otherwise a bulk change that is held
could be made piece by piece, as budgets recover, while two people look at it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from projections.fleet.address_index import Address
from projections.fleet.membership import Member, Part
from projections.fleet.state import FleetState
from projections.fleet.withdrawals import ALLOWED_BY_CHANGE, ALLOWED_BY_JOIN, DENIED_BY_CHANGE, DENIED_BY_LEAVE, Kind


class Move(NamedTuple):
    """What a record does to one node. `kind` is the budget of what it denies, if nothing else takes part.

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
    """Moves, the indices of those that wait, and what the others come to.

    `charges` are the addresses denied or allowed, per kind and list; `over` the lists in which a budget was exceeded,
    with how many addresses, by kind.
    """

    moves: Sequence[Move]
    waits: frozenset[int]
    shifts: Sequence[Shift]
    charges: dict[tuple[Kind, int], int]
    over: dict[tuple[Kind, int], int]


class _Going(NamedTuple):
    """A part of a move's node that would go: the sets it is in, and the budget that pays if nothing else happens."""

    move: int
    bits: int
    kind: Kind


class _Coming(NamedTuple):
    """A new state of a move's node: the sets it would be in, and whether the node is new to the fleet."""

    move: int
    bits: int
    is_new: bool


class _Touch:
    """An address that some moves take part in: its other holders' bits, the parts that would go, those that come."""

    __slots__ = ("ins", "outs", "rest")

    def __init__(self, rest: int) -> None:
        self.rest = rest
        self.outs: list[_Going] = []
        self.ins: list[_Coming] = []

    def moves(self) -> Iterable[int]:
        """The moves that take part, some of them twice."""
        yield from (going.move for going in self.outs)
        yield from (coming.move for coming in self.ins)

    def before(self) -> int:
        bits = self.rest
        for going in self.outs:
            bits |= going.bits
        return bits

    def after(self, waits: Collection[int]) -> int:
        bits = self.rest
        for going in self.outs:
            if going.move in waits:
                bits |= going.bits
        for coming in self.ins:
            if coming.move not in waits:
                bits |= coming.bits
        return bits

    def denied_by(self, waits: Collection[int]) -> Kind:
        """The budget of a verdict that turns to deny here."""
        comes = any(coming.move not in waits for coming in self.ins)
        stated = all(going.kind == DENIED_BY_LEAVE for going in self.outs if going.move not in waits)
        return DENIED_BY_LEAVE if stated and not comes else DENIED_BY_CHANGE

    def allowed_by(self, waits: Collection[int]) -> Kind:
        """The budget of a verdict that turns to allow here."""
        goes = any(going.move not in waits for going in self.outs)
        new = all(coming.is_new for coming in self.ins if coming.move not in waits)
        return ALLOWED_BY_JOIN if new and not goes else ALLOWED_BY_CHANGE


class _Balance:
    """What all moves come to, with those that wait.

    It is brought up to date where more is held. A record can be made that takes a round for each of its nodes, and to
    go through all of them in each would hold up the fold for seconds.
    """

    def __init__(self, state: FleetState, touches: Mapping[Address, _Touch], waits: Iterable[int]) -> None:
        self.waits = set(waits)
        self.counts: Counter[tuple[Kind, int]] = Counter()
        self._plan = state.plan
        self._touches = list(touches.values())
        self.shifts = [Shift(address, touch.before(), 0) for address, touch in touches.items()]
        self._turns: dict[int, tuple[tuple[Kind, int], ...]] = {}
        self._by_move: dict[int, list[int]] = {}
        for number, touch in enumerate(self._touches):
            for move in set(touch.moves()):
                self._by_move.setdefault(move, []).append(number)
            self._weigh_anew(number)

    def hold_more(self, kinds: Collection[Kind]) -> None:
        """Hold the moves that take part in verdicts of these kinds."""
        held = {
            move
            for number, turns in self._turns.items()
            if any(kind in kinds for kind, _ in turns)
            for move in self._touches[number].moves()
        }
        held -= self.waits
        self.waits |= held
        for number in {number for move in held for number in self._by_move[move]}:
            self._weigh_anew(number)

    def _weigh_anew(self, number: int) -> None:
        touch, (address, before, _) = self._touches[number], self.shifts[number]
        for key in self._turns.pop(number, ()):
            self._count(key, -1)
        after = touch.after(self.waits)
        self.shifts[number] = Shift(address, before, after)
        if before == after:
            return
        turns: list[tuple[Kind, int]] = []
        if denied := self._plan.lost(before, after):
            kind = touch.denied_by(self.waits)
            turns += ((kind, of) for of in denied)
        if allowed := self._plan.lost(after, before):
            kind = touch.allowed_by(self.waits)
            turns += ((kind, of) for of in allowed)
        if turns:
            self._turns[number] = tuple(turns)
        for key in turns:
            self._count(key, 1)

    def _count(self, key: tuple[Kind, int], by: int) -> None:
        self.counts[key] += by
        if not self.counts[key]:
            del self.counts[key]


class _Budgets:
    """What may be denied and allowed of each list: the same in every round, and worked out once."""

    def __init__(self, state: FleetState, now_ms: int) -> None:
        self._state = state
        self._now_ms = now_ms
        self._rooms: dict[tuple[Kind, int], int | None] = {}

    def exceeds(self, key: tuple[Kind, int], count: int) -> bool:
        if key not in self._rooms:
            self._rooms[key] = self._state.room(*key, self._now_ms)
        room = self._rooms[key]
        return room is not None and count > room


def weigh(state: FleetState, moves: Sequence[Move], now_ms: int, *, approved: bool = False) -> Weighed:
    """What happens when these moves are made, within the budgets unless it was approved."""
    balance = _Balance(state, _touches(state, moves), () if approved else _joining(state, moves))
    over: dict[tuple[Kind, int], int] = {}
    budgets = _Budgets(state, now_ms)
    while not approved:
        exceeded = [key for key in sorted(balance.counts) if budgets.exceeds(key, balance.counts[key])]
        if not exceeded:
            break
        for key in exceeded:
            over[key] = max(balance.counts[key], over.get(key, 0))
        balance.hold_more({kind for kind, _ in exceeded})
    return Weighed(moves, frozenset(balance.waits), balance.shifts, dict(balance.counts), over)


def _joining(state: FleetState, moves: Sequence[Move]) -> list[int]:
    """Moves of nodes whose last change waits: changes that do not take it back wait, too."""
    return [
        index
        for index, move in enumerate(moves)
        if move.arrives
        and move.after is not None
        and move.before is not None
        and str(move.before.withheld) in state.holds.rows
        and not any(_is_same(part, move.after) for part in move.outs)
    ]


def _is_same(part: Part, after: Member) -> bool:
    return (part.address4, part.address6, part.labels) == (after.address4, after.address6, after.labels)


def _touches(state: FleetState, moves: Sequence[Move]) -> dict[Address, _Touch]:
    slot_table, labels = state.slot_table, state.labels
    touches: dict[Address, _Touch] = {}
    going = {part.slot for move in moves for part in move.outs}

    def touch(address: Address) -> _Touch:
        found = touches.get(address)
        if found is None:
            rest = 0
            for slot in slot_table.address_index.slots_of(address):
                if slot not in going:
                    rest |= labels.bits[slot_table.label[slot]]
            found = touches[address] = _Touch(rest)
        return found

    for index, move in enumerate(moves):
        for part in move.outs:
            entry = _Going(index, labels.bits[slot_table.label[part.slot]], move.kind)
            for address in (part.address4, part.address6):
                if address:
                    touch(address).outs.append(entry)
        if move.after is not None and move.arrives:
            coming = _Coming(index, labels.known(move.after.labels, state.plan), move.before is None)
            for address in (move.after.address4, move.after.address6):
                if address:
                    touch(address).ins.append(coming)
    return touches
