"""A change is held whole: the former addresses stay in the tables, and the new ones wait until the approval."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from eventstore.folding.fold import DONE, Outcome, RecordMetadata
from projections.decisions.fleet import items
from projections.decisions.items import DecisionItems
from projections.fleet.views import hold_state
from projections.fleet.withdrawals.budgets import (
    ALLOWED_BY_CHANGE,
    ALLOWED_BY_JOIN,
    BUDGET_WINDOW_MS,
    DENIED_BY_CHANGE,
    DENIED_BY_LEAVE,
)
from schemas.events import HoldRejected
from tests.support.fleet import HERE, Fleet, Item, actual_table, envelope, expected_table, holds, saved_bytes

MANY = 150
"""More addresses than the 100 that changes may deny by default."""


def node(i: int, pool: int = 0, **changes: object) -> Item:
    return Item(f"n{i}", "z0", f"10.{pool}.{i // 250}.{i % 250 + 1}")._replace(**changes)  # type: ignore[arg-type]


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    made.change(*(node(i) for i in range(2 * MANY)))
    return made


def shift(fleet: Fleet, first: int = 0, end: int = MANY, pool: int = 1) -> Outcome:
    return fleet.change(*(node(i, pool) for i in range(first, end)))


def addresses(fleet: Fleet) -> set[str]:
    """The addresses that zone z0 allows."""
    found = actual_table(fleet.state, "z0")
    assert found == expected_table(fleet.state, "z0")
    return {str(address) for nets in found.values() for net in nets for address in net}


def approve(fleet: Fleet, hold: int) -> list[str]:
    return [fleet.approve(hold, actor).code for actor in ("bob", "cid")]


def test_new_addresses_wait_and_replace_the_old_ones_at_the_approval(fleet: Fleet) -> None:
    before = addresses(fleet)
    outcome = shift(fleet)
    assert outcome.code == "held"
    assert addresses(fleet) == before
    assert fleet.state.members.rows["n0"].delayed_by == outcome.result["hold"]
    assert [part.hold for part in fleet.state.retained_states("n0")] == [outcome.result["hold"]]
    assert approve(fleet, outcome.result["hold"]) == ["done", "done"]
    assert addresses(fleet) == {item.address for item in [*(node(i, 1) for i in range(MANY)), *rest()]}
    assert fleet.state.holds.rows == {}


def rest() -> list[Item]:
    return [node(i) for i in range(MANY, 2 * MANY)]


def test_a_move_to_another_zone_with_another_address_is_held_whole(fleet: Fleet) -> None:
    """The record by which the old zone drops the node in the meantime has no effect."""
    before = addresses(fleet)
    outcome = fleet.change(*(node(i, 1, zone="z1", created_ms=2) for i in range(MANY)))
    assert (outcome.code, addresses(fleet)) == ("held", before)
    fleet.change(*(node(i, state=3) for i in range(MANY)))
    assert addresses(fleet) == before
    assert approve(fleet, outcome.result["hold"]) == ["done", "done"]
    assert {fleet.state.members.rows[f"n{i}"].zone for i in range(MANY)} == {"z1"}


def test_a_repeated_statement_of_one_node_does_not_pass_a_hold(fleet: Fleet) -> None:
    held = shift(fleet)
    before, rows = addresses(fleet), saved_bytes(fleet.state)
    fleet.change(node(0, 1))
    assert addresses(fleet) == before
    assert fleet.state.holds.rows[str(held.result["hold"])].nodes == MANY
    again = fleet.change(node(0, 2))
    assert (again.code, addresses(fleet)) == ("held", before)
    assert (
        again.reason
        == "nodes: 1 address of nodes whose last change waits for approval; the rule tables keep the previous state"
    )
    assert saved_bytes(fleet.state) != rows
    fleet.now_ms += 2 * BUDGET_WINDOW_MS
    assert fleet.change(node(0, 3)).code == "held"


def test_the_newest_of_several_changes_waits(fleet: Fleet) -> None:
    """An approval of the earlier change does not count for the newest one."""
    first = shift(fleet)
    fleet.approve(first.result["hold"], "bob")
    newer = fleet.change(node(0, 2))
    assert fleet.state.holds.rows[str(first.result["hold"])].nodes == MANY - 1
    assert fleet.state.holds.rows[str(newer.result["hold"])].approvals == ()
    assert fleet.approve(first.result["hold"], "cid").code == "done"
    assert str(IPv4Address(fleet.state.retained_states("n0")[0].address4)) == "10.0.0.1"
    assert approve(fleet, newer.result["hold"]) == ["done", "done"]
    assert "10.2.0.1" in addresses(fleet) and "10.1.0.1" not in addresses(fleet)


def test_a_node_that_returns_to_its_former_state_no_longer_waits(fleet: Fleet) -> None:
    before = addresses(fleet)
    held = shift(fleet)
    assert fleet.change(*(node(i) for i in range(MANY - 1))).code == "done"
    assert fleet.state.holds.rows[str(held.result["hold"])].nodes == 1
    assert fleet.change(node(MANY - 1)).code == "done"
    assert (fleet.state.holds.rows, fleet.state.retained.rows) == ({}, {})
    assert addresses(fleet) == before


def test_a_node_whose_change_waits_may_leave(fleet: Fleet) -> None:
    held = shift(fleet)
    assert fleet.leave("n0").code == "done"
    assert "n0" not in fleet.state.members.rows
    assert "10.0.0.1" not in addresses(fleet)
    assert fleet.state.holds.rows[str(held.result["hold"])].nodes == MANY - 1


def test_an_edit_of_labels_that_denies_and_allows_is_held_whole(fleet: Fleet) -> None:
    fleet.policy("no", priority=1, action="drop", zones={"tier": "closed"})
    before = addresses(fleet)
    assert fleet.describe("z0", {"tier": "closed"}).code == "held"
    assert addresses(fleet) == before


# --- addresses that become allowed ------------------------------------------------------------------------------------


def closed() -> Fleet:
    """A fleet whose zones allow no address."""
    fleet = Fleet()
    fleet.policy("default", priority=-9, sources={"side": "in"})
    fleet.change(*(node(i) for i in range(2 * MANY)))
    fleet.budget(ALLOWED_BY_CHANGE, 250, 10)
    fleet.settle()
    return fleet


def test_an_edit_may_allow_a_share_of_the_addresses_of_the_fleet() -> None:
    fleet = closed()
    outcome = fleet.policy("open", priority=1)
    reason = (
        "policy: 'open': 300 addresses would be allowed at once, over the allowed-by-change budget; it waits "
        "for approval"
    )
    assert (outcome.code, outcome.reason) == ("held", reason)
    assert addresses(fleet) == set()
    assert fleet.state.holds.rows[str(outcome.result["hold"])].kind == ALLOWED_BY_CHANGE
    assert approve(fleet, outcome.result["hold"]) == ["done", "done"]
    assert len(addresses(fleet)) == 2 * MANY


def test_changes_of_known_nodes_and_edits_share_one_allow_budget() -> None:
    fleet = closed()
    assert fleet.change(*(node(i, labels={"side": "in"}) for i in range(70))).code == "done"
    held = fleet.change(*(node(i, labels={"side": "in"}) for i in range(70, 80)))
    assert (held.code, len(addresses(fleet))) == ("held", 70)
    late = ", after 70 in the last 10 minutes"
    assert held.reason == (
        f"nodes: 10 addresses would be allowed at once{late}, over the allowed-by-change budget; the rule "
        "tables keep the previous state"
    )
    assert fleet.policy("open", priority=1).code == "held"
    fleet.now_ms += 2 * BUDGET_WINDOW_MS
    assert fleet.change(*(node(i, labels={"side": "in"}) for i in range(100, 130))).code == "done"


def test_joins_of_new_nodes_have_no_limit_until_an_operator_sets_one() -> None:
    fleet = Fleet()
    assert fleet.change(*(node(i, 5) for i in range(5 * MANY))).code == "done"
    fleet.budget(ALLOWED_BY_JOIN, 0, 20)
    assert fleet.change(*(node(i, 1, name=f"x{i}") for i in range(15))).code == "done"
    held = fleet.change(*(node(i, 2, name=f"y{i}") for i in range(15)))
    late = ", after 15 in the last 10 minutes"
    assert held.reason == (
        f"nodes: 15 addresses would be allowed at once{late}, over the allowed-by-join budget; the rule tables "
        "keep the previous state"
    )
    assert fleet.state.members.rows["y0"].slot < 0
    assert fleet.change(*(node(i, 3, name=f"w{i}") for i in range(5))).code == "done"
    assert approve(fleet, held.result["hold"]) == ["done", "done"]
    assert len(addresses(fleet)) == 5 * MANY + 35
    fleet.budget(ALLOWED_BY_JOIN, 1_000, 0)
    assert fleet.change(*(node(i, 4, name=f"v{i}") for i in range(MANY))).code == "done"


def test_a_new_node_that_waits_may_leave_and_its_hold_ends() -> None:
    fleet = Fleet()
    fleet.budget(ALLOWED_BY_JOIN, 0, 0)
    assert fleet.change(node(0)).code == "held"
    assert fleet.leave("n0").code == "done"
    assert (len(fleet.state.members.rows), fleet.state.holds.rows) == (0, {})


def test_a_hold_that_denies_and_allows_counts_as_a_denial() -> None:
    fleet = Fleet()
    fleet.policy("out", priority=1, action="drop", sources={"side": "out"})
    fleet.change(*(node(i, labels={"side": "out"} if i % 2 else {}) for i in range(MANY)))
    for kind in (ALLOWED_BY_CHANGE, DENIED_BY_CHANGE, DENIED_BY_LEAVE):
        fleet.budget(kind, 0, 0)
    swapped = fleet.change(*(node(i, labels={} if i % 2 else {"side": "out"}) for i in range(MANY)))
    hold = fleet.state.holds.rows[str(swapped.result["hold"])]
    assert (hold.kind, hold.addresses, hold.nodes) == (DENIED_BY_CHANGE, MANY, MANY)


# --- rejections -------------------------------------------------------------------------------------------------------


def standings(fleet: Fleet, *names: str) -> list[str]:
    """The hold states that a list of nodes shows, checked before and after a restart."""
    found = [hold_state(fleet.state, name) for name in names]
    fleet.state = fleet.reload()
    assert found == [hold_state(fleet.state, name) for name in names]
    return found


def test_a_rejected_leave_keeps_the_nodes_until_they_join_again(fleet: Fleet) -> None:
    before = addresses(fleet)
    held = fleet.leave(*(f"n{i}" for i in range(MANY)), state=2)
    fleet.approve(held.result["hold"], "bob")
    assert standings(fleet, "n0", "n299") == ["held", ""]
    assert fleet.reject(held.result["hold"]).code == "done"
    assert (fleet.state.holds.rows, holds(fleet.state), addresses(fleet)) == ({}, [], before)
    assert standings(fleet, "n0", "n299") == ["leave rejected", ""]
    reason = f"hold: {held.result['hold']} was rejected by 'eve' and can no longer be approved"
    assert [fleet.approve(held.result["hold"], "cid").reason, fleet.reject(held.result["hold"]).reason] == [
        reason,
        reason,
    ]
    fleet.change(node(0, created_ms=2))
    assert standings(fleet, "n0", "n1") == ["", "leave rejected"]
    assert fleet.leave("n0").code == "done"
    assert fleet.change(*(node(i, created_ms=2) for i in range(1, MANY))).code == "done"
    assert (fleet.state.rejected.rows, fleet.state.retained.rows) == ({}, {})


def test_a_rejected_change_is_dropped_whole_and_ends_with_the_next_one(fleet: Fleet) -> None:
    before = addresses(fleet)
    held = shift(fleet)
    assert fleet.reject(held.result["hold"]).code == "done"
    assert (fleet.state.holds.rows, addresses(fleet)) == ({}, before)
    assert standings(fleet, "n0", "n299") == ["change rejected", ""]
    assert shift(fleet).code in ("done", "unchanged"), "a repeated statement has no effect"
    assert (fleet.state.holds.rows, addresses(fleet)) == ({}, before)
    assert fleet.change(node(0, 2)).code == "done"
    assert fleet.change(node(1)).code == "done"
    assert fleet.leave("n2").code == "done"
    assert standings(fleet, "n0", "n1", "n2", "n3") == ["", "", "", "change rejected"]
    assert {"10.2.0.1", "10.0.0.2"} <= addresses(fleet)
    again = shift(fleet, 3, MANY, pool=4)
    assert again.code == "held"
    assert standings(fleet, "n3") == ["held"]
    assert fleet.state.rejected.rows == {}


def test_a_rejection_is_a_decision_about_each_node(fleet: Fleet) -> None:
    held = shift(fleet)
    at = RecordMetadata(HERE, fleet.offset, fleet.now_ms, fleet.now_ms)
    event = HoldRejected(envelope("eve"), held.result["hold"])
    change = fleet.fold.decide(fleet.state, event, at).change
    rejected, members = items(event, change, DONE, at)
    assert rejected == DecisionItems("hold_rejected", (str(held.result["hold"]),), {"by": "eve"})
    assert members == DecisionItems(
        "member_rejected", tuple(sorted(f"n{i}" for i in range(MANY))), {"hold": str(held.result["hold"])}
    )
