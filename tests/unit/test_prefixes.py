"""Covers are compared with Python's ipaddress, computed whole and step by step, for both families."""

from __future__ import annotations

import random
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, collapse_addresses
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from projections.fleet.tables.covers import PrefixChange, _holds, netted
from projections.rules.prefixes import (
    SIZE4,
    SIZE6,
    WIDTH4,
    WIDTH6,
    Cover,
    Keys,
    Net,
    cover4,
    cover6,
    diff,
    networks,
    pack,
    pack_ints,
    unpack,
)
from tests.support.call_counts import count_calls

TOP4, TOP6 = (1 << 32) - 1, (1 << 128) - 1


def near(base: int, top: int) -> st.SearchStrategy[int]:
    """Addresses that often merge, because they are close to one another or to the ends of the space."""
    return st.one_of(
        st.integers(0, 70).map(lambda i: base + i),
        st.integers(0, 20),
        st.integers(0, 20).map(lambda i: top - i),
        st.integers(0, top),
    )


BASE6 = 0x20010DB8 << 96 | ((1 << 64) - 30)
addresses4 = st.lists(near(10 << 24, TOP4), max_size=80)
addresses6 = st.lists(near(BASE6, TOP6), max_size=80)


def whole4(addresses: list[int]) -> Keys:
    return cover4(np.array(addresses, dtype=np.uint32))


def whole6(addresses: list[int]) -> Keys:
    high = np.array([a >> 64 for a in addresses], dtype=np.uint64)
    return cover6(high, np.array([a & ((1 << 64) - 1) for a in addresses], dtype=np.uint64))


def oracle4(addresses: set[int]) -> list[IPv4Network]:
    return list(collapse_addresses([IPv4Network(IPv4Address(a)) for a in addresses]))


def oracle6(addresses: set[int]) -> list[IPv6Network]:
    return list(collapse_addresses([IPv6Network(IPv6Address(a)) for a in addresses]))


@given(addresses4)
@example([])
@example([0])
@example([TOP4])
def test_the_whole_cover_of_ipv4_agrees_with_ipaddress(addresses: list[int]) -> None:
    assert list(networks(pack(whole4(addresses)), b"")) == oracle4(set(addresses))


@given(addresses6)
@example([])
@example([0, 1])
@example([TOP6])
def test_the_whole_cover_of_ipv6_agrees_with_ipaddress(addresses: list[int]) -> None:
    assert list(networks(b"", pack(whole6(addresses)))) == oracle6(set(addresses))


@pytest.mark.parametrize("bits", [9, 16])
def test_blocks_merge_across_whole_levels(bits: int) -> None:
    start = 10 << 24
    assert list(networks(pack(cover4(np.arange(start, start + (1 << bits), dtype=np.uint32))), b"")) == [
        IPv4Network((start, 32 - bits))
    ]
    low = np.arange(1 << bits, dtype=np.uint64)
    across = cover6(np.full(1 << bits, 5, np.uint64), low)
    assert list(networks(b"", pack(across))) == [IPv6Network((5 << 64, 128 - bits))]


@pytest.mark.parametrize(("width", "size"), [(WIDTH4, SIZE4), (WIDTH6, SIZE6)])
@given(data=st.data())
def test_single_changes_yield_the_whole_cover(width: int, size: int, data: st.DataObject) -> None:
    choices = near(10 << 24, TOP4) if width == WIDTH4 else near(BASE6, TOP6)
    toggles = data.draw(st.lists(choices, max_size=120))
    cover, present = Cover(width), set[int]()
    before, net = set[int](), Net()
    for address in toggles:
        if address in present:
            present.remove(address)
            cover.remove(address, net)
        else:
            present.add(address)
            cover.add(address, net)
    whole = whole4(list(present)) if width == WIDTH4 else whole6(list(present))
    assert pack_ints(sorted(cover.keys), size) == pack(whole)
    assert net.added == cover.keys - before
    assert net.removed == before - cover.keys


def test_a_removal_from_a_full_block_splits_it_all_the_way() -> None:
    cover, net = Cover(WIDTH4, [10 << 32 | 8]), Net()
    cover.remove((10 << 24) + 77, net)
    assert net.removed == {10 << 32 | 8}
    assert len(net.added) == 24
    cover.add((10 << 24) + 77, net)
    assert (net.added, net.removed) == (set(), set())


def test_removing_an_uncovered_address_raises() -> None:
    with pytest.raises(AssertionError, match="not covered"):
        Cover(WIDTH4).remove(7, Net())


@given(addresses4, addresses4)
def test_a_difference_turns_one_cover_into_the_other(old: list[int], new: list[int]) -> None:
    before, after = whole4(old), whole4(new)
    added, removed = diff(before, after)
    assert (set(before.tolist()) - set(removed.tolist())) | set(added.tolist()) == set(after.tolist())
    assert not set(added.tolist()) & set(before.tolist())


@given(addresses6, addresses6)
def test_a_difference_turns_one_ipv6_cover_into_the_other(old: list[int], new: list[int]) -> None:
    before, after = whole6(old), whole6(new)
    added, removed = (set(unpack(pack(keys), SIZE6)) for keys in diff(before, after))
    was, is_now = (set(unpack(pack(keys), SIZE6)) for keys in (before, after))
    assert (added, removed) == (is_now - was, was - is_now)


@given(st.lists(st.tuples(st.integers(0, TOP6), st.integers(0, 128))))
def test_packing_loses_nothing(prefixes: list[tuple[int, int]]) -> None:
    keys = [address << 8 | length for address, length in prefixes]
    assert unpack(pack_ints(keys, SIZE6), SIZE6) == keys


def test_large_random_sets_agree_with_ipaddress() -> None:
    rng = random.Random(7)
    addresses = {(10 << 24) + i for i in range(20_000) if rng.random() < 0.8}
    assert list(networks(pack(whole4(list(addresses))), b"")) == oracle4(addresses)


@pytest.mark.parametrize("pairs", [[(2, 1), (1, 2)], [(5, 1), (7, 1), (5, 2)], [(5, 2), (5, 1)], [(5, 1), (5, 1)]])
def test_the_cover_of_ipv6_does_not_depend_on_the_order_of_its_halves(pairs: list[tuple[int, int]]) -> None:
    def cover(given: list[tuple[int, int]]) -> list[bytes]:
        high, low = np.array(given, dtype=np.uint64).T
        return [bytes(key) for key in cover6(high.copy(), low.copy()).tolist()]

    assert cover(pairs) == cover(sorted(set(pairs)))


STATES = st.builds(range, st.integers(0, 300), st.integers(0, 900), st.integers(1, 3)).map(set)


@given(st.lists(STATES, min_size=2, max_size=5), st.sampled_from([SIZE4, SIZE6]))
def test_a_sequence_of_changes_is_netted_to_the_whole_change(states: list[set[int]], size: int) -> None:
    """The net of the changes between successive sets is the change from the first to the last set."""

    def packed(keys: set[int]) -> bytes:
        return pack_ints((key << 8 * (size - 2) for key in sorted(keys)), size)

    def change(old: set[int], new: set[int]) -> PrefixChange:
        came, went = packed(new - old), packed(old - new)
        return PrefixChange(came, b"", went, b"") if size == SIZE4 else PrefixChange(b"", came, b"", went)

    assert netted(change(old, new) for old, new in pairwise(states)) == change(states[0], states[-1])


def test_many_changes_of_a_large_set_are_netted_without_work_per_prefix() -> None:
    """A relay nets the changes since the version that a DPU reports, and a DPU may report any version."""
    keys = [pack_ints([number << 8 | 32], SIZE4) for number in range(200_000)]
    changes = [PrefixChange(b"".join(keys[first : first + 500]), b"", b"", b"") for first in range(0, len(keys), 500)]
    found: list[PrefixChange] = []
    assert count_calls(lambda: found.append(netted(changes))) < len(keys) / 10
    assert found[0].add4 == b"".join(keys)


@given(st.sets(st.integers(0, 300), max_size=80), st.integers(0, 310), st.booleans())
def test_the_search_for_an_address_in_a_change_agrees_with_the_set(
    addresses: set[int], asked: int, is_four: bool
) -> None:
    width, size = (WIDTH4, SIZE4) if is_four else (WIDTH6, SIZE6)
    cover = Cover(width)
    for address in sorted(addresses):
        cover.add(address, Net())
    packed = pack_ints(sorted(cover.keys), size)
    wanted: int | bytes = asked if is_four else asked.to_bytes(16, "big")
    pair = (packed, b"") if is_four else (b"", packed)
    assert _holds(*pair, wanted) == (asked in addresses)


def test_the_search_for_an_address_in_a_large_change_reads_few_prefixes() -> None:
    """An explanation searches every step in the history of a rule, and every reader may request one."""
    packed = pack_ints(((number << 1) << 8 | 128 for number in range(200_000)), SIZE6)
    found: list[bool] = []
    assert count_calls(lambda: found.append(_holds(b"", packed, (399_999).to_bytes(16, "big")))) < 1_000
    assert found == [False]
