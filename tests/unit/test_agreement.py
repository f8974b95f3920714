"""Agreement of zones and fleet, as `verify` finds it in a log: equal, in flight, held, and different nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from deploy.composition.roles import folds_of
from deploy.operations.audit.agreement import Agreement, DifferenceGroup, FoldObserver, compare
from deploy.operations.audit.verification import RefoldedLog, refold_log
from drivers.forwarder import Forwarder
from eventstore.avro.codec import encode
from eventstore.ids import internal_envelope
from eventstore.log import FLEET_0, ZONES, Partition
from eventstore.replicas.replica import Answer
from projections.fleet.membership.tombstones import Tombstone, Tombstones
from projections.fleet.tables.zone_table import table
from projections.fleet.withdrawals.budgets import DENIED_BY_CHANGE, DENIED_BY_LEAVE
from projections.forwarding.zones_to_fleet import forward
from schemas.events import BudgetSet, Event, HoldApproved, HoldRejected, NodesJoined
from tests.support.memory_plane import Plane, plane
from tests.support.virtual_loop import run_virtual

NODES = [f"n{number}" for number in range(200)]
HOME, OTHER = "z1", "z0"
"""Two zones in different partitions."""


def forwarder(made: Plane) -> None:
    found = Forwarder(made.replicas["r1"], made.ranks("r1"), now_ms=made.now_ms, rng=made.rng())
    made.spawn("r1", found.run())


async def fresh_of(made: Plane) -> RefoldedLog:
    return await refold_log(made.log, folds_of(made.log.partition_count), ())


def found_in(scenario: Callable[[Plane], Coroutine[Any, Any, None]]) -> RefoldedLog:
    """The verification of the log of a plane with a forwarder, 5 s after the scenario."""

    async def run() -> RefoldedLog:
        async with plane() as made:
            await made.add("r1")
            assert made.partition(HOME) != made.partition(OTHER)
            forwarder(made)
            made.log.failures.append_latency_s = 0.02
            await scenario(made)
            await asyncio.sleep(5)
            return await fresh_of(made)

    return run_virtual(run())


def address(number: int) -> bytes:
    return bytes((10, 0, number >> 8, number & 255))


async def join(made: Plane, zone: str, number: int) -> None:
    event = NodesJoined(made.command(zone), zone, [NODES[number]], [], [], address(number), b"", [], [])
    assert (await made.submit(zone, event)).outcome.code == "done"


async def budget(made: Plane, permille: int, kind: str = DENIED_BY_LEAVE) -> None:
    """Set a budget for denials. Two people approve it if it is looser."""
    answer = await to_fleet(made, BudgetSet(made.command(""), kind, permille, 0))
    for person in ("?bob", "?cid") if answer.outcome.code == "held" else ():
        hold = made.fleet().holds.rows[str(answer.outcome.result["hold"])]
        await to_fleet(made, HoldApproved(replace(made.command(""), actor=person), hold.id, hold.hash))
    assert made.fleet().budgets.rows[kind].permille == permille


async def to_fleet(made: Plane, event: Event) -> Answer:
    return await made.replicas["r1"].submit(FLEET_0, b"", event, timeout_s=5.0)


async def move_and_leave(made: Plane) -> None:
    """200 nodes join a zone, and half a second later join another one and leave it at once, while forwards go on."""

    async def go(number: int) -> None:
        await asyncio.sleep(0.005 * number)
        await join(made, OTHER, number)
        assert (await made.leave(OTHER, NODES[number])).outcome.code == "done"

    await budget(made, 1_000)
    await asyncio.gather(*(join(made, HOME, number) for number in range(len(NODES))))
    await asyncio.sleep(0.5)
    await asyncio.gather(*map(go, range(len(NODES))))


def test_nodes_that_move_and_leave_at_once_are_in_no_zone() -> None:
    fresh = found_in(move_and_leave)
    assert fresh.agreement == Agreement(0, 0, 0, ())
    assert fresh.differences == ()
    rows = [f.state.nodes.rows for p, f in fresh.replayed.partitions.items() if p.topic == ZONES]
    assert not any(rows) and not fresh.fleet.members.rows and not fresh.fleet.holds.rows
    assert [sum(found.prefixes.size() for found in table(fresh.fleet, zone).sets) for zone in (HOME, OTHER)] == [0, 0]


def test_nodes_that_stay_after_a_leave_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """All folds and devices agree with each other, and only the statements in the log show the error."""
    monkeypatch.setattr(Tombstone, "ends_known", lambda *_: False)
    monkeypatch.setattr(Tombstones, "note", lambda *_: None)
    fresh = found_in(move_and_leave)
    (group,) = fresh.agreement.groups
    assert group.what == f"that zone {HOME} has, in spite of a leave from zone {OTHER}"
    assert set(group.names) == set(fresh.fleet.members.rows) and group.names
    assert fresh.differences == (str(group),)


def test_nodes_that_moved_are_equal() -> None:
    async def scenario(made: Plane) -> None:
        await asyncio.gather(*(join(made, HOME, number) for number in range(9)))
        await asyncio.gather(*(join(made, OTHER, number) for number in range(3)))
        await made.leave(HOME, NODES[8])

    assert found_in(scenario).agreement == Agreement(8, 0, 0, ())


def test_a_node_kept_by_a_hold_is_counted_as_held() -> None:
    async def scenario(made: Plane) -> None:
        await budget(made, 0)
        await join(made, HOME, 0)
        await asyncio.sleep(1)
        await made.leave(HOME, NODES[0])

    assert found_in(scenario).agreement == Agreement(0, 0, 1, ())


async def withhold(made: Plane) -> None:
    """One of three nodes leaves, and another changes its address. The budgets hold both changes."""
    for kind in (DENIED_BY_LEAVE, DENIED_BY_CHANGE):
        await budget(made, 0, kind)
    await asyncio.gather(*(join(made, HOME, number) for number in range(3)))
    await asyncio.sleep(1)
    await made.leave(HOME, NODES[0])
    moved = NodesJoined(made.command(HOME), HOME, [NODES[1]], [], [], address(99), b"", [], [])
    assert (await made.submit(HOME, moved)).outcome.code == "done"
    await asyncio.sleep(1)


def test_a_node_with_a_held_change_is_counted_as_held() -> None:
    assert found_in(withhold).agreement == Agreement(1, 0, 2, ())


def test_nodes_of_rejected_holds_are_counted_apart_from_held_ones() -> None:
    async def scenario(made: Plane) -> None:
        await withhold(made)
        for hold in list(made.fleet().holds.rows.values()):
            rejection = HoldRejected(replace(made.command(""), actor="?bob"), hold.id)
            assert (await to_fleet(made, rejection)).outcome.code == "done"

    assert found_in(scenario).agreement == Agreement(1, 0, 0, (), leave_rejected=1, change_rejected=1)


async def cut(made: Plane, *, forwarded: str) -> Agreement:
    """The agreement after a node joined a zone, was forwarded, and joined another zone; then one zone is forwarded."""
    await made.add("r1")
    await join(made, HOME, 0)
    await tell_fleet(made, HOME)
    await join(made, OTHER, 0)
    if forwarded:
        await tell_fleet(made, forwarded)
    return (await fresh_of(made)).agreement


async def tell_fleet(made: Plane, zone: str) -> None:
    number = made.partition(zone).number
    event = forward(made.zone(zone), number, made.fleet().marks.get(number, 0))
    assert event is not None
    said = replace(event, envelope=internal_envelope("fleet", "test", made.now_ms()))
    await made.log.append(FLEET_0, b"", encode(said))
    await made.until(lambda: made.fleet().marks.get(number, 0) == event.to_offset)


@pytest.mark.parametrize(("forwarded", "equal"), [("", 1), (OTHER, 1)])
def test_a_node_with_a_pending_forward_or_delivery_is_pending(forwarded: str, equal: int) -> None:
    """Before the forward the node of the new zone is pending, and after it the node of the old zone."""

    async def run() -> Agreement:
        async with plane() as made:
            return await cut(made, forwarded=forwarded)

    assert run_virtual(run()) == Agreement(equal, 1, 0, ())


def test_a_leave_that_is_not_forwarded_yet_is_pending() -> None:
    async def run() -> Agreement:
        async with plane() as made:
            await cut(made, forwarded=OTHER)
            await made.leave(OTHER, NODES[0])
            return (await fresh_of(made)).agreement

    assert run_virtual(run()).groups == ()


DIFFERENCES: dict[str, Callable[[Any, Any], None]] = {
    "that zone z1 has, and fleet does not have": lambda zone, fleet: fleet.members.remove("n0"),
    "that zone z1 has, and fleet has in zone z9": lambda zone, fleet: put(fleet, zone="z9"),
    "that zone z1 has, and fleet has in another incarnation": lambda zone, fleet: put(fleet, uid="another"),
    "that zone z1 has, and fleet has with other addresses": lambda zone, fleet: put(fleet, address4=1),
    "that zone z1 has, and fleet has with other labels": lambda zone, fleet: put(fleet, labels={"a": "b"}),
    "that fleet has in zone z1, and the zone does not have": lambda zone, fleet: zone.nodes.remove("n0"),
}


def put(fleet: Any, **changes: Any) -> None:
    fleet.members.put("n0", replace(fleet.members.rows["n0"], **changes))


@pytest.mark.parametrize("what", DIFFERENCES)
def test_each_kind_of_difference_is_a_separate_group(what: str) -> None:
    async def scenario(made: Plane) -> None:
        await join(made, HOME, 0)

    fresh = found_in(scenario)
    partitions = fresh.replayed.partitions
    number = next(p.number for p, f in partitions.items() if p.topic == ZONES and f.state.nodes.rows)
    DIFFERENCES[what](partitions[Partition(ZONES, number)].state, fresh.fleet)
    groups = compare(partitions, FoldObserver()).groups
    assert DifferenceGroup(what, ("n0",)) in groups


def test_a_group_has_its_count_and_the_first_names() -> None:
    assert str(DifferenceGroup("lost", ("a",))) == "1 node lost: a"
    names = tuple(f"n{number:04d}" for number in range(1_234))
    assert str(DifferenceGroup("lost", names)).startswith("1,234 nodes lost: n0000, n0001, ")
    assert str(DifferenceGroup("lost", names)).endswith("n0009 and 1,224 more")
