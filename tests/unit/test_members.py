"""A fleet that joins in one record equals one that joins node by node. Changed members are rows, all others columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.fleet.membership.members import MemberRows
from projections.fleet.membership.rows import Member
from projections.fleet.tables.zone_table import table
from tests.support.fleet import Fleet, Item, membership, saved_bytes

BASE4, BASE6 = int(IPv4Address("10.0.0.0")), int(IPv6Address("2001:db8::"))
MANY = 40


def fleet_of(records: Sequence[Sequence[Item]]) -> Fleet:
    fleet = Fleet()
    for mark, items in enumerate(records):
        assert fleet.apply(membership(0, mark, mark + 1, items)).code == "done"
    return fleet


def item_of(number: int, said: tuple[str, str, int, int, str]) -> Item:
    zone, kind, families, created_ms, uid = said
    return Item(
        f"n{number}",
        zone,
        str(IPv4Address(BASE4 + number)) if families & 1 else "",
        str(IPv6Address(BASE6 + (number << 60))) if families & 2 else "",
        {"kind": kind} if kind else {},
        created_ms=created_ms,
        uid=uid,
    )


fleets = st.lists(
    st.tuples(
        st.sampled_from(("z0", "z1", "z2")),
        st.sampled_from(("", "a", "b")),
        st.integers(0, 3),
        st.sampled_from((0, 5, (1 << 63) - 1)),
        st.sampled_from(("", "u", "v")),
    ),
    min_size=MANY,
    max_size=3 * MANY,
).map(lambda rows: [item_of(number, row) for number, row in enumerate(rows)])


@given(items=fleets, first=st.integers(0, 3), dropping=st.booleans())
def test_members_of_one_record_equal_members_of_single_records(items: list[Item], first: int, dropping: bool) -> None:
    """A few nodes join before in single records."""
    before, batch = items[:first], items[first:]
    singly, at_once = fleet_of([[item] for item in items]), fleet_of([*([item] for item in before), batch])
    if dropping:
        for fleet in (singly, at_once):
            fleet.policy("p", action="drop", sources={"kind": "a"})
    rows = at_once.state.members.rows
    assert not rows.single_rows()
    assert dict(rows) == dict(singly.state.members.rows)
    assert all(rows.get(name) == row for name, row in rows.items())
    check_some(rows, [item.name for item in items])
    assert at_once.state.addresses_by_sets == singly.state.addresses_by_sets
    loaded = at_once.reload()
    assert (
        at_once.state.addresses_by_sets == at_once.state.slot_table.count_by_bits() == loaded.slot_table.count_by_bits()
    )
    assert saved_bytes(loaded)["members"] == saved_bytes(singly.state)["members"]
    assert not loaded.members.rows.single_rows()
    for zone in ("z0", "z1", "z2"):
        digests = {table(state, zone).digest for state in (singly.state, at_once.state, loaded)}
        assert len(digests) == 1


def check_some(rows: MemberRows, names: list[str]) -> None:
    """Many rows are what one after the other is, in whatever order they are asked for."""
    for some in (names, names[3:], names[3:-3], names[::-1], [*names, "nobody"], [*names[MANY // 2 :], *names[:9]]):
        assert rows.get_many(some) == [rows.get(name) for name in some]


@pytest.mark.parametrize("restarted", [False, True])
def test_members_in_columns_can_change_leave_and_return(restarted: bool) -> None:
    items = [item_of(number, ("z0", "a", 3, 5, "u")) for number in range(MANY)]
    fleet = fleet_of([items])
    if restarted:
        fleet.state = fleet.reload()
    other = items[3]._replace(labels={}, created_ms=6)
    assert fleet.apply(membership(0, 1, 2, [other])).code == "done"
    fleet.leave("n0", "n1")
    assert fleet.change(items[1], partition=0).code == "done"
    more = [item_of(number, ("z1", "b", 1, 5, "v")) for number in range(MANY, 3 * MANY)]
    assert fleet.change(*more, partition=0).code == "done"
    rows = fleet.state.members.rows
    assert rows.keys() == {item.name for item in [*items[1:], *more]}
    assert rows.get("n0") is None and "n0" not in rows
    check_some(rows, [item.name for item in [*items, *more]])
    slots = [row.slot for row in rows.values()]
    assert sorted(slots) == list(range(len(rows)))
    for item in [items[1], items[2], other, *items[4:], *more]:
        four = int(IPv4Address(item.address or 0))
        six = IPv6Address(item.address6).packed if item.address6 else b""
        found = rows[item.name]
        about = (item.zone, item.created_ms, item.uid, four, six, dict(item.labels), found.slot)
        last_present_ms = fleet.now_ms if item.name in {items[1].name, *(each.name for each in more)} else 1
        expected = Member(*about, held=False, delayed_by=-1, last_present_ms=last_present_ms)
        assert found == expected
    counted = fleet.reload().slot_table.count_by_bits()
    assert +Counter(fleet.state.slot_table.count_by_bits()) == +Counter(counted)
    keys = [key for part in fleet.state.members.drain() for key in part]
    changed = dict(zip(keys, fleet.state.members.get_many(keys), strict=True))
    assert changed == {name: rows.get(name) for name in changed}
    assert changed["n0"] is None and changed.keys() > {item.name for item in more}
