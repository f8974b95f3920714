"""What one record does to members, decided as a whole: who comes, goes and changes, and what of it must be held.

A `Move` is one node's: the parts of it that were effective and would go, and its new row. All moves of a record are
weighed together, per address: the sets it was in before, the sets it would be in after, and the lists in which it would
lose something. While a budget is exceeded, what takes part in those losses is held: first the parts that would go are
kept, and if something is still lost, because a newcomer matches a drop policy, the newcomer is withheld. Each round
holds more and the last possible one holds everything, so this ends, within budget, whatever the policies say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from projections.fleet_state import FleetState
from projections.holders import Address
from projections.membership import Member, Part
from projections.withdrawals import Kind


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


def weigh(state: FleetState, moves: Sequence[Move], now_ms: int, *, approved: bool = False) -> Weighed:
    """What happens when these moves are made, within the budgets unless it was approved."""
    touches = _touches(state, moves)
    retained: set[int] = set()
    withheld: set[int] = set()
    held: dict[tuple[Kind, int], int] = {}
    while True:
        shifts = [Shift(address, touch.before(), touch.after(retained, withheld)) for address, touch in touches.items()]
        losing = _losing(state, touches, shifts, retained, withheld)
        counts = Counter((kind, number) for _, kind, lists in losing for number in lists)
        over = [] if approved else [key for key in sorted(counts) if state.exceeds(*key, counts[key], now_ms)]
        if not over:
            break
        for key in over:
            held[key] = max(counts[key], held.get(key, 0))
        kinds = {kind for kind, _ in over}
        _hold_more([touch for touch, kind, _ in losing if kind in kinds], retained, withheld)
    return Weighed(moves, frozenset(retained), frozenset(withheld), shifts, dict(counts), held)


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


def _losing(
    state: FleetState,
    touches: dict[Address, _Touch],
    shifts: Iterable[Shift],
    retained: set[int],
    withheld: set[int],
) -> list[tuple[_Touch, Kind, tuple[int, ...]]]:
    """The addresses that lose something, with the lists where."""
    losing = []
    for address, before, after in shifts:
        lists = state.plan.lost(before, after) if before != after else ()
        if lists:
            touch = touches[address]
            losing.append((touch, touch.kind(retained, withheld), lists))
    return losing


def _hold_more(losing: Iterable[_Touch], retained: set[int], withheld: set[int]) -> None:
    for touch in losing:
        going = [slot for slot, _, _ in touch.outs if slot not in retained]
        if going:
            retained.update(going)
        else:
            withheld.update(move for move, _ in touch.ins)
