"""Each command has one hold for all its records, zones and partitions. The hold names the author of the command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest
from msgspec.structs import replace

from eventstore.folding.fold import Outcome, RecordMetadata
from eventstore.ids import envelope, uuid7
from eventstore.log import partition_of
from projections.decisions.decided import render
from projections.fleet.views import command_outcome
from projections.fleet.withdrawals.holds import MAX_SHOWN_REASONS
from projections.forwarding.zones_to_fleet import forward
from schemas.events import (
    BudgetSet,
    Envelope,
    Event,
    MembershipChanged,
    NodesJoined,
    NodesLeft,
    NodesSuperseded,
    OutboxAcknowledged,
    PolicySet,
    ZoneUpdated,
)
from tests.support.fleet import HERE, PARTITIONS, Fleet, Item, actual_table, holds, membership
from tests.support.zones import START_MS, ZonesPartition

MANY = 40


def node(i: int) -> Item:
    return Item(f"n{i}", "z0" if i < MANY else "z2", f"10.0.0.{i + 1}")


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    made.change(*(node(i) for i in range(MANY)))
    made.change(*(node(i) for i in range(MANY, 2 * MANY)))
    made.budget("denied-by-leave", 0, 5)
    made.budget("denied-by-change", 0, 5)
    return made


def forward_of(fleet: Fleet, items: Sequence[Item], causes: Mapping[tuple[str, str], int]) -> MembershipChanged:
    """The next forward with these items. `causes` has the number of items by command id and actor."""
    cause = partition_of(items[0].zone.encode(), PARTITIONS)
    mark = fleet.state.marks.get(cause, 0)
    ids, actors = [command_id for command_id, _ in causes], [actor for _, actor in causes]
    event = membership(cause, mark, mark + 1, items)
    return replace(event, command_ids=ids, actors=actors, cause_items=[*causes.values()])


def leave(fleet: Fleet, causes: Mapping[tuple[str, str], range]) -> Outcome:
    """Apply one forward of leaves, with the numbers of the nodes by command id and actor."""
    items = [node(i)._replace(state=1) for found in causes.values() for i in found]
    return fleet.apply(forward_of(fleet, items, {cause: len(found) for cause, found in causes.items()}))


def test_a_record_of_several_commands_makes_a_hold_for_each(fleet: Fleet) -> None:
    outcome = leave(fleet, {("a", "operator/ann"): range(10), ("b", "operator/bob"): range(10, 30)})
    one, other = holds(fleet.state)
    assert outcome.result["hold"] == one.hold
    assert [(hold.command_id, hold.requested_by, hold.node_count, hold.addresses) for hold in (one, other)] == [
        ("a", "operator/ann", 10, 10),
        ("b", "operator/bob", 20, 20),
    ]
    assert one.hash != other.hash
    assert [fleet.approve(one.hold, actor).code for actor in ("cid", "dan")] == ["done", "done"]
    assert [hold.hold for hold in holds(fleet.state)] == [other.hold]
    assert holds(fleet.reload()) == holds(fleet.state)


def test_a_command_in_several_zones_and_partitions_has_one_hold(fleet: Fleet) -> None:
    assert partition_of(b"z0", PARTITIONS) != partition_of(b"z2", PARTITIONS)
    first = leave(fleet, {("a", "operator/ann"): range(10)})
    fleet.approve(first.result["hold"], "cid")
    second = leave(fleet, {("a", "operator/ann"): range(MANY, MANY + 10)})
    [hold] = holds(fleet.state)
    assert first.result["hold"] == second.result["hold"] == hold.hold
    assert (hold.node_count, hold.addresses, hold.approved_by) == (20, 20, ()), (
        "approvals given before the hold grew do not count"
    )
    assert [fleet.approve(hold.hold, actor).code for actor in ("cid", "dan")] == ["done", "done"]
    assert len(fleet.state.members.rows) == 2 * MANY - 20


def test_a_hold_whose_nodes_all_return_continues_with_new_nodes_of_the_same_record(fleet: Fleet) -> None:
    first = leave(fleet, {("a", "operator/ann"): range(10)})
    back, gone = (node(i)._replace(created_ms=2) for i in range(10)), (node(i)._replace(state=1) for i in range(10, 20))
    causes = {("b", "operator/bob"): 10, ("a", "operator/ann"): 10}
    second = fleet.apply(forward_of(fleet, [*back, *gone], causes))
    [hold] = holds(fleet.state)
    assert (hold.hold, hold.node_count, hold.addresses) == (first.result["hold"], 10, 10)
    assert hold.nodes == tuple(f"n{i}" for i in range(10, 20)) and second.result["hold"] == hold.hold
    assert holds(fleet.reload()) == holds(fleet.state)
    assert [fleet.approve(hold.hold, actor).code for actor in ("cid", "dan")] == ["done", "done"]
    assert not holds(fleet.state) and not fleet.state.held_names


def test_a_decision_has_the_address_count_of_each_of_its_holds(fleet: Fleet) -> None:
    leave(fleet, {("a", "operator/ann"): range(10)})
    gone = [node(i)._replace(state=1) for i in range(10, 30)]
    said = forward_of(fleet, gone, {("a", "operator/ann"): 5, ("b", "operator/bob"): 15})
    at = RecordMetadata(HERE, fleet.offset, fleet.now_ms, fleet.time_ms)
    change, outcome = fleet.fold.decide(fleet.state, said, at)
    fleet.apply(said)
    counts = {hold.hold: str(hold.addresses) for hold in holds(fleet.state)}
    told = [items.detail for items in render(said, change, outcome, at) if items.kind == "members_held"]
    assert {int(detail["hold"]): detail["addresses"] for detail in told} == counts == {1: "15", 2: "15"}


def test_a_growing_hold_lists_the_zones_and_reasons_of_all_parts() -> None:
    fleet = Fleet()
    for zone in ("z0", "z2"):
        fleet.describe(zone, {"tier": zone})
        fleet.policy(zone, sources={"of": zone}, zones={"tier": zone})
    fleet.policy("default", priority=-5, sources={"of": "nobody"})
    fleet.change(*(node(i)._replace(labels={"of": "z0"}) for i in range(MANY)))
    fleet.change(*(node(i)._replace(labels={"of": "z2"}) for i in range(MANY, 2 * MANY)))
    fleet.budget("denied-by-leave", 0, 5)
    leave(fleet, {("b", "operator/bob"): range(MANY, MANY + 3)})
    leave(fleet, {("a", "operator/ann"): range(10)})
    [first] = holds(fleet.state)
    why = "would be denied at once, over the denied-by-leave budget; the rule tables keep the previous state"
    assert (first.zones, first.reason) == (("z0",), f"nodes: 10 addresses {why}")
    leave(fleet, {("a", "operator/ann"): range(10, 20)})
    assert holds(fleet.state)[0].reason == f"nodes: 20 addresses {why}", "an equal reason is listed once"
    held = leave(fleet, {("a", "operator/ann"): range(MANY + 3, MANY + 9)})
    [grown] = holds(fleet.state)
    late = (
        "would be denied at once, after 3 in the last 10 minutes, over the denied-by-leave budget; the rule "
        "tables keep the previous state"
    )
    assert (held.result["hold"], grown.hold, grown.zones) == (first.hold, first.hold, ("z0", "z2"))
    assert grown.reason == held.reason == f"nodes: 26 addresses {why}; a later part of the command: {late}"


def test_a_growing_hold_lists_a_limited_number_of_reasons() -> None:
    fleet, rounds = Fleet(), MAX_SHOWN_REASONS + 3
    items = [Item(f"n{i}", "z0", f"10.0.{i >> 7}.{i & 127}") for i in range(1, 2 * rounds * rounds)]
    fleet.change(*items)
    fleet.budget("denied-by-leave", 0, rounds)
    for _ in range(rounds):
        gone = [items.pop()._replace(state=1) for _ in range(rounds + 2)]
        assert fleet.change(gone[0], command_id="single").code == "done", (
            "a leave within the budget changes the count in the next reason"
        )
        assert fleet.change(*gone[1:], command_id="many").code == "held"
    [grown] = holds(fleet.state)
    parts = grown.reason.split("; a later part of the command: ")
    assert (len(parts), parts[-1]) == (MAX_SHOWN_REASONS + 1, "others")


def test_the_counts_of_a_hold_follow_its_remaining_nodes(fleet: Fleet) -> None:
    leave(fleet, {("a", "operator/ann"): range(10)})
    fleet.change(*(node(i)._replace(created_ms=2) for i in range(4)))
    [hold] = holds(fleet.state)
    assert (hold.node_count, hold.addresses) == (6, 6)


def test_the_reason_of_a_hold_has_its_own_count_and_the_count_before(fleet: Fleet) -> None:
    leave(fleet, {("a", "operator/ann"): range(5)})
    held = leave(fleet, {("b", "operator/ann"): range(5, 7), ("c", "operator/bob"): range(7, 17)})
    two, ten = holds(fleet.state)
    late = (
        "as part of 12, after 5 in the last 10 minutes, over the denied-by-leave budget; the rule tables "
        "keep the previous state"
    )
    assert held.reason == two.reason == f"nodes: 2 addresses would be denied at once, {late}"
    assert (ten.addresses, ten.reason) == (10, f"nodes: 10 addresses would be denied at once, {late}")
    fleet.change(*(node(i)._replace(created_ms=2) for i in range(7, 11)))
    assert holds(fleet.state)[1].reason == f"nodes: 6 addresses would be denied at once, {late}"


def test_a_hold_of_nodes_that_already_wait_names_their_zones(fleet: Fleet) -> None:
    fleet.change(*(node(i)._replace(address=f"10.1.0.{i + 1}", changed_ms=2) for i in range(10)), command_id="a")
    fleet.change(*(node(i)._replace(address=f"10.2.0.{i + 1}", changed_ms=3) for i in range(10)), command_id="b")
    [hold] = holds(fleet.state)
    reason = (
        "nodes: 10 addresses of nodes whose last change waits for approval; the rule tables keep the previous state"
    )
    assert (hold.command_id, hold.zones, hold.reason) == ("b", ("z0",), reason)


def test_every_hold_has_the_id_of_its_command(fleet: Fleet) -> None:
    def by(command_id: str) -> Envelope:
        return Envelope(command_id, "", "operator/ann", 0)

    fleet.describe("z2", {"tier": "t"})
    fleet.apply(PolicySet(by("p"), "no", 0, "drop", "any", [], {}, {}))
    fleet.apply(PolicySet(by("c"), "not-there", 0, "drop", "any", [], {}, {"tier": "none"}))
    fleet.apply(ZoneUpdated(by("z"), "z0", True, {"tier": "none"}, -1, -1))
    fleet.apply(BudgetSet(by("b"), "denied-by-leave", 500, 5))
    assert [(hold.subject, hold.command_id) for hold in holds(fleet.state)] == [
        ("policy", "p"),
        ("zone", "z"),
        ("budget", "b"),
    ]


def test_an_edit_and_nodes_under_one_command_id_have_separate_holds(fleet: Fleet) -> None:
    edit = fleet.apply(PolicySet(Envelope("a", "", "operator/ann", 0), "no", 0, "drop", "any", [], {}, {}))
    held = leave(fleet, {("a", "operator/ann"): range(10)})
    found = {hold.hold: (hold.subject, hold.node_count) for hold in holds(fleet.state)}
    assert found == {edit.result["hold"]: ("policy", 0), held.result["hold"]: ("members", 10)}


def test_a_person_who_requested_a_leave_cannot_approve_it(fleet: Fleet) -> None:
    held = leave(fleet, {("a", "operator/ann"): range(10)})
    refused = fleet.approve(held.result["hold"], "approver/ann")
    assert refused.reason == "principal: 'approver/ann' requested this change, so other principals must approve it"
    before = actual_table(fleet.state, "z0")
    assert [fleet.approve(held.result["hold"], actor).code for actor in ("bob", "cid")] == ["done", "done"]
    assert actual_table(fleet.state, "z0") != before


@pytest.mark.parametrize(
    "wrong",
    [
        {"command_ids": ["a"]},
        {"command_ids": ["a"], "actors": ["x"], "cause_items": [3]},
        {"command_ids": ["a", "b"], "actors": ["x", "y"], "cause_items": [2, 0]},
    ],
)
def test_causes_that_do_not_match_the_items_are_refused(fleet: Fleet, wrong: dict[str, list[str]]) -> None:
    event = membership(0, 0, 1, [node(0), node(1)])
    assert fleet.apply(replace(event, cause_partition=3, **wrong)).reason.startswith("cause_items: ")


# --- from the command to the forward ----------------------------------------------------------------------------------


def envelope_of(command_id: str, actor: str) -> Envelope:
    return Envelope(command_id, "z1", actor, 0)


def joined(command_id: str, *names: str, actor: str = "operator/ann") -> NodesJoined:
    return NodesJoined(envelope_of(command_id, actor), "z1", list(names), [], [], b"", b"", [], [])


def left(command_id: str, *names: str, actor: str = "operator/ann") -> NodesLeft:
    return NodesLeft(envelope_of(command_id, actor), "z1", list(names), [], [], False, b"")


def causes(log: ZonesPartition, mark: int = 0) -> list[tuple[str, str, int]]:
    event = forward(log.state, 0, mark)
    assert event is not None
    return list(zip(event.command_ids, event.actors, event.cause_items, strict=True))


def logged(*events: Event) -> ZonesPartition:
    log = ZonesPartition()
    for event in events:
        log.append(event)
    return log


def test_a_forward_names_its_commands_and_their_actors() -> None:
    log = logged(joined("j", "a", "b", "c", "d"), joined("k", "e"), left("l", "b", "c", actor="operator/bob"))
    assert causes(log) == [("j", "operator/ann", 2), ("", "operator/ann", 1), ("l", "operator/bob", 2)]
    assert causes(log, 2) == [("l", "operator/bob", 2)]
    log.append(OutboxAcknowledged(envelope_of("", "forwarder/a"), 3))
    assert log.state.causes.rows == {}


def test_single_joins_of_new_nodes_by_one_principal_share_one_row() -> None:
    log = logged(joined("j", "a"), joined("k", "b"), joined("l", "c", actor="operator/bob"), joined("m", "d", "e"))
    log.append(joined("n", "f", actor="operator/bob"))
    log.append(NodesSuperseded(envelope_of("", "fleet/0"), 0, 1, ["z1"], ["b"], [0], ["k"], 6))
    assert {at: row.actor for at, row in log.state.join_actors.rows.items()} == {
        "0": "operator/ann",
        "2": "operator/bob",
    }
    expected = [("", "operator/ann", 1), ("", "operator/bob", 1), ("m", "operator/ann", 2), ("", "operator/bob", 1)]
    assert causes(log) == [*expected, ("", "", 1)], "a superseded node has no command"
    assert list(log.state.causes.rows) == ["3"]
    log.append(OutboxAcknowledged(envelope_of("", "forwarder/a"), 2))
    assert list(log.state.join_actors.rows) == ["2"]
    assert causes(log, 2) == [*expected[1:], ("", "", 1)]
    log.append(joined("o", "g", actor="operator/bob"))
    assert list(log.state.join_actors.rows) == ["2"], "the same principal needs no further row"


def test_single_joins_of_one_principal_have_one_cause() -> None:
    log = logged(joined("j", "a"), joined("k", "b"))
    assert causes(log) == [("", "operator/ann", 2)]
    log.append(joined("l", "c", actor=""))
    log.append(joined("m", "d"))
    assert causes(log) == [("", "operator/ann", 2), ("", "", 1), ("", "operator/ann", 1)]
    assert causes(logged(joined("j", "a", actor=""))) == []


def test_a_single_join_with_a_stated_uid_keeps_its_command_until_it_is_forwarded() -> None:
    def stated(command_id: str, name: str, actor: str) -> NodesJoined:
        return replace(joined(command_id, name, actor=actor), created_ms=[START_MS], uids=[f"uid-{name}"])

    log = logged(joined("j", "a"), stated("k", "b", "operator/ann"), stated("l", "c", "operator/bob"), joined("m", "d"))
    asked = [("", "operator/ann", 1), ("k", "operator/ann", 1), ("l", "operator/bob", 1), ("", "operator/ann", 1)]
    assert causes(log) == asked
    log.append(OutboxAcknowledged(envelope_of("", "forwarder/a"), 2))
    assert (causes(log, 2), list(log.state.causes.rows)) == (asked[2:], ["2"])


def alone(rng: Random, zone: str, uid: str = "") -> NodesJoined:
    """A join of one node that fleet has in another zone, with another address."""
    stated = ([START_MS + 1], [uid]) if uid else ([], [])
    asked = envelope(zone, "operator/joe", uuid7(START_MS, rng))
    return NodesJoined(asked, zone, ["n0"], *stated, bytes((10, 9, 9, 9)), b"", [], [])


@pytest.mark.parametrize("uid", ["", "stated"])
def test_a_person_who_moves_a_single_node_cannot_approve_it(fleet: Fleet, uid: str) -> None:
    fleet.budget("denied-by-change", 0, 0)
    log = ZonesPartition()
    event = alone(Random(1), "z2", uid)
    log.append(event)
    said = forward(log.state, 0, 0)
    assert said is not None
    cause = partition_of(b"z2", PARTITIONS)
    mark = fleet.state.marks[cause]
    held = fleet.apply(replace(said, cause_partition=cause, from_offset=mark, to_offset=mark + 1))
    assert held.code == "held"
    [hold] = holds(fleet.state)
    told = command_outcome(fleet.state, event.envelope.command_id)
    assert told is not None and (told.code, told.hold) == ("held", hold.hold)
    assert (hold.requested_by, hold.command_id) == ("operator/joe", event.envelope.command_id)
    assert fleet.approve(held.result["hold"], "approver/joe").code == "refused"
    assert [fleet.approve(held.result["hold"], actor).code for actor in ("approver/ann", "approver/bob")] == [
        "done",
        "done",
    ]


def test_an_equal_command_id_of_another_person_has_a_separate_hold(fleet: Fleet) -> None:
    leave(fleet, {("a", "operator/ann"): range(10)})
    leave(fleet, {("a", "operator/joe"): range(MANY, MANY + 10)})
    assert [(hold.requested_by, hold.node_count) for hold in holds(fleet.state)] == [
        ("operator/ann", 10),
        ("operator/joe", 10),
    ]


def test_a_command_whose_effects_were_overtaken_is_forgotten() -> None:
    log = logged(joined("j", "a", "b"), left("l", "a", "b"))
    assert list(log.state.causes.rows) == ["1"]
