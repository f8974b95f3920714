"""What moves leave behind: rows, slots, holds, and the sets whose addresses came or went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from eventstore.folding.table import Table
from projections.fleet.address_index import Address
from projections.fleet.contested import grant
from projections.fleet.membership import Kept, Member, Part, held_items
from projections.fleet.moves import Move, Shift, Weighed
from projections.fleet.state import FleetState, SetRow, window_key
from projections.fleet.withdrawals import EMPTY, Hold, Kind, add_hashes


def make_moves(state: FleetState, weighed: Weighed, held_by: Mapping[int, int], version: int, earliest_ms: int) -> None:
    """Make moves that were weighed. `held_by` is the hold of each move that waits."""
    kept = [_leave(state, move, held_by.get(index, -1)) for index, move in enumerate(weighed.moves)]
    concerned: set[int] = set()
    for index, (move, parts) in enumerate(zip(weighed.moves, kept, strict=True)):
        was_held = _of_holds(move.name, move.before, state.parts(move.name))
        member = _arrive(state, move, parts, held_by.get(index, -1))
        state.contest(move.name, move.before, member)
        _put_rows(state, move.name, member, parts)
        concerned |= _account(state, move.name, was_held, _of_holds(move.name, member, parts))
    _end_empty(state, concerned)
    state.hear_of((move.after.zone for move in weighed.moves if move.after is not None), version)
    state.forget_zones(move.before.zone for move in weighed.moves if move.before is not None)
    gained: dict[int, list[Address]] = {}
    lost: dict[int, list[Address]] = {}
    for address, before, after in _with_granted(state, weighed):
        if after & ~before:
            gained.setdefault(after & ~before, []).append(address)
        if before & ~after:
            lost.setdefault(before & ~after, []).append(address)
        state.reach_by(before, -1)
        state.reach_by(after, 1)
    note(state, gained, lost, version, earliest_ms)


def _with_granted(state: FleetState, weighed: Weighed) -> Iterable[Shift]:
    """The shifts of addresses, after those that no node holds any more went to the nodes that wait for them."""
    if not state.contested:
        return weighed.shifts
    shifts = {shift.address: shift for shift in weighed.shifts}
    stated = [move.after for move in weighed.moves if move.after is not None]
    waited = [address for after in stated for address in (after.contested4, after.contested6) if address]
    for address, bits in grant(state, [*shifts, *waited]).items():
        before = shifts[address].before if address in shifts else 0
        shifts[address] = Shift(address, before, bits)
    return shifts.values()


def _leave(state: FleetState, move: Move, hold: int) -> tuple[Part, ...]:
    """The parts of the node that stay: those that are not touched, and all of them if the move waits for a hold.

    What an earlier hold kept of the node is then kept by the new one alone: the newest change is the one that waits.
    """
    if hold >= 0:
        return (*move.stays, *(replace(part, hold=hold) for part in move.outs))
    for part in move.outs:
        state.slot_table.free(part.slot, part.address4, part.address6)
    return move.stays


def _arrive(state: FleetState, move: Move, parts: tuple[Part, ...], withheld: int) -> Member | None:
    """The node's row after the move, with its slot."""
    after = move.after
    if after is None:
        assert move.before is not None, "only what was there can leave"
        return _held(move.before) if parts else None
    if not move.arrives:
        return after
    if withheld >= 0:
        return replace(after, slot=-1, withheld=withheld)
    number = state.labels.intern(after.labels, state.plan)
    slot = state.slot_table.allocate(move.name, after.address4, after.address6, number)
    return replace(after, slot=slot, withheld=-1, labels=state.labels.sets[number])


def _held(before: Member) -> Member:
    """The row of a node that left, of which a hold keeps something."""
    return replace(before, slot=-1, held=True, withheld=-1, contested4=0, contested6=b"")


def _put_rows(state: FleetState, name: str, member: Member | None, parts: tuple[Part, ...]) -> None:
    if member is None:
        state.members.remove(name)
    else:
        state.members.put(name, member)
    if parts:
        state.kept.put(name, Kept(parts))
    else:
        state.kept.remove(name)


class _Held(NamedTuple):
    """What holds keep of a node, or keep from counting: per hold a hash, and how many addresses."""

    hashes: Mapping[int, bytes]
    addresses: Mapping[int, int]


def _of_holds(name: str, member: Member | None, parts: Sequence[Part]) -> _Held:
    """Addresses are those that go or those that come, whichever are more."""
    counts: dict[int, int] = {}
    for part in parts:
        counts[part.hold] = counts.get(part.hold, 0) + bool(part.address4) + bool(part.address6)
    if member is not None and member.withheld >= 0:
        comes = bool(member.address4) + bool(member.address6)
        counts[member.withheld] = max(comes, counts.get(member.withheld, 0))
    return _Held(held_items(name, member, parts), counts)


def _account(state: FleetState, name: str, before: _Held, after: _Held) -> set[int]:
    """Holds follow what they keep of a node. Returns those that it is, or was, in."""
    concerned = before.hashes.keys() | after.hashes.keys()
    for hold in sorted(concerned):
        was, becomes = before.hashes.get(hold), after.hashes.get(hold)
        if was == becomes:
            continue
        names = state.held_names.setdefault(hold, {})
        if becomes is None:
            del names[name]
        else:
            names[name] = becomes
        table = _table_of(state, hold)
        row = table.rows[hold_key(hold)]
        addresses = row.addresses + after.addresses.get(hold, 0) - before.addresses.get(hold, 0)
        summed = add_hashes(row.hash, added=becomes, removed=was)
        table.put(hold_key(hold), replace(row, nodes=len(names), addresses=addresses, hash=summed))
    return concerned


def _end_empty(state: FleetState, holds: Iterable[int]) -> None:
    """End those of these holds that keep nothing any more. This waits for the end of a record: its last node may be the
    first one that comes to a hold which all others leave."""
    for hold in sorted(holds):
        if not state.held_names.get(hold):
            _table_of(state, hold).remove(hold_key(hold))
            state.held_names.pop(hold, None)


def _table_of(state: FleetState, hold: int) -> Table[Hold]:
    return state.rejected if hold_key(hold) in state.rejected.rows else state.holds


def hold_key(hold: int) -> str:
    """The key of a hold's row."""
    return str(hold)


def note(
    state: FleetState,
    gained: Mapping[int, Sequence[Address]],
    lost: Mapping[int, Sequence[Address]],
    version: int,
    earliest_ms: int,
) -> None:
    """Addresses, by the bits of sets, came into these sets and went from those."""
    added, removed = _by_set(gained), _by_set(lost)
    for bit in sorted(added.keys() | removed.keys()):
        found = state.sets[bit]
        found.note(version, earliest_ms, added.get(bit, ()), removed.get(bit, ()))
        state.set_rows.put(found.text, SetRow(version, earliest_ms))


def _by_set(by_bits: Mapping[int, Sequence[Address]]) -> dict[int, Sequence[Address]]:
    sets: dict[int, Sequence[Address]] = {}
    for bits, addresses in by_bits.items():
        left = bits if addresses else 0
        while left:
            bit = (left & -left).bit_length() - 1
            left &= left - 1
            sets[bit] = [*sets[bit], *addresses] if bit in sets else addresses
    return sets


def charge(state: FleetState, charges: Iterable[tuple[Kind, str, int]], now_ms: int) -> None:
    """Count withdrawals of addresses: kind, list id, how many."""
    for kind, list_id, count in charges:
        key = window_key(kind, list_id)
        state.windows.put(key, state.windows.rows.get(key, EMPTY).charged(now_ms, count))
