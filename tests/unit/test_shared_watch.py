"""Waits of many for objects of one collection, with one watch for all."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from drivers.kubernetes.hosts.shared_watch import SharedWatch
from schemas.kubernetes.api import ApiError
from tests.support.kubernetes.requests import create, get
from tests.support.kubernetes.simulated.api import SimulatedApi

NODES = "/api/v1/nodes"
SETTLED_S = 10.0
"""Virtual time after which everything has happened that can happen."""

pytestmark = pytest.mark.virtual_clock


class Waits:
    """Waits for Nodes, by the name of the Node."""

    def __init__(self) -> None:
        self.api = SimulatedApi(Random(7))
        self.shared = SharedWatch(self.api, NODES)
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def add(self, *names: str) -> None:
        """Make Nodes, and wait for a change of each."""
        for name in names:
            await create(self.api, NODES, {"metadata": {"name": name}})
            await self.wait(name)
        await asyncio.sleep(SETTLED_S)

    async def wait(self, name: str) -> None:
        self.tasks[name] = asyncio.create_task(self.shared.changed(name, await self.version(name)))

    async def version(self, name: str) -> str:
        found = (await get(self.api, NODES, {"fieldSelector": f"metadata.name={name}"}))["items"]
        return "".join(each["metadata"]["resourceVersion"] for each in found)

    async def change(self, name: str) -> None:
        await self.api.patch(f"{NODES}/{name}", {"metadata": {"labels": {"a": name}}}, "merge")

    async def done(self) -> list[str]:
        await asyncio.sleep(SETTLED_S)
        found = sorted(name for name, task in self.tasks.items() if task.done())
        for name in found:
            self.tasks[name].result()
        return found

    async def end(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        assert self.api.watch_count == 0, "no watch outlives the waits"


@pytest.fixture
async def waits() -> Any:
    made = Waits()
    yield made
    await made.end()


async def test_a_thousand_waits_have_one_watch(waits: Waits) -> None:
    names = [f"n{number:03}" for number in range(1_000)]
    await waits.add(*names)
    assert waits.api.watch_count == 1
    await waits.change("n500")
    assert await waits.done() == ["n500"]
    await waits.wait("n500")
    before = waits.api.requests.total()
    assert await waits.done() == [] and waits.api.requests.total() == before + 1, "waiting sends no requests"


async def test_another_waiter_reads_when_the_reader_leaves(waits: Waits) -> None:
    """The first waiter reads the watch. It leaves when it is cancelled, and when its own object changes."""
    await waits.add("a", "b", "c", "d")
    waits.tasks.pop("a").cancel()
    await waits.change("c")  # while nobody reads
    assert await waits.done() == ["c"] and waits.api.watch_count == 1
    await waits.change("b")
    await waits.change("d")
    assert await waits.done() == ["b", "c", "d"] and waits.api.watch_count == 0


async def test_an_object_may_appear_and_vanish(waits: Waits) -> None:
    await waits.wait("a")
    assert await waits.done() == []
    await create(waits.api, NODES, {"metadata": {"name": "a"}})
    assert await waits.done() == ["a"]
    await waits.wait("a")
    assert await waits.done() == []
    found = await get(waits.api, f"{NODES}/a")
    await waits.api.delete(f"{NODES}/a", uid=found["metadata"]["uid"])
    assert await waits.done() == ["a"]


async def test_a_change_before_the_wait_ends_it_at_once(waits: Waits) -> None:
    await waits.add("a", "b")
    before = await waits.version("b")
    await waits.change("b")
    waits.tasks["b"] = asyncio.create_task(waits.shared.changed("b", before))
    assert await waits.done() == ["b"]


async def test_a_watch_that_breaks_off_goes_on_from_the_last_version(waits: Waits) -> None:
    await waits.add("a", "b", "c")
    waits.api.go_down()
    await asyncio.sleep(SETTLED_S)
    waits.api.faults.is_down = False
    assert await waits.done() == [], "an outage is no change"
    waits.api.end_watches(ApiError(0, "Unreachable", "the connection was closed"))
    await waits.change("b")
    assert await waits.done() == ["b"] and waits.api.watch_count == 1


async def test_all_look_again_when_the_server_has_forgotten_the_changes(waits: Waits) -> None:
    await waits.add("a", "b", "c")
    waits.api.expire_watches()
    assert await waits.done() == ["a", "b", "c"]
    await waits.wait("c")
    await waits.change("c")
    assert await waits.done() == ["a", "b", "c"], "a later wait begins a new watch"


async def test_all_look_again_when_the_server_was_restored(waits: Waits) -> None:
    """A watch from a version that the server has not reached yet shows nothing."""
    await waits.add("a", "b")
    saved = waits.api.save()
    await waits.change("a")
    assert await waits.done() == ["a"]
    waits.api.restore(saved, ends_watches=False)
    waits.tasks["c"] = asyncio.create_task(waits.shared.changed("c", ""))
    assert await waits.done() == ["a", "b", "c"]
