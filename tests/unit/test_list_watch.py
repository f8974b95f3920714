"""Listing and watching a collection of the simulated API server, under the faults of such servers."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from commands.kubernetes.list_watch import DELETED_MAX, IDLE_S, PAGE, RETRY_AFTER_S_MAX, RETRY_S_MAX, ListWatch
from schemas.kubernetes.api import ApiError
from schemas.kubernetes.objects import Node
from tests.support.kubernetes.listed import Seen
from tests.support.kubernetes.requests import get
from tests.support.kubernetes.simulated.api import SimulatedApi

NODES = "/api/v1/nodes"

pytestmark = pytest.mark.virtual_clock


class Scene:
    """A server with nodes, and a loop that watches them."""

    def __init__(self, seed: int = 7) -> None:
        self.api = SimulatedApi(random.Random(seed))
        self.seen = Seen()
        self.watch = ListWatch(self.api, NODES, Node, self.seen, rng=random.Random(seed))

    async def create(self, *names: str) -> None:
        for name in names:
            await self.api.create(NODES, {"metadata": {"name": name}})

    async def label(self, name: str, value: str) -> None:
        await self.api.patch(f"{NODES}/{name}", {"metadata": {"labels": {"a": value}}}, "merge")

    async def delete(self, name: str) -> None:
        found = await get(self.api, f"{NODES}/{name}")
        await self.api.delete(f"{NODES}/{name}", uid=found["metadata"]["uid"])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The loop runs, and has listed and opened a watch."""
        task = asyncio.create_task(self.watch.run())
        try:
            await asyncio.sleep(1.0)
            yield
            assert not task.done(), "nothing ends the loop"
        finally:
            task.cancel()

    def gets(self) -> int:
        """Lists and single gets that the server has seen, answered or not."""
        return sum(count for (verb, _), count in self.api.requests.items() if verb == "get")

    def watches(self) -> int:
        return sum(count for (verb, _), count in self.api.requests.items() if verb == "watch")


def names(count: int) -> list[str]:
    return [f"node-{number:04}" for number in range(count)]


async def test_a_collection_is_listed_in_pages_and_then_watched() -> None:
    scene = Scene()
    await scene.create(*names(2 * PAGE + 200))
    async with scene.running():
        assert scene.seen.lists == [names(2 * PAGE + 200)] and scene.gets() == 3
        assert scene.watch.is_current
        await scene.create("later")
        await scene.label("node-0001", "1")
        await scene.delete("node-0002")
        await asyncio.sleep(1.0)
    assert len(scene.seen.nodes) == 2 * PAGE + 200
    assert scene.seen.nodes["node-0001"] == "1" and scene.seen.deleted_names == ["node-0002"]
    assert scene.watch.counts.lists == scene.watch.counts.watches == 1


async def test_bookmarks_let_an_idle_watch_continue_after_its_events_are_forgotten() -> None:
    scene = Scene()
    await scene.create("node-1")
    async with scene.running():
        for _ in range(20):
            await scene.api.create("/api/v1/namespaces/default/configmaps", {"metadata": {"generateName": "other-"}})
            await asyncio.sleep(61.0)
            scene.api.compact()
        await scene.create("node-2")
        await asyncio.sleep(1.0)
    assert set(scene.seen.nodes) == {"node-1", "node-2"}
    assert scene.watch.counts.watches > 3 and scene.watch.counts.lists == 1 and not scene.watch.counts.failures


async def test_a_watch_that_expired_lists_again_and_finds_what_was_deleted() -> None:
    scene = Scene()
    await scene.create("node-1", "node-2")
    async with scene.running():
        scene.api.end_watches(ApiError(410, "Expired", "too old resource version"))
        await scene.delete("node-1")
        await asyncio.sleep(5.0)
    assert scene.seen.lists == [["node-1", "node-2"], ["node-2"]] and set(scene.seen.nodes) == {"node-2"}
    assert scene.watch.counts.expired == 1 and scene.seen.went_back == [False, False]


async def test_a_list_that_breaks_off_is_never_complete() -> None:
    scene = Scene()
    await scene.create(*names(PAGE + 1))
    scene.api.faults.refuse(410, "get", within="continue", times=3)
    scene.api.faults.refuse(503, "get", within="continue", times=2)
    async with scene.running():
        await asyncio.sleep(60.0)
    assert scene.seen.began == 6 and scene.seen.lists == [names(PAGE + 1)]


async def test_an_object_that_cannot_be_read_makes_no_list_complete() -> None:
    scene = Scene()
    await scene.create("node-1", "node-2")
    await scene.api.patch(f"{NODES}/node-2", {"status": {"addresses": "none"}}, "merge")
    await scene.api.patch(f"{NODES}/node-2/status", {"status": {"addresses": "none"}}, "merge")
    async with scene.running():
        await asyncio.sleep(60.0)
        assert scene.seen.lists == [] and not scene.watch.is_current
        await scene.api.patch(f"{NODES}/node-2/status", {"status": {"addresses": []}}, "merge")
        await asyncio.sleep(RETRY_S_MAX)
        assert scene.seen.lists == [["node-1", "node-2"]]
        await scene.api.patch(f"{NODES}/node-2/status", {"status": {"addresses": "none"}}, "merge")
        await scene.label("node-1", "1")
        await asyncio.sleep(1.0)
    assert scene.watch.counts.malformed_events == 1 and scene.seen.nodes["node-1"] == "1"


async def test_a_stalled_watch_is_opened_again_without_a_list() -> None:
    scene = Scene()
    await scene.create("node-1")
    async with scene.running():
        scene.api.stall_watches()
        await scene.label("node-1", "1")
        await asyncio.sleep(IDLE_S - 5.0)
        assert scene.seen.nodes["node-1"] == "" and scene.watch.counts.stalls == 0
        await asyncio.sleep(10.0)
    assert scene.seen.nodes["node-1"] == "1"
    assert (scene.watch.counts.stalls, scene.watch.counts.lists) == (1, 1)


async def test_a_server_without_bookmarks_is_asked_again_and_counts_as_current() -> None:
    scene = Scene()
    scene.api.faults.has_bookmarks = False
    async with scene.running():
        for number in range(20):
            await asyncio.sleep(IDLE_S)
            assert scene.watch.is_current
            await scene.create(f"node-{number}")
            await asyncio.sleep(1.0)
            assert f"node-{number}" in scene.seen.nodes
            await asyncio.sleep(2 * IDLE_S)
    assert scene.watch.counts.lists == 2 and not scene.watch.counts.failures


async def test_failures_are_retried_with_growing_jitter() -> None:
    scene = Scene()
    async with scene.running():
        scene.api.go_down()
        await asyncio.sleep(1.0)
        assert not scene.watch.is_current
        await asyncio.sleep(3600.0)
        failures = scene.watch.counts.failures
        assert 3600 / RETRY_S_MAX < failures < 3 * 3600 / RETRY_S_MAX
        scene.api.faults.is_down = False
        await scene.create("node-1")
        await asyncio.sleep(RETRY_S_MAX)
        assert scene.watch.is_current
    assert set(scene.seen.nodes) == {"node-1"} and scene.watch.counts.lists == 1


async def test_two_replicas_do_not_list_at_the_same_time_after_an_expiry() -> None:
    api, scenes = SimulatedApi(random.Random(7)), [Scene() for _ in range(20)]
    listed_s: list[float] = []

    async def run(scene: Scene, seed: int) -> None:
        scene.watch = ListWatch(api, NODES, Node, scene.seen, rng=random.Random(seed))
        async with scene.running():
            api.end_watches(ApiError(410, "Expired", "too old resource version"))
            while len(scene.seen.lists) < 2:
                await asyncio.sleep(0.001)
            listed_s.append(round(asyncio.get_running_loop().time(), 2))

    await asyncio.gather(*map(run, scenes, range(20)))
    assert len(set(listed_s)) > 10


@pytest.mark.parametrize("verb", ["get", "watch"])
async def test_the_server_s_pause_is_obeyed_within_reason(verb: Any) -> None:
    scene = Scene()
    scene.api.faults.refuse(429, verb, retry_after_s=60.0)
    async with scene.running():
        await asyncio.sleep(58.0)
        assert not scene.watch.is_current
        await asyncio.sleep(5.0)
        assert scene.watch.is_current
        scene.api.faults.refuse(429, "watch", retry_after_s=1e9)
        scene.api.end_watches(ApiError(0, "Unreachable", "gone"))
        await asyncio.sleep(RETRY_AFTER_S_MAX + RETRY_S_MAX)
        assert scene.watch.is_current


@pytest.mark.parametrize("is_expired", [False, True])
async def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_busy_loop(is_expired: bool) -> None:
    scene = Scene()
    if is_expired:
        scene.api.faults.refuse(410, "watch", times=1_000_000)
    scene.api.faults.longest_watch_s = 0.0
    async with scene.running():
        await asyncio.sleep(600.0)
    assert scene.watches() < 60 and scene.gets() < 60


async def test_events_that_repeat_or_change_places_lead_to_the_same_end() -> None:
    for seed in range(20):
        scene, rng = Scene(seed), random.Random(seed)
        await scene.create(*names(5))
        scene.api.faults.disorder = random.Random(seed)
        async with scene.running():
            alive = set(names(5))
            for number in range(60):
                name = rng.choice(names(5))
                match rng.randrange(4), name in alive:
                    case 0, True:
                        await scene.delete(name)
                        alive.discard(name)
                    case _, False:
                        await scene.create(name)
                        alive.add(name)
                    case _:
                        await scene.label(name, str(number))
            await asyncio.sleep(1.0)
        items = (await get(scene.api, NODES))["items"]
        expected = {item["metadata"]["name"]: item["metadata"].get("labels", {}).get("a", "") for item in items}
        assert scene.seen.nodes == expected
        assert scene.watch.counts.stale_events and scene.watch.counts.lists == 1


async def test_deleted_objects_are_remembered_within_a_bound() -> None:
    scene = Scene()
    async with scene.running():
        for name in names(DELETED_MAX + 50):
            await scene.create(name)
            await scene.delete(name)
        await asyncio.sleep(1.0)
    assert len(scene.seen.deleted_names) == DELETED_MAX + 50
    assert len(scene.watch._deleted) == DELETED_MAX and not scene.watch._versions


async def test_an_empty_list_is_reported_as_it_is() -> None:
    """What it means is the handler's affair (NodeEdge obeys none)."""
    scene = Scene()
    await scene.create("node-1")
    async with scene.running():
        scene.api.faults.shown = lambda path, items: []
        scene.api.end_watches(ApiError(410, "Expired", "too old resource version"))
        await asyncio.sleep(5.0)
    assert scene.seen.lists == [["node-1"], []] and scene.seen.deleted_names == []


async def test_a_server_set_back_to_an_earlier_state_is_listed_again() -> None:
    scene = Scene()
    await scene.create("node-1")
    saved = scene.api.save()
    await scene.create("node-2")
    async with scene.running():
        await scene.label("node-2", "1")
        await asyncio.sleep(1.0)
        scene.api.restore(saved)
        await scene.create("node-3")
        await asyncio.sleep(5.0)
        assert scene.seen.lists == [["node-1", "node-2"], ["node-1", "node-3"]]
        assert scene.seen.went_back == [False, True]
        await scene.label("node-3", "1")
        await asyncio.sleep(1.0)
        assert scene.seen.nodes == {"node-1": "", "node-3": "1"}


async def test_a_server_that_went_back_is_noticed_by_its_last_object_after_its_version_has_caught_up() -> None:
    scene = Scene()
    await scene.create("node-1")
    saved = scene.api.save()
    await scene.label("node-1", "1")
    async with scene.running():
        scene.api.restore(saved)
        await scene.create(*names(10))
        await asyncio.sleep(5.0)
    assert scene.seen.went_back == [False, True] and scene.seen.nodes == dict.fromkeys(["node-1", *names(10)], "")


async def test_a_server_that_went_back_is_noticed_by_any_object_when_its_last_one_is_missing() -> None:
    scene = Scene()
    await scene.create("node-1", "node-2")
    saved = scene.api.save()
    async with scene.running():
        await scene.label("node-1", "1")
        await scene.create("later")
        await asyncio.sleep(1.0)
        scene.api.restore(saved)
        scene.api.faults.refuse(503, "get", times=3)
        await scene.create(*names(10))
        await asyncio.sleep(30.0)
    assert scene.seen.went_back == [False, True] and "later" not in scene.seen.nodes


async def test_a_last_object_that_is_missing_is_listed_for_and_no_proof() -> None:
    scene = Scene()
    await scene.create("node-1")
    async with scene.running():
        await scene.create("node-2")
        await asyncio.sleep(1.0)
        scene.api.end_watches(ApiError(0, "Unreachable", "broken"))
        await scene.delete("node-2")
        await asyncio.sleep(5.0)
    assert scene.seen.went_back == [False, False] and set(scene.seen.nodes) == {"node-1"}


async def test_a_collection_is_listed_again_once_in_an_hour() -> None:
    scene = Scene()
    async with scene.running():
        await asyncio.sleep(12 * 3_600.0)
    assert 9 <= scene.watch.counts.lists <= 14 and not scene.watch.counts.failures


async def test_a_collection_is_listed_again_at_once_when_asked_for() -> None:
    scene = Scene()
    scene.watch.list_again()  # nothing runs yet
    async with scene.running():
        scene.watch.list_again()
        await asyncio.sleep(1.0)
        assert (scene.watch.counts.lists, scene.watch.counts.watches, scene.watch.counts.failures) == (2, 2, 0)
        assert scene.watch.is_current


async def test_a_server_that_went_back_behind_a_stalled_watch_is_noticed() -> None:
    scene = Scene()
    saved = scene.api.save()
    await scene.create("node-1")
    async with scene.running():
        scene.api.restore(saved, ends_watches=False)
        await asyncio.sleep(2 * IDLE_S + RETRY_S_MAX)
    assert scene.seen.went_back == [False, True] and scene.seen.nodes == {}


async def test_a_watch_that_is_opened_again_misses_nothing() -> None:
    for seed in range(10):
        scene, rng = Scene(seed), random.Random(seed)
        async with scene.running():
            for number in range(100):
                await scene.create(f"node-{number}")
                if rng.random() < 0.2:
                    scene.api.end_watches(ApiError(0, "Unreachable", "broken"))
                if rng.random() < 0.1:
                    scene.api.faults.refuse(rng.choice((429, 500, 503)), "watch", "get", times=rng.randint(1, 3))
                await asyncio.sleep(rng.random() * 20.0)
            await asyncio.sleep(RETRY_S_MAX)
        assert len(scene.seen.nodes) == 100 and scene.watch.counts.lists == 1
        items = json.loads(await scene.api.get(NODES))["items"]
        assert len(items) == 100
