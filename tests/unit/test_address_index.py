"""The nodes of an address, after each way to add one: alone, in a held batch, or from saved state."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from projections.fleet.membership.address_index import BATCH_ADDRESSES, Address, AddressIndex, column4

BATCH = 300
FIRST = 10 << 24
SIX = bytes(15) + b"\x07"

places = st.integers(0, BATCH - 1)
batches = st.lists(st.permutations(range(BATCH)), min_size=1, max_size=3)
steps = st.lists(st.tuples(st.sampled_from(("hold", "release", "ask")), places, st.integers(0, 3)), max_size=40)


def batch(number: int, order: Sequence[int]) -> array[int]:
    """The addresses of one batch in some order. Every multiple of 7 has no address."""
    return array("I", [FIRST + number * BATCH + place if place % 7 else 0 for place in order])


def check(holders: AddressIndex, held: dict[Address, set[int]]) -> None:
    assert {address: set(holders.slots_of(address)) for address in held} == held
    several = {address: slots for address, slots in held.items() if len(slots) > 1}
    assert {address: set(slots) for address, slots in holders.shared.items()} == several


def test_a_repeated_address_is_detected_unless_it_is_absent() -> None:
    assert not column4(array("I", [1, 0, 2, 0]).tobytes()).repeats
    assert column4(array("I", [1, 0, 2, 1]).tobytes()).repeats
    assert column4(array("I", [*range(BATCH), 5]).tobytes()).repeats
    assert not column4(array("I", [*range(BATCH, 0, -1), 0, 0]).tobytes()).repeats


@given(batches, steps)
def test_a_batch_equals_single_additions(orders: list[list[int]], taken: list[tuple[str, int, int]]) -> None:
    holders, held = AddressIndex(), dict[Address, set[int]]()
    for number, order in enumerate(orders):
        column = column4(batch(number, order).tobytes())
        assert not holders.has_any(column.given, ())
        holders.add_batch(column, range(number * BATCH, number * BATCH + len(column.values)))
        assert holders.has_any(column.given, ())
        held |= {address: {number * BATCH + i} for i, address in enumerate(column.values) if address}
    for slot, (what, place, number) in enumerate(taken, start=len(orders) * BATCH):
        address = FIRST + number * BATCH + place
        slots = held.setdefault(address, set())
        if what == "hold":
            holders.add(address, slot)
            slots.add(slot)
        elif what == "release" and slots:
            holders.remove(address, slots.pop())
        else:
            assert set(holders.slots_of(address)) == slots
        assert holders.has_any(column4(array("I", [address]).tobytes()).given, ()) == bool(slots)
    check(holders, held)


@given(st.permutations(range(BATCH)), st.booleans())
def test_a_restored_index_equals_its_slots(order: list[int], is_shared: bool) -> None:
    values = array("I", [*batch(0, order), *range(FIRST + BATCH, FIRST + BATCH + BATCH_ADDRESSES)])
    if is_shared:
        values += array("I", [FIRST + 1, FIRST + BATCH, FIRST + 1])
    holders, held = AddressIndex(), dict[Address, set[int]]()
    holders.restore4(values)
    for slot, address in enumerate(values):
        if address:
            held.setdefault(address, set()).add(slot)
    check(holders, held)


def test_ipv6_addresses_are_indexed_alone_and_in_batches() -> None:
    holders = AddressIndex()
    holders.add_all6([SIX, b""], [0, 1])
    assert holders.has_any(column4(b"").given, [SIX])
    assert not holders.has_any(column4(b"").given, [b""])
    holders.restore6([(SIX, 2), (SIX, 3)])
    assert set(holders.slots_of(SIX)) == {0, 2, 3}
    for slot in (0, 2, 3):
        holders.remove(SIX, slot)
    assert not holders.slots_of(SIX)
