"""Forwarders over a real log: immediate when idle, batched under load, and complete, also with two at once."""

from __future__ import annotations

import asyncio

import pytest

from drivers.forwarder import WINDOW_MAX_S, Forwarder
from eventstore.log import FLEET_0
from schemas.events import MembershipChanged, OutboxAcknowledged, ZoneUpdated
from tests.support.memory_plane import Plane, plane

pytestmark = pytest.mark.virtual_clock


def forwarder(made: Plane, name: str) -> Forwarder:
    found = Forwarder(made.replicas[name], made.ranks(name), now_ms=made.now_ms, rng=made.rng())
    made.spawn(name, found.run())
    return found


def agree(made: Plane, *zones: str) -> bool:
    """Whether fleet has each node as its zone has it."""
    stated = {n: r.zone for zone in zones for n, r in made.zone(zone).nodes.rows.items()}
    return {n: m.zone for n, m in made.fleet().members.rows.items() if not m.held} == stated


async def test_a_change_after_an_idle_time_is_forwarded_at_once() -> None:
    async with plane() as made:
        await made.add("r1")
        found = forwarder(made, "r1")
        await asyncio.sleep(10)
        await made.join("z1", "a")
        assert await made.until(lambda: "a" in made.fleet().members.rows) <= 0.02
        assert (found.forwards, found.forwarded_items) == (1, 1)


async def test_a_burst_is_forwarded_in_batches_without_loss() -> None:
    async with plane() as made:
        await made.add("r1")
        found = forwarder(made, "r1")
        await asyncio.sleep(1)
        made.log.failures.append_latency_s = 0.02
        for i in range(100):
            await asyncio.gather(*(made.join("z1", f"n{i}-{j}") for j in range(10)))
            await made.leave("z1", f"n{i}-0")
        assert await made.until(lambda: agree(made, "z1")) < 0.1
        assert len(made.fleet().members.rows) == 900
        assert found.forwards < 130
        assert found.forwarded_items <= 1_100


async def test_a_steady_rate_over_many_partitions_is_forwarded_in_batches() -> None:
    async with plane(12) as made, asyncio.TaskGroup() as joins:
        await made.add("r1")
        found = forwarder(made, "r1")
        await asyncio.sleep(1)
        made.log.failures.append_latency_s = 0.02
        for i in range(300):
            await asyncio.sleep(0.005)
            joins.create_task(made.join(f"z{i % 40}", f"n{i}"))
        assert await made.until(lambda: len(made.fleet().members.rows) == 300) < 0.6
        assert found.forwards < 150


async def test_items_beyond_one_forward_follow_in_the_next_at_once() -> None:
    async with plane() as made:
        await made.add("r1")
        for i in range(20):
            await made.join("z1", *(f"n{i}-{j}" for j in range(1_000)))
        made.log.failures.append_latency_s = 0.1
        found = forwarder(made, "r1")
        assert await made.until(lambda: len(made.fleet().members.rows) == 20_000) < 1.5
        assert found.forwards == 10


async def test_the_outbox_is_pruned_once_fleet_has_its_nodes() -> None:
    async with plane() as made:
        await made.add("r1")
        forwarder(made, "r1")
        await made.join("z1", "a", "b")
        await made.leave("z1", "b")
        await made.until(lambda: agree(made, "z1"))
        await asyncio.sleep(30)
        state = made.zone("z1")
        assert not state.outbox_offsets and not state.tombstones.rows
        assert made.count(made.partition("z1"), OutboxAcknowledged) == 1
        await asyncio.sleep(600)
        assert made.count(made.partition("z1"), OutboxAcknowledged) == 1


async def test_one_of_two_forwarders_prunes_the_outbox() -> None:
    async with plane() as made:
        await made.add("r1")
        await made.add("r2")
        for name in ("r1", "r2"):
            forwarder(made, name)
        for i in range(20):
            await made.join("z1", f"n{i}")
            await asyncio.sleep(30)
        assert not made.zone("z1").outbox_offsets
        assert made.count(made.partition("z1"), OutboxAcknowledged) == 20


async def test_after_a_slow_forward_the_next_waits_at_most_half_a_second() -> None:
    async with plane() as made:
        await made.add("r1")
        found = forwarder(made, "r1")
        await asyncio.sleep(10)
        made.log.failures.append_latency_s = 1.8
        first = asyncio.ensure_future(made.join("z1", "a"))
        await made.until(lambda: found.forwards == 1)
        made.log.failures.append_latency_s = 0.0
        await first
        await made.join("z1", "b")
        assert await made.until(lambda: "b" in made.fleet().members.rows) <= WINDOW_MAX_S + 0.02


async def test_two_forwarders_of_rank_0_do_no_harm() -> None:
    async with plane() as made:
        await made.add("r1")
        await made.add("r2")
        for name in ("r1", "r2"):
            found = Forwarder(made.replicas[name], made.ranks("r1"), now_ms=made.now_ms, rng=made.rng())
            made.spawn(name, found.run())
        for i in range(50):
            await made.join("z1", f"a{i}")
            await made.join("z0", f"b{i}")
            if i % 3 == 0:
                await made.leave("z1", f"a{i}")
        await made.until(lambda: agree(made, "z1", "z0"))
        accepted = sum(made.fleet().marks.values())
        assert accepted and made.count(FLEET_0, MembershipChanged) > 0


async def test_a_forwarder_of_lower_rank_takes_over_from_an_inactive_one() -> None:
    async with plane() as made:
        await made.add("r1")
        await made.add("r2")
        found = forwarder(made, "r2")
        await asyncio.sleep(1)
        await made.join("z1", "a")
        took_s = await made.until(lambda: agree(made, "z1"))
        assert 0.29 < took_s < 0.4 and found.forwards == 1


async def test_a_forwarder_of_lower_rank_stays_idle_while_the_first_works() -> None:
    async with plane() as made:
        await made.add("r1")
        await made.add("r2")
        first, second = forwarder(made, "r1"), forwarder(made, "r2")
        for i in range(40):
            await made.join("z1", f"a{i}")
            await asyncio.sleep(0.1)
        await made.until(lambda: agree(made, "z1"))
        assert (first.forwards > 20, second.forwards) == (True, 0)


@pytest.mark.parametrize("late_s", [0.0, 0.5, 3.5])
async def test_an_append_with_an_unknown_outcome_counts_once_whenever_it_lands(late_s: float) -> None:
    async with plane() as made:
        await made.add("r1")
        found = forwarder(made, "r1")
        await asyncio.sleep(1)
        made.log.failures.late_s[FLEET_0] = late_s
        await made.join("z1", "a")
        await made.join("z1", "b")
        await made.until(lambda: agree(made, "z1"))
        await asyncio.sleep(10)
        assert agree(made, "z1") and found.internal_events.failures == 1
        said = made.count(FLEET_0, MembershipChanged)
        assert said <= 2 if late_s < 0.5 else said >= 2


async def test_a_node_in_two_zones_is_superseded_in_the_older_one() -> None:
    async with plane() as made:
        assert made.partition("z1") != made.partition("z0")
        await made.add("r1")
        found = forwarder(made, "r1")
        await made.join("z1", "a", "b", created_ms=5)
        await made.until(lambda: agree(made, "z1"))
        await made.join("z0", "a", created_ms=6)
        await made.until(lambda: "a" not in made.zone("z1").nodes.rows)
        await made.until(lambda: agree(made, "z1", "z0"))
        assert {n: m.zone for n, m in made.fleet().members.rows.items()} == {"a": "z0", "b": "z1"}
        assert found.outbox_deliveries == 1


async def test_limits_set_in_fleet_reach_their_zone() -> None:
    async with plane() as made:
        await made.add("r1")
        forwarder(made, "r1")
        await made.join("z1", "a")
        event = ZoneUpdated(made.command("z1"), "z1", False, {}, 7, 0)
        await made.replicas["r1"].submit(FLEET_0, b"z1", event, timeout_s=5.0)
        await made.until(lambda: made.zone("z1").zone_rows.rows["z1"].parallel_installs == 7)


async def test_nothing_is_appended_to_a_halted_partition() -> None:
    """The halted fold cannot show that a record was received, and the log keeps every repeated record for ever."""
    async with plane(1) as made:
        replica = await made.add("r1")
        forwarder(made, "r1")
        await made.join("z1", "a")
        await made.until(lambda: "a" in made.fleet().members.rows)
        replica.folded(FLEET_0).halted = "a record that this binary cannot fold"
        forwards = made.count(FLEET_0, MembershipChanged)
        await made.join("z1", "b")
        await asyncio.sleep(600)
        assert made.count(FLEET_0, MembershipChanged) == forwards
        replica.folded(made.partition("z1")).halted = "the same"
        said = len(made.log.contents.records[made.partition("z1")])
        await asyncio.sleep(600)
        assert len(made.log.contents.records[made.partition("z1")]) == said
