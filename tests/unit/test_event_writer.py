"""The writes of Kubernetes Events: few, after all other writes, and each Event once, whatever the server answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from drivers.kubernetes.event_writer import EventWriter
from drivers.kubernetes.request_budget import RequestBudget
from projections.kubernetes.event_queue import ATTEMPTS, BURST, REFILL_MS, EventQueue
from projections.kubernetes.object_events import ObjectEvent, Regarding
from tests.support.kubernetes.requests import get
from tests.support.kubernetes.simulated.api import EPOCH_S, SimulatedApi

pytestmark = pytest.mark.virtual_clock
EVENTS = "/api/v1/namespaces/default/events"


def event(number: int = 0, message: str = "refused", namespace: str = "") -> ObjectEvent:
    return ObjectEvent(Regarding("v1", "Node", f"n{number}", f"u{number}", namespace), "NodeRefused", message)


class Run:
    """A writer over a simulated API server."""

    def __init__(self, api: SimulatedApi, per_s: float = 50.0) -> None:
        self.api, self.budget, self.queue = api, RequestBudget(per_s), EventQueue()
        self.writer = EventWriter(api, self.budget, self.queue, rng=Random(1))

    def put(self, found: ObjectEvent) -> None:
        self.queue.put(found, round((EPOCH_S + asyncio.get_running_loop().time()) * 1_000))

    def requests(self, *verbs: str) -> int:
        return sum(count for (verb, _), count in self.api.requests.items() if verb in verbs)

    async def counts(self) -> dict[str, int]:
        """The count of each Event on the server, by the name of its object."""
        return {each["involvedObject"]["name"]: each["count"] for each in await self.events()}

    async def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await get(self.api, EVENTS))["items"]
        return found


@asynccontextmanager
async def run(api: SimulatedApi | None = None, per_s: float = 50.0) -> AsyncIterator[Run]:
    made = Run(api or SimulatedApi(Random(1)), per_s)
    task = asyncio.ensure_future(made.writer.run())
    try:
        yield made
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_1_000_refusals_of_an_object_are_one_event_and_as_many_writes_as_its_burst() -> None:
    async with run() as made:
        for _ in range(1_000):
            made.put(event())
            await asyncio.sleep(0.1)
        assert made.requests("create", "patch") == BURST
        await asyncio.sleep(REFILL_MS / 1_000)
        made.put(event())
        await asyncio.sleep(1)
        assert await made.counts() == {"n0": 1_001}
        assert (made.writer.counts.created, made.writer.counts.updated) == (1, BURST)
        (found,) = await made.events()
        assert found["firstTimestamp"] < found["lastTimestamp"]


async def test_a_restart_repeats_nothing_and_continues_the_count() -> None:
    api = SimulatedApi(Random(1))
    async with run(api) as made:
        for _ in range(4):
            made.put(event())
        await asyncio.sleep(1)
    async with run(api) as made:
        before = await made.events()
        made.put(event())
        await asyncio.sleep(5)
        assert await made.events() == before
        assert (made.writer.counts.found, made.writer.counts.created) == (1, 0)
        made.put(event())
        await asyncio.sleep(1)
        assert await made.counts() == {"n0": 5}


async def test_statuses_use_the_budget_before_any_event() -> None:
    async with run(per_s=10.0) as made:
        loop, ended_s = asyncio.get_running_loop(), [0.0]

        async def status() -> None:
            await made.budget.take()
            ended_s.append(loop.time())

        await asyncio.sleep(1)  # the budget has its burst
        began_s = loop.time()
        statuses = [asyncio.ensure_future(status()) for _ in range(100)]
        await asyncio.sleep(0)
        for number in range(100):
            made.put(event(number))
        await asyncio.gather(*statuses)
        assert made.requests("create") == 0, "requests of higher priority waited all the time"
        assert max(ended_s) - began_s == pytest.approx(9.0, abs=0.2), "as long as without any Event"
        await asyncio.sleep(20)
        assert len(await made.counts()) == 100


async def test_a_status_does_not_wait_for_a_queue_of_events() -> None:
    async with run(per_s=10.0) as made:
        for number in range(1_000):
            made.put(event(number))
        await asyncio.sleep(5)
        loop = asyncio.get_running_loop()
        for _ in range(5):
            began_s = loop.time()
            await made.budget.take()
            assert loop.time() == began_s, "half of the burst is left for requests of higher priority"
        assert made.queue.pending > 900


@pytest.mark.parametrize(
    ("status", "is_committed"),
    [(409, False), (429, False), (500, False), (503, False), (504, False), (500, True), (503, True), (504, True)],
)
async def test_an_event_whose_creation_failed_is_there_once_with_its_count(status: int, *, is_committed: bool) -> None:
    async with run() as made:
        made.api.faults.refuse(status, "create", times=2, is_committed=is_committed, within="events")
        for _ in range(3):
            made.put(event())
        await asyncio.sleep(60)
        assert await made.counts() == {"n0": 3}
        assert made.queue.pending == 0


async def test_a_failed_update_is_repeated_with_the_newest_count() -> None:
    async with run() as made:
        made.put(event())
        await asyncio.sleep(1)
        made.api.faults.refuse(503, "patch", times=2, within="events")
        for _ in range(3):
            made.put(event())
            await asyncio.sleep(0.01)
        await asyncio.sleep(60)
        assert await made.counts() == {"n0": 4}


async def test_an_expired_event_is_created_again() -> None:
    async with run() as made:
        made.put(event())
        await asyncio.sleep(1)
        (found,) = await made.events()
        await made.api.delete(f"{EVENTS}/{found['metadata']['name']}", uid=found["metadata"]["uid"])
        made.put(event())
        await asyncio.sleep(5)
        assert await made.counts() == {"n0": 2}


async def test_a_server_that_is_away_makes_the_events_wait_and_loses_none() -> None:
    async with run() as made:
        made.api.go_down()
        for number in range(20):
            made.put(event(number))
        await asyncio.sleep(600)
        assert made.requests("create") < 80, "the pause between attempts grows"
        made.api.faults.is_down = False
        await asyncio.sleep(60)
        assert len(await made.counts()) == 20


async def test_a_refused_event_is_given_up_and_the_next_one_is_written(caplog: pytest.LogCaptureFixture) -> None:
    async with run() as made:
        made.api.faults.refuse(403, "create", within="events")
        made.put(event(1))
        made.put(event(2))
        await asyncio.sleep(30)
        assert await made.counts() == {"n2": 1}
        assert made.writer.counts.given_up == 1
        assert "Kubernetes Event not written" in caplog.text


async def test_an_event_that_always_fails_is_given_up_after_its_attempts() -> None:
    async with run() as made:
        made.put(event(namespace="absent"))
        await asyncio.sleep(300)
        assert (made.requests("create"), made.writer.counts.given_up, made.queue.known) == (ATTEMPTS, 1, 0)


async def test_a_server_that_asks_for_a_pause_gets_it_from_all_writers() -> None:
    async with run() as made:
        made.api.faults.refuse(429, "create", retry_after_s=40.0, within="events")
        made.put(event())
        await asyncio.sleep(1)
        began_s = asyncio.get_running_loop().time()
        await made.budget.take()
        assert asyncio.get_running_loop().time() - began_s > 30
