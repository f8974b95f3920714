"""Edits that wait for approvals by two principals, while other changes of the fleet go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eventstore.folding.fold import Outcome
from schemas.events import HoldApproved
from tests.support.fleet import Fleet, Item, actual_table, envelope, expected_table, saved_bytes

MANY = 150
"""More addresses than the 100 that changes may deny by default."""


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    labels = [{"side": "left" if i < MANY else "right"} for i in range(250)]
    made.change(*(Item(f"n{i}", address=f"10.0.0.{i + 1}", labels=labels[i]) for i in range(250)))
    return made


def drop_policy(fleet: Fleet) -> Outcome:
    return fleet.policy("no", priority=1, action="drop", sources={"side": "left"})


def test_new_zones_do_not_reset_the_approvals_of_an_edit(fleet: Fleet) -> None:
    """Approvers saw the effect on all zones, and a growing fleet may get a new zone between any two approvals."""
    asked = drop_policy(fleet)
    fleet.approve(asked.result["hold"], "bob")
    fleet.change(Item("m", "z1", "10.9.0.1"))
    fleet.limit("z2", 7, -1)
    fleet.describe("z3", {"rack": "3"})
    fleet.state = fleet.reload()
    assert fleet.approve(asked.result["hold"], "cid").code == "done"
    assert actual_table(fleet.state, "z1") == expected_table(fleet.state, "z1")


def test_an_edit_needs_new_approvals_after_it_affects_another_zone(fleet: Fleet) -> None:
    fleet.describe("z1", {"site": "a"})
    fleet.policy("yes", priority=2, sources={"side": "left"}, zones={"site": "a"})
    asked = drop_policy(fleet)
    assert fleet.describe("z1", {}).code == "done"
    assert [fleet.approve(asked.result["hold"], actor).code for actor in ("bob", "cid")] == ["done", "held"]
    assert fleet.state.holds.rows[str(asked.result["hold"])].zones == ("z0", "z1")
    fleet.change(Item("m", "z2", "10.9.0.1"))
    assert [fleet.approve(asked.result["hold"], actor).code for actor in ("bob", "cid")] == ["done", "done"]


def test_a_repeated_edit_keeps_its_approvals(fleet: Fleet) -> None:
    """A reconciler repeats an edit until it takes effect."""
    held = [drop_policy(fleet), fleet.policy("default", priority=-5, zones={"tier": "none"}), fleet.delete_policy("no")]
    assert [found.code for found in held] == ["held", "held", "done"]
    fleet.state = fleet.reload()
    asked = drop_policy(fleet)
    fleet.approve(asked.result["hold"], "bob")
    before = saved_bytes(fleet.state)
    assert drop_policy(fleet) == asked
    assert fleet.policy("no", priority=1, action="drop", sources={"side": "left"}, actor="dan") == asked
    assert saved_bytes(fleet.state) == before
    assert fleet.approve(asked.result["hold"], "cid").code == "done"
    assert list(fleet.state.holds.rows) == [str(held[1].result["hold"])]


def test_repeated_labels_and_deletions_keep_their_approvals(fleet: Fleet) -> None:
    fleet.policy("all", priority=1)
    fleet.budget("denied-by-change", 1000, 0)
    fleet.policy("default", priority=-5, sources={"side": "nobody"})
    fleet.policy("never", priority=9, action="drop", zones={"site": "c"})
    fleet.budget("denied-by-change", 10, 100)
    ways: list[Callable[[], Outcome]] = [
        lambda: fleet.delete_policy("all"),
        lambda: fleet.describe("z1", {"site": "c"}),
    ]
    for state_it in ways:
        asked = state_it()
        assert asked.code == "held"
        fleet.approve(asked.result["hold"], "bob")
        assert state_it() == asked
        assert fleet.state.holds.rows[str(asked.result["hold"])].approvals == ("bob",)
    replaced = fleet.policy("all", priority=1, sources={"side": "nobody"})
    assert len(fleet.state.holds.rows) == 2 and str(replaced.result["hold"]) in fleet.state.holds.rows


def test_a_repeated_edit_with_a_larger_effect_needs_new_approvals(fleet: Fleet) -> None:
    first = drop_policy(fleet)
    fleet.approve(first.result["hold"], "bob")
    fleet.change(*(Item(f"m{i}", address=f"10.0.1.{i + 1}", labels={"side": "left"}) for i in range(MANY)))
    second = drop_policy(fleet)
    assert second.result["hold"] != first.result["hold"]
    [hold] = fleet.state.holds.rows.values()
    assert (hold.id, hold.addresses, hold.approvals) == (second.result["hold"], 2 * MANY, ())


def test_a_refused_approval_has_a_short_reason(fleet: Fleet) -> None:
    """The ledger keeps the reason for ten minutes, and the actor in a record may have a megabyte."""
    asked = fleet.policy("no", action="drop", actor="x" * 100_000)
    refused = [
        fleet.apply(HoldApproved(envelope("bob"), asked.result["hold"], bytes(100_000))),
        fleet.approve(asked.result["hold"], "x" * 100_000),
    ]
    assert [found.code for found in refused] == ["refused", "refused"]
    assert max(len(found.reason) for found in refused) < 200
