"""Addresses stated by agents while other nodes have them are withheld, shown with the reason, and granted when free."""

from __future__ import annotations

from projections.fleet.membership.contested import withheld_addresses
from projections.fleet.state import ANY_ZONE
from projections.views.nodes import find
from projections.zones.rows import Node
from tests.support.fleet import Fleet, Item, actual_table, expected_table, saved_bytes

BY_AGENT = 10
"""State of an item whose agent stated the zone and both addresses."""


def one(fleet: Fleet, name: str) -> tuple[int, int]:
    row = fleet.state.members.rows[name]
    return row.address4 & 0xFF, row.contested4 & 0xFF


def stated(fleet: Fleet, name: str) -> Node:
    """The node in the form of its zone's row."""
    row = fleet.state.members.rows[name]
    return Node(row.zone, 1, "u", row.address4 or row.contested4, row.address6, row.labels, 0, 0)


def test_an_address_of_another_node_is_withheld_from_an_agent_until_that_node_leaves() -> None:
    fleet = Fleet()
    fleet.change(Item("a", address="10.0.0.1", labels={"app": "web"}))
    fleet.change(Item("b", "z2", "10.0.0.1", "fd00::1", {"app": "db"}, state=BY_AGENT), partition=1)
    assert one(fleet, "b") == (0, 1)
    assert fleet.state.members.rows["b"].address6
    (reason,) = withheld_addresses(fleet.state, "b")
    assert "'10.0.0.1' of 'b' is withheld" in reason
    assert "node 'a' holds it" in reason
    assert [names for _, names in fleet.state.conflicts()] == [("a", "b")]
    shown = {name: find(name, [stated(fleet, name)], fleet.state) for name in "ab"}
    assert {name: view.conflicts for name, view in shown.items() if view} == {"a": ("b",), "b": ("a",)}
    assert [view.withheld for view in shown.values() if view] == ["", reason]
    fleet.leave("a")
    assert one(fleet, "b") == (1, 0)
    assert withheld_addresses(fleet.state, "b") == ()
    assert actual_table(fleet.state, "z2") == expected_table(fleet.state, "z2")
    assert fleet.state.contested == {}


def test_a_free_address_goes_to_the_first_waiting_node_by_name() -> None:
    fleet = Fleet()
    fleet.change(Item("a", address="10.0.0.1"))
    fleet.change(*(Item(name, address="10.0.0.1", state=BY_AGENT) for name in ("d", "c")))
    fleet.state = fleet.reload()
    assert fleet.state.contested == {(10 << 24) + 1: {"c", "d"}}
    fleet.change(Item("a", address="10.0.0.2"))
    assert (one(fleet, "c"), one(fleet, "d")) == ((1, 0), (0, 1))
    fleet.leave("c")
    assert one(fleet, "d") == (1, 0)
    assert saved_bytes(fleet.reload()) == saved_bytes(fleet.state)


def test_a_statement_of_an_operator_grants_the_address_as_a_conflict() -> None:
    fleet = Fleet()
    fleet.change(Item("a", address="10.0.0.1"))
    fleet.change(Item("b", address="10.0.0.1", state=BY_AGENT))
    fleet.change(Item("b", address="10.0.0.1"))
    assert one(fleet, "b") == (1, 0)
    assert [names for _, names in fleet.state.conflicts()] == [("a", "b")]


def test_agents_that_swap_addresses_in_one_record_both_get_them() -> None:
    fleet = Fleet()
    fleet.change(Item("a", address="10.0.0.1", state=BY_AGENT), Item("b", address="10.0.0.2", state=BY_AGENT))
    fleet.change(Item("a", address="10.0.0.2", state=BY_AGENT), Item("b", address="10.0.0.1", state=BY_AGENT))
    assert (one(fleet, "a"), one(fleet, "b")) == ((2, 0), (1, 0))


def test_in_one_record_operators_precede_agents_and_earlier_agents_later_ones() -> None:
    fleet = Fleet()
    fleet.change(
        Item("a", address="10.0.0.1", state=BY_AGENT),
        Item("b", address="10.0.0.1"),
        Item("c", address="10.0.0.2", state=BY_AGENT),
        Item("d", address="10.0.0.2", state=BY_AGENT),
        Item("e", address="10.0.0.5", state=BY_AGENT),
        Item("f", address="10.0.0.5", state=4),  # its agent joined the node, and an operator stated the address
    )
    assert [one(fleet, name) for name in "abcdef"] == [(0, 1), (1, 0), (2, 0), (0, 2), (0, 5), (5, 0)]


def test_an_address_kept_by_a_hold_is_withheld_from_an_agent() -> None:
    fleet = Fleet()
    fleet.budget("denied-by-leave", 0, 0)
    fleet.change(Item("a", address="10.0.0.1"))
    hold = fleet.leave("a").result["hold"]
    fleet.change(Item("b", address="10.0.0.1", state=BY_AGENT))
    assert one(fleet, "b") == (0, 1)
    fleet.approve(hold, "bob")
    fleet.approve(hold, "cid")
    assert one(fleet, "b") == (1, 0)
    assert actual_table(fleet.state, ANY_ZONE) == expected_table(fleet.state, ANY_ZONE)


def test_an_agents_join_into_a_zone_of_another_partition_moves_no_node() -> None:
    fleet = Fleet()
    fleet.change(Item("a", "z0", "10.0.0.1", labels={"trust": "low"}))
    fleet.change(Item("a", "z1", "10.0.0.9", state=4, created_ms=9), partition=2)
    row = fleet.state.members.rows["a"]
    assert (row.zone, row.labels) == ("z0", {"trust": "low"})
    assert [entry.zones for queue in fleet.state.outbox_queues.values() for entry in queue] == [["z1"]]


def test_joins_of_many_agents_without_contested_addresses_are_stored_as_columns() -> None:
    fleet, operators = Fleet(), Fleet()
    items = [Item(f"n{i:03d}", address=f"10.0.{i // 250}.{i % 250 + 1}", state=BY_AGENT) for i in range(500)]
    fleet.change(*items)
    operators.change(*(item._replace(state=0) for item in items))
    assert saved_bytes(fleet.state) == saved_bytes(operators.state)
    assert not fleet.state.members.rows.single_rows()
