"""A history contains every decision of a log about its subject: filtering before rendering misses none."""

from __future__ import annotations

import pytest

from deploy.composition.roles import folds_of
from deploy.composition.topics import TOPICS
from deploy.operations.past.history import ITEMS_SHOWN, Happening, history
from eventstore.avro.codec import decode, encode
from eventstore.folding.fold import RecordMetadata, folds_by_version
from eventstore.folding.partition import FoldedPartition
from eventstore.log import FLEET_0, ZONES
from projections.decisions.decided import render
from projections.decisions.histories import about
from projections.decisions.items import DecisionItem as Told
from projections.decisions.items import flattened
from schemas.events import BudgetSet, Envelope, HoldApproved, HoldRejected, IndicesReleased, LogCreated, NodesJoined
from tests.support.decision_writers import DecidingPlane, deciding_plane
from tests.support.decisions import DecisionRecorder
from tests.support.fleet import Fleet, Item
from tests.unit.test_decisions import run_a_day

pytestmark = pytest.mark.virtual_clock


async def happenings_of(world: DecidingPlane, subject: str) -> list[Happening]:
    return await history(world.log, folds_of(2), subject, lambda done, total: None)


def subjects_by_record(world: DecidingPlane) -> dict[tuple[str, int], set[str]]:
    """The subjects, zones and cliques of the decision about each record, computed by a separate fold."""
    found: dict[tuple[str, int], set[str]] = {}
    origin = decode(world.contents.records[FLEET_0][0].value)
    assert isinstance(origin, LogCreated)
    for topic, versions in folds_by_version(folds_of(2)).items():
        for partition, records in world.contents.records.items():
            if partition.topic == topic and partition.topic in TOPICS.deciding:
                recorder = DecisionRecorder()
                folded = FoldedPartition(partition, versions, origin.log_id, recorder)
                for record in records:
                    folded.fold(record)
                for event, change, outcome, at, _, _ in recorder.decisions:
                    items = flattened(render(event, change, outcome, at))
                    about = {name for i in items for name in (i.subject, i.detail.get("zone"), i.detail.get("clique"))}
                    found[str(partition), at.offset] = {name for name in about if name}
    return found


async def test_every_decision_about_a_subject_is_in_its_history() -> None:
    async with deciding_plane(3) as world:
        await world.start("api", "api")
        await run_a_day(world, 1)
        for number in range(40):  # a run of joins, which histories fold at once
            name, zone = f"m{number}", f"z{number % 3}"
            event = NodesJoined(world.command(zone), zone, [name], [], [], b"", b"", [], [])
            world.contents.add(TOPICS.partition_for(ZONES, zone, 2), world.now_ms(), zone.encode(), encode(event))
        await world.say("cliques", "d", IndicesReleased(world.command("d", "ann"), "d", "c", ["n1-2"], []))
        await world.say("fleet", "7", HoldApproved(world.command("7"), 7, b"x"))
        world.kill_all()
        decisions = subjects_by_record(world)
        subjects = set().union(*decisions.values())
        assert subjects >= {"n1-0", "m7", "dpu1", "z0", "d/c", "p1", "nobody", "7"}
        for subject in subjects:
            places = [(found.partition, found.offset) for found in await happenings_of(world, subject)]
            expected = {place for place, about in decisions.items() if subject in about}
            assert expected <= {*places}
            assert len(places) == len({*places})


async def test_a_history_entry_has_time_place_actor_and_decision() -> None:
    async with deciding_plane(3) as world:
        await world.start("api", "api")
        await run_a_day(world, 1)
        await world.say("cliques", "d", IndicesReleased(world.command("d", "ann"), "d", "c", ["n1-2"], []))
        world.kill_all()
        happened = await happenings_of(world, "n1-2")
        events = {found.event for found in happened}
        assert events == {"NodesJoined", "MembershipChanged", "IndicesClaimed", "IndicesReleased"}
        assert [found.time_ms for found in happened] == sorted(found.time_ms for found in happened)
        released = happened[-1]
        assert (released.actor, released.outcome) == ("ann", "done")
        assert ("index_released", "n1-2") in [item[:2] for item in released.items]
        freed = (await happenings_of(world, "n1-18"))[-1]  # the first waiting node, which the record does not name
        assert (freed.event, freed.items[0].kind) == ("IndicesReleased", "index_assigned")
        assert all(len(found.items) <= ITEMS_SHOWN for found in await happenings_of(world, "z0"))
        assert await happenings_of(world, "never-heard-of") == []


def test_a_rejected_edit_is_in_the_history_of_its_subject() -> None:
    fleet = Fleet()
    fleet.change(*(Item(f"n{i}", "z0", f"10.0.0.{i + 1}") for i in range(9)))
    fleet.policy("none", action="drop", zones={"tier": "none"})
    fleet.budget("denied-by-change", 0, 0)
    edits = {
        "z0": ("zone", fleet.describe("z0", {"tier": "none"})),
        "no": ("policy", fleet.policy("no", action="drop")),
        "denied-by-leave": (
            "budget",
            fleet.apply(BudgetSet(Envelope("", "", "ann", 0), "denied-by-leave", 999, 9_999)),
        ),
    }
    for subject, (kind, asked) in edits.items():
        event = HoldRejected(Envelope("", str(asked.result["hold"]), "eve", 0), asked.result["hold"])
        at = RecordMetadata(FLEET_0, fleet.offset, fleet.now_ms, fleet.time_ms)
        change, outcome = fleet.fold.decide(fleet.state, event, at)
        told = Told(f"{kind}_edit_rejected", subject, {"by": "eve", "hold": str(asked.result["hold"])})
        assert about(subject, event, change, outcome, at) == [told]
        assert about("z1", event, change, outcome, at) == []


def test_a_rejection_is_in_the_history_of_each_node_that_the_hold_kept() -> None:
    fleet = Fleet()
    fleet.budget("denied-by-leave", 0, 0)
    fleet.change(*(Item(f"n{i}", "z0", f"10.0.0.{i + 1}") for i in range(9)))
    hold = fleet.leave("n1", "n2").result["hold"]
    event = HoldRejected(Envelope("", str(hold), "eve", 0), hold)
    at = RecordMetadata(FLEET_0, fleet.offset, fleet.now_ms, fleet.time_ms)
    change, outcome = fleet.fold.decide(fleet.state, event, at)
    for name in ("n1", "n2"):
        assert about(name, event, change, outcome, at) == [Told("member_rejected", name, {"hold": str(hold)})]
    assert about("n3", event, change, outcome, at) == []
