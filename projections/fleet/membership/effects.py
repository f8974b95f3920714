"""Applies changes of members: rows, slots, holds, and the rule sets whose addresses changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from eventstore.folding.state_table import StateTable
from projections.fleet.membership.address_index import Address
from projections.fleet.membership.contested import grant
from projections.fleet.membership.rows import Member, ReachableState, RetainedStates, held_items
from projections.fleet.state import FleetState, SetRow, window_key
from projections.fleet.tables.rulesets import incremental_max
from projections.fleet.withdrawals.budgets import EMPTY_WINDOW, BudgetKind, Hold, add_hashes
from projections.fleet.withdrawals.impact import AddressShift, Impact, MemberChange


def apply_changes(
    state: FleetState, impact: Impact, hold_by_change: Mapping[int, int], version: int, earliest_ms: int
) -> None:
    """Apply evaluated changes. `hold_by_change` has the hold of each held change."""
    kept = [_free_slots(state, change, hold_by_change.get(index, -1)) for index, change in enumerate(impact.changes)]
    concerned: set[int] = set()
    for index, (change, parts) in enumerate(zip(impact.changes, kept, strict=True)):
        was_held = _of_holds(change.name, change.before, state.retained_states(change.name))
        member = _new_row(state, change, parts, hold_by_change.get(index, -1))
        state.contest(change.name, change.before, member)
        _put_rows(state, change.name, member, parts)
        concerned |= _account(state, change.name, was_held, _of_holds(change.name, member, parts))
    _end_empty(state, concerned)
    state.ensure_zones((change.after.zone for change in impact.changes if change.after is not None), version)
    state.forget_zones(change.before.zone for change in impact.changes if change.before is not None)
    gained: dict[int, list[Address]] = {}
    lost: dict[int, list[Address]] = {}
    counts: Counter[int] = Counter()
    for address, before, after in _shifts_after_grants(state, impact):
        if after & ~before:
            gained.setdefault(after & ~before, []).append(address)
        if before & ~after:
            lost.setdefault(before & ~after, []).append(address)
        counts[before] -= 1
        counts[after] += 1
    for bits, count in counts.items():
        state.count_addresses(bits, count)
    record_set_changes(state, gained, lost, version, earliest_ms)


def _shifts_after_grants(state: FleetState, impact: Impact) -> Iterable[AddressShift]:
    """The addresses whose rule sets change, with the sets before and after. Addresses that have become free are first
    granted to nodes that wait for them."""
    if not state.contested:
        return impact.shifts
    shifts = {shift.address: shift for shift in impact.shifts}
    stated = [change.after for change in impact.changes if change.after is not None]
    waited = [address for after in stated for address in (after.contested4, after.contested6) if address]
    for address, bits in grant(state, [*shifts, *waited]).items():
        before = shifts[address].before if address in shifts else 0
        shifts[address] = AddressShift(address, before, bits)
    return shifts.values()


def _free_slots(state: FleetState, change: MemberChange, hold: int) -> tuple[ReachableState, ...]:
    """Free the slots of the removed states, and return the states that stay. If the change is held, no slot is freed,
    and all states stay.

    The new hold takes over the removed states that an earlier hold of the node retained, because it is the hold of the
    node's newest change.
    """
    if hold >= 0:
        return (*change.untouched, *(replace(part, hold=hold) for part in change.removed))
    for part in change.removed:
        state.slot_table.free(part.slot, part.address4, part.address6)
    return change.untouched


def _new_row(
    state: FleetState, change: MemberChange, parts: tuple[ReachableState, ...], delayed_by: int
) -> Member | None:
    """The node's row after the change, with its slot."""
    after = change.after
    if after is None:
        assert change.before is not None, "only an existing node can leave"
        return _held(change.before) if parts else None
    if not change.needs_slot:
        return after
    if delayed_by >= 0:
        return replace(after, slot=-1, delayed_by=delayed_by)
    number = state.labels.intern(after.labels, state.plan)
    slot = state.slot_table.allocate(change.name, after.address4, after.address6, number)
    return replace(after, slot=slot, delayed_by=-1, labels=state.labels.sets[number])


def _held(before: Member) -> Member:
    """The row of a node that left while a hold retains a state of it."""
    return replace(before, slot=-1, held=True, delayed_by=-1, contested4=0, contested6=b"")


def _put_rows(state: FleetState, name: str, member: Member | None, parts: tuple[ReachableState, ...]) -> None:
    if member is None:
        state.members.remove(name)
    else:
        state.members.put(name, member)
    if parts:
        state.retained.put(name, RetainedStates(parts))
    else:
        state.retained.remove(name)


class _Held(NamedTuple):
    """A node's share of each hold that contains it, by the number of the hold: a hash, and the number of addresses."""

    hashes: Mapping[int, bytes]
    addresses: Mapping[int, int]


def _of_holds(name: str, member: Member | None, parts: Sequence[ReachableState]) -> _Held:
    """This node's share of each hold that contains it. The number of addresses is the larger of two numbers: the
    addresses in the node's previous states, which the hold keeps reachable, and the addresses in the node's new state,
    which waits."""
    counts: dict[int, int] = {}
    for part in parts:
        counts[part.hold] = counts.get(part.hold, 0) + bool(part.address4) + bool(part.address6)
    if member is not None and member.delayed_by >= 0:
        comes = bool(member.address4) + bool(member.address6)
        counts[member.delayed_by] = max(comes, counts.get(member.delayed_by, 0))
    return _Held(held_items(name, member, parts), counts)


def _account(state: FleetState, name: str, before: _Held, after: _Held) -> set[int]:
    """Update the rows of holds after a change of a node. Returns the holds that contain the node before or after."""
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
    """End the holds that contain no node any more. Call it after all changes of a record: a hold that one change
    empties may get a node by a later change of the same record."""
    for hold in sorted(holds):
        if not state.held_names.get(hold):
            _table_of(state, hold).remove(hold_key(hold))
            state.held_names.pop(hold, None)


def _table_of(state: FleetState, hold: int) -> StateTable[Hold]:
    return state.rejected if hold_key(hold) in state.rejected.rows else state.holds


def hold_key(hold: int) -> str:
    """The key of a hold's row."""
    return str(hold)


def record_set_changes(
    state: FleetState,
    gained: Mapping[int, Sequence[Address]],
    lost: Mapping[int, Sequence[Address]],
    version: int,
    earliest_ms: int,
) -> None:
    """Record the addresses that entered rule sets (`gained`) and left rule sets (`lost`), by the bits of the sets."""
    added, removed = _by_set(gained), _by_set(lost)
    most = incremental_max(state.slot_table.addresses)
    for bit in sorted(added.keys() | removed.keys()):
        found = state.sets[bit]
        found.record_change(version, earliest_ms, added.get(bit, ()), removed.get(bit, ()), most=most)
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


def charge(state: FleetState, charges: Iterable[tuple[BudgetKind, str, int]], now_ms: int) -> None:
    """Count verdict changes against the budgets. Each charge has a budget, the id of a list, and a number of
    addresses."""
    for kind, list_id, count in charges:
        key = window_key(kind, list_id)
        state.windows.put(key, state.windows.rows.get(key, EMPTY_WINDOW).charged(now_ms, count))
