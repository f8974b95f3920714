"""The decisions topic equals the decisions of a new fold of the log, after crashes and with several writers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.composition.roles import folds_of
from deploy.composition.topics import TOPICS
from deploy.operations.export.events import EventFilter
from deploy.operations.past.folded_decisions import decision_batches
from drivers.decisions.written import cause_of
from eventstore.avro.codec import decode, encode
from eventstore.folding.partition import FoldedPartition
from eventstore.log import CLIQUES, DECISIONS, ZONES, Partition, Record
from projections.decisions.decided import MAX_TEXT
from projections.zones.fold import ZonesFold
from schemas.events import (
    DpuRegistered,
    Envelope,
    Event,
    IndicesClaimed,
    LifecycleRequested,
    NodesJoined,
    NodesLeft,
    PolicySet,
)
from tests.support.decision_writers import DecidingPlane, deciding_plane
from tests.support.decisions import DecisionRecorder, items_of, rendered
from tests.support.toy_records import LOG_ID
from tests.unit.test_runs import join, log_of

pytestmark = pytest.mark.virtual_clock

ZONES_0 = Partition(ZONES, 0)


def recorded(records: Sequence[Record], *, together: bool) -> DecisionRecorder:
    recorder = DecisionRecorder()
    folded = FoldedPartition(ZONES_0, {1: ZonesFold()}, LOG_ID, recorder)
    start = 0
    while start < len(records):
        if together:
            start, _ = folded.fold_next(records, start, len(records))
        else:
            folded.fold(records[start])
            start += 1
    return recorder


@settings(max_examples=25)
@given(st.lists(st.integers(0, 400), min_size=20, max_size=120), st.data())
def test_a_run_of_joins_has_the_decisions_of_single_joins(numbers: list[int], data: st.DataObject) -> None:
    events: list[Event | bytes] = [join(number) for number in numbers]
    events.insert(
        data.draw(st.integers(0, len(events))), NodesLeft(join(9).envelope, "z0", ["node-3"], [], [], False, b"")
    )
    records = log_of(events)
    assert recorded(records, together=True).records() == recorded(records, together=False).records()


def test_a_listener_gets_a_run_as_one_decision_with_all_joins() -> None:
    recorder = recorded(log_of([join(number) for number in range(60)]), together=True)
    assert recorder.runs == 1
    (item,) = items_of(rendered(recorder.decisions[4]))
    assert item == ("node_joined", "node-4", {"zone": "z1"})


def test_items_that_do_not_fit_a_record_are_counted() -> None:
    names = [f"{number:04d}-{'n' * 240}" for number in range(1_000)]
    said = join(1).envelope
    first = NodesJoined(said, "z0", names, [], [], b"", b"", [], [])
    decided_record = recorded(log_of([first]), together=False).decisions[0]
    nodes = {
        f"{name}{i}": node for name, node in zip(names, decided_record.change.new.rows(), strict=True) for i in range(4)
    }
    many = decided_record._replace(change=decided_record.change._replace(new=None, nodes=nodes))
    found = [*items_of(rendered(many))]
    assert found[-1].kind == "not_listed"
    assert len(found) - 1 + int(found[-1].detail["items"]) == 4_000
    assert len(encode(rendered(many))) < MAX_TEXT * 1.1


@pytest.mark.parametrize("text", ["s" * 540_000, "s" * 1_048_500, "\N{LATIN SMALL LETTER O WITH DIAERESIS}" * 300_000])
async def test_the_decision_on_a_record_with_a_long_envelope_fits_the_log(text: str) -> None:
    async with deciding_plane(1) as world:
        await world.start("api", "api", acts=False)
        await world.start("one", "decisions")
        said = Envelope("", text, "another program", world.now_ms())
        await world.say(ZONES, "z", NodesLeft(said, "unknown", ["n"], [], [], False, b""))
        world.joined(1)
        await asyncio.sleep(60)
        place = TOPICS.partition_for(ZONES, "z", world.log.partition_count)
        assert world.causes(place)[-1] == await world.log.end(place) - 1


async def run_a_day(world: DecidingPlane, day: int) -> None:
    """Append commands with decisions of every kind."""
    for number in range(25):
        name, zone = f"n{day}-{number}", f"z{number % 3}"
        address = (10 << 24 | day << 16 | number + 1).to_bytes(4, "big")
        await world.say(ZONES, zone, NodesJoined(world.command(zone), zone, [name], [], [], address, b"", [], []))
        claim = IndicesClaimed(world.command("d"), "d", "c", [name], [], [], [], [])
        await world.say(CLIQUES, "d", claim)
        await asyncio.sleep(world.draws.uniform(0, 0.1))
    await world.say(ZONES, "z0", DpuRegistered(world.command("d"), "z0", f"dpu{day}", "", "", "simulated:x"))
    await world.say(ZONES, "z0", LifecycleRequested(world.command("d"), "z0", f"dpu{day}", "provision", "image"))
    await world.say(ZONES, "z0", NodesLeft(world.command("z0"), "z0", [f"n{day}-0", "nobody"], [], [], False, b""))
    drop = PolicySet(world.command("p"), f"p{day}", 1, "drop", "any", [], {"side": "none"}, {})
    await world.say("fleet", "p", drop)


@pytest.mark.parametrize("seed", range(4))
async def test_two_writers_with_crashes_write_the_decisions_of_a_new_fold(seed: int) -> None:
    async with deciding_plane(seed, loss=0.2) as world:
        await world.start("api", "api")
        await world.start("one", "decisions")
        await run_a_day(world, 1)
        await world.start("two", "decisions")
        for day in range(2, 6):
            await run_a_day(world, day)
            victim = world.draws.choice(["one", "two"])
            world.kill(victim)
            await run_a_day(world, day + 10)
            await world.start(victim, "decisions", is_ready=False)
        found = await world.agree()
        kinds = {item.kind for values in found.values() for item in items_of(decode(min(values)))}  # type: ignore[arg-type]
        wanted = {"node_joined", "node_left", "index_assigned", "index_waiting", "dpu_phase_changed", "step_opened"}
        assert kinds >= wanted | {"member_joined", "member_left", "policy_set", "unchanged", "forwarded"}


@pytest.mark.parametrize("seed", range(3))
async def test_one_writer_that_is_killed_often_loses_no_decision(seed: int) -> None:
    async with deciding_plane(seed, loss=0.2) as world:
        await world.start("api", "api")
        for day in range(1, 5):
            await world.start("one", "decisions", is_ready=False)
            await run_a_day(world, day)
            await asyncio.sleep(world.draws.uniform(0, 1.5))
            world.kill("one")
        await world.start("one", "decisions")
        await world.agree()


async def test_decisions_of_a_thousand_commands_per_second_are_written_without_lag() -> None:
    async with deciding_plane(1) as world:
        await world.start("api", "api")
        life = await world.start("one", "decisions")
        place = TOPICS.partition_for(ZONES, "z", 2)
        for _ in range(5_000):
            world.joined(1)
            await asyncio.sleep(0.001)
        assert world.contents.end(place) - life.replica.position(place) < 500
        await world.agree()


@pytest.mark.parametrize("follow", [False, True])
async def test_computed_decisions_equal_those_of_the_topic(follow: bool) -> None:
    async with deciding_plane(3) as world:
        await world.start("api", "api")
        await world.start("one", "decisions")
        await run_a_day(world, 1)
        topic = await world.agree()
        found: dict[str, set[bytes]] = {}
        async with aclosing(decision_batches(world.log, folds_of(2), EventFilter(), follow=follow)) as batches:
            async for partition, records in batches:
                assert partition.topic == DECISIONS
                found |= {record.key.decode(): {record.value} for record in records}
                if follow and len(found) == len(topic):
                    break
        assert found == topic


async def test_decisions_are_filtered_by_their_causes() -> None:
    async with deciding_plane(3) as world:
        await world.start("api", "api")
        place = TOPICS.partition_for(ZONES, "z", 2)
        world.joined(40)
        await asyncio.sleep(100)
        later_ms = world.now_ms()
        world.joined(30)
        wanted = EventFilter(since_ms=later_ms)
        async with aclosing(decision_batches(world.log, folds_of(2), wanted, follow=False)) as batches:
            found = [record async for _, records in batches for record in records]
        causes = [cause for record in found if (cause := cause_of(record.key)) is not None and cause[0] == place]
        assert [offset for _, offset in causes] == [record.offset for record in found][: len(causes)]
        assert len(causes) == 30 and all(record.timestamp_ms >= later_ms for record in found)
