"""Edits that wait for two principals, while the fleet goes on around them."""

from __future__ import annotations

import pytest

from eventstore.fold import Outcome
from tests.support.fleet import Fleet, Item, actual_table, expected_table

MANY = 150
"""More than the inferred budget's 100."""


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    labels = [{"side": "left" if i < MANY else "right"} for i in range(250)]
    made.change(*(Item(f"n{i}", address=f"10.0.0.{i + 1}", labels=labels[i]) for i in range(250)))
    return made


def drop_policy(fleet: Fleet) -> Outcome:
    return fleet.policy("no", priority=1, action="drop", sources={"side": "left"})


def test_zones_that_fleet_hears_of_while_an_edit_waits_do_not_have_it_asked_for_anew(fleet: Fleet) -> None:
    """What all zones would lose was seen, and a fleet that grows has a new one between any two approvals."""
    asked = drop_policy(fleet)
    fleet.approve(asked.hold, "bob")
    fleet.change(Item("m", "z1", "10.9.0.1"))
    fleet.limit("z2", 7, -1)
    fleet.state = fleet.reload()
    assert fleet.approve(asked.hold, "cid").code == "done"
    assert actual_table(fleet.state, "z1") == expected_table(fleet.state, "z1")


def test_a_zone_that_lost_its_labels_while_an_edit_waits_has_it_asked_for_anew(fleet: Fleet) -> None:
    fleet.describe("z1", {"site": "a"})
    fleet.policy("yes", priority=2, sources={"side": "left"}, zones={"site": "a"})
    asked = drop_policy(fleet)
    assert fleet.describe("z1", {}).code == "done"
    assert [fleet.approve(asked.hold, actor).code for actor in ("bob", "cid")] == ["done", "held"]
    assert fleet.state.holds.rows[str(asked.hold)].zones == ("z0", "z1")
    fleet.change(Item("m", "z2", "10.9.0.1"))
    assert [fleet.approve(asked.hold, actor).code for actor in ("bob", "cid")] == ["done", "done"]
