"""Outcomes of commands in fleet, stored by command id: held, approved, rejected, or without effect."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eventstore.log import partition_of
from projections.fleet.membership.contested import faults_of_agent
from projections.fleet.views import command_outcome
from projections.fleet.withdrawals import command_outcomes
from projections.fleet.withdrawals.command_outcomes import CommandOutcome
from schemas.events import BudgetSet, Envelope, PolicySet, ZoneUpdated
from tests.support.fleet import PARTITIONS, Fleet, Item, membership, saved_bytes

BY_AGENT = 10
"""State of an item whose agent stated the zone and both addresses."""


def node(i: int) -> Item:
    return Item(f"n{i}", "z0", f"10.0.0.{i + 1}")


def with_a_leave_held(command_id: str) -> tuple[Fleet, int]:
    fleet = Fleet()
    fleet.change(*map(node, range(20)))
    fleet.budget("denied-by-leave", 0, 3)
    held = fleet.change(*(node(i)._replace(state=1) for i in range(10)), command_id=command_id)
    assert held.code == "held"
    return fleet, held.result["hold"]


def test_a_command_is_held_until_its_hold_is_approved() -> None:
    fleet, hold = with_a_leave_held("a")
    assert command_outcome(fleet.state, "b") is None
    assert command_outcome(fleet.state, "") is None
    reason = f"hold {hold} keeps the previous state in the rule tables: the change is over the budget"
    assert command_outcome(fleet.state, "a") == CommandOutcome("held", reason, hold, -1)
    fleet.approve(hold, "bob")
    assert command_outcome(fleet.state, "a") == CommandOutcome("held", reason, hold, -1)
    fleet.approve(hold, "cid")
    assert command_outcome(fleet.state, "a") == CommandOutcome(
        "done", f"hold {hold} was approved by 'bob' and 'cid'", hold, fleet.offset - 1
    )


def edits_held(command_id: str) -> tuple[Fleet, list[int]]:
    """A fleet with a held policy, held labels of a zone and a held budget, and the ids of the holds."""
    fleet, said = Fleet(), Envelope(command_id, "", "ann", 0)
    fleet.change(*map(node, range(20)))
    fleet.budget("denied-by-change", 0, 3)
    fleet.policy("none", action="drop", zones={"tier": "none"})
    events = (
        PolicySet(said, "no", 0, "drop", "any", [], {}, {}),
        ZoneUpdated(said, "z0", True, {"tier": "none"}, -1, -1),
        BudgetSet(said, "denied-by-leave", 500, 5),
    )
    outcomes = [fleet.apply(event) for event in events]
    assert [outcome.code for outcome in outcomes] == ["held", "held", "held"]
    return fleet, [outcome.result["hold"] for outcome in outcomes]


@pytest.mark.parametrize(
    "closed", ["approved by 'bob' and 'cid'", "rejected by 'eve': the rule tables keep the previous state"]
)
def test_a_held_edit_is_done_or_refused_when_its_hold_is_closed(closed: str) -> None:
    fleet, found = edits_held("a")
    for hold in found:
        assert command_outcome(fleet.state, "a", hold) is None
        if closed.startswith("rejected"):
            fleet.reject(hold)
        else:
            assert [fleet.approve(hold, by).code for by in ("bob", "cid")] == ["done", "done"]
        said = command_outcome(fleet.state, "a", hold)
        assert said is not None and (said.hold, said.offset) == (hold, fleet.offset - 1)
        assert said.code == ("refused" if closed.startswith("rejected") else "done")
        assert said.reason == f"hold {hold} was {closed}"
        assert command_outcome(fleet.reload(), "b", hold) == said


def test_a_held_edit_replaced_by_a_later_one_is_refused() -> None:
    fleet, (policy, zone, budget) = edits_held("a")
    fleet.delete_policy("no")
    fleet.describe("z0", {})
    fleet.budget("denied-by-leave", 1, 1)
    for hold in (policy, zone, budget):
        said = command_outcome(fleet.state, "a", hold)
        assert said is not None and (said.code, said.hold) == ("refused", hold)
        assert said.reason.startswith(f"hold {hold} ended without approval: ")


def test_a_command_with_a_rejected_hold_stays_refused() -> None:
    fleet, hold = with_a_leave_held("a")
    fleet.reject(hold)
    reason = f"hold {hold} was rejected by 'eve': the rule tables keep the previous state"
    assert command_outcome(fleet.state, "a") == CommandOutcome(
        "refused", reason, hold, fleet.offset - 1, "HOLD_REJECTED", {"hold": str(hold), "rejected_by": "eve"}
    )
    fleet.change(*(node(i)._replace(created_ms=2) for i in range(10)))
    assert not fleet.state.rejected.rows
    said = command_outcome(fleet.state, "a")
    assert said is not None and said.reason == reason
    assert command_outcome(fleet.reload(), "a") == said


def test_a_statement_of_an_agent_without_effect_stays_refused() -> None:
    fleet = Fleet()
    fleet.change(Item("a", "z0", "10.0.0.1"))
    fleet.change(Item("b", "z0", "10.0.0.1", state=BY_AGENT), command_id="taken")
    fleet.change(Item("c", "z0", "10.0.0.3", state=BY_AGENT), command_id="free")
    fleet.change(Item("a", "z2", "10.0.0.4", state=BY_AGENT, created_ms=2), command_id="moved")
    (withheld,) = faults_of_agent(fleet.state, "b", "z0")
    fleet.leave("a")
    assert faults_of_agent(fleet.state, "b", "z0") == ()
    assert command_outcome(fleet.state, "free") is None
    taken, moved = command_outcome(fleet.state, "taken"), command_outcome(fleet.state, "moved")
    assert taken is not None and (taken.code, taken.reason, taken.hold) == ("refused", withheld, -1)
    assert moved is not None and "a node agent cannot move a node" in moved.reason


def test_the_oldest_outcomes_are_forgotten_first() -> None:
    table = command_outcomes.CommandOutcomes()
    for offset in range(command_outcomes.MAX_OUTCOMES + 2):
        table.note({f"c{max(offset, 1)}": CommandOutcome("refused", "no", -1, offset)})
    assert len(table.rows) == command_outcomes.MAX_OUTCOMES
    assert "c1" not in table.rows and "c2" in table.rows
    again = command_outcomes.CommandOutcomes()
    again.load([*table.rows.items()][::-1])
    again.rederive()
    again.note({"new": CommandOutcome("refused", "no", -1, command_outcomes.MAX_OUTCOMES + 2)})
    assert "c2" not in again.rows and "c3" in again.rows
    assert len(again.rows) == command_outcomes.MAX_OUTCOMES


def test_a_restarted_replica_forgets_the_same_outcomes_as_others() -> None:
    fleet = Fleet()
    fleet.change(Item("a", "z0", "10.0.0.1"))
    cause, agents = partition_of(b"z0", PARTITIONS), [Item(n, "z0", "10.0.0.1", state=BY_AGENT) for n in ("b", "c")]
    event = membership(cause, 1, 2, agents)
    fleet.apply(replace(event, command_ids=["2", "1"], actors=["agent/b", "agent/c"], cause_items=[1, 1]))
    assert {*fleet.state.command_outcomes.rows} == {"1", "2"}
    others = {
        f"c{n}": CommandOutcome("refused", "no", -1, fleet.offset) for n in range(command_outcomes.MAX_OUTCOMES - 1)
    }
    restarted = fleet.reload()
    for state in (fleet.state, restarted):
        state.command_outcomes.note(others)
    assert saved_bytes(fleet.state) == saved_bytes(restarted)


def test_outcomes_survive_a_restart() -> None:
    fleet, hold = with_a_leave_held("a")
    fleet.reject(hold)
    assert saved_bytes(fleet.reload()) == saved_bytes(fleet.state)
