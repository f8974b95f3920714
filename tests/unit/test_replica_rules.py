"""The tables of zones that a relay receives from the folds of a replica."""

from __future__ import annotations

import asyncio

import pytest

from drivers.relays.frame_cache import FrameCache
from drivers.relays.replica_rules import ReplicaRules
from drivers.relays.served_zone import ServedZone
from drivers.wire.relay_messages import encode_frame
from eventstore.log import FLEET_0
from projections.fleet.tables.zone_table import table
from schemas.events import Event, PolicySet, ZoneUpdated
from tests.support.memory_plane import Plane, plane

pytestmark = pytest.mark.virtual_clock


async def stated(made: Plane, event: Event) -> None:
    answer = await made.replicas["r1"].submit(FLEET_0, b"", event, timeout_s=5.0)
    assert answer.outcome.code == "done"


async def policy(made: Plane, priority: int, targets: dict[str, str]) -> None:
    await stated(made, PolicySet(made.command("p"), f"p{priority}", priority, "drop", "any", [], {}, targets))


async def test_zones_with_one_list_share_one_object_per_version() -> None:
    """A relay remembers a thousand versions of each of its zones."""
    async with plane() as made:
        rules = ReplicaRules(await made.add("r1"))
        await stated(made, ZoneUpdated(made.command("c"), "c", True, {"tier": "1"}, -1, -1))
        await policy(made, 1, {})
        before = rules.current("a", 0)
        assert before is rules.current("b", 0)
        await policy(made, 2, {"tier": "1"})
        assert rules.current("c", 0) != before == rules.current("a", 0)
        await policy(made, 3, {})
        async with asyncio.timeout(5):
            assert await rules.changed()
        assert not rules._cache, "the cache still holds tables of former states"
        after = rules.current("a", before.version)
        assert after is rules.current("b", before.version)
        assert before.version < after.version
        for zone in "abc":
            told, now = rules.current(zone, 0), table(made.fleet(), zone)
            assert (told.version, told.digest, told.key) == (now.version, now.digest, now.key)
            assert told.earliest_ms == now.earliest_ms


async def test_a_cached_frame_is_of_the_zones_own_list_after_another_zone_left_it() -> None:
    """A relay requests a frame with the table of its last pass, while the replica folds on."""
    async with plane() as made:
        rules = ReplicaRules(await made.add("r1"))
        frames = FrameCache(rules)
        await policy(made, 1, {})
        await policy(made, 2, {"tier": "1"})
        before = rules.current("a", 0)
        assert before is rules.current("b", 0)
        await stated(made, ZoneUpdated(made.command("a"), "a", True, {"tier": "1"}, -1, -1))
        of_a, of_b = frames.frame("a", before, 0), frames.frame("b", rules.current("b", 0), 0)
        assert (of_a.version, of_b.version) == (rules.current("a", 0).version, before.version)
        assert of_a.data == encode_frame(rules.epoch, rules.snapshot("a"))
        assert of_b.data == encode_frame(rules.epoch, rules.snapshot("b"))


async def test_a_zone_is_unchanged_while_only_other_zones_change() -> None:
    async with plane() as made:
        rules = ReplicaRules(await made.add("r1"))
        await stated(made, ZoneUpdated(made.command("c"), "c", True, {"tier": "1"}, -1, -1))
        await policy(made, 1, {})
        zones: list[ServedZone[object]] = [ServedZone(name, rules, {}) for name in "ac"]
        await asyncio.sleep(5)
        await policy(made, 3, {})
        await asyncio.sleep(5)
        await policy(made, 4, {})
        await rules.changed()
        assert [zone.refresh() for zone in zones] == [True, True]
        before = zones[0].current
        await policy(made, 2, {"tier": "1"})
        await rules.changed()
        assert [zone.refresh() for zone in zones] == [False, True]
        assert zones[0].current == before


async def test_a_dpu_has_an_ordinal_in_its_own_zone_only() -> None:
    """Zones may share a partition, whose fold finds DPUs by name alone."""
    async with plane(1) as made:
        rules = ReplicaRules(await made.add("r1"))
        await made.register("d", zone="z1")
        await made.register("e", zone="z2")
        assert rules.ordinals_of("z1", ["d", "e", "f"]) == [0, None, None]
        assert rules.ordinals_of("z2", ["d", "e"]) == [None, 0]
        assert (rules.dpu_count("z1"), rules.dpu_count("z2")) == (1, 1)
