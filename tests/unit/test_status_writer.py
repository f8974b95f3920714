"""The queue of writes to an API server: one pending write per object, and few requests whatever the server answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec
import pytest

from drivers.kubernetes.observed import ObservedObjects
from drivers.kubernetes.request_budget import RequestBudget
from drivers.kubernetes.writer import ATTEMPTS, PROBE_S, RECOVERY_S, SLOW_RETRY_S, Plan, Request, Wait, Writer
from projections.kubernetes.object_cache import named_objects
from schemas.kubernetes.api import ApiError
from schemas.kubernetes.objects import Custom
from schemas.resources.crds import definition
from schemas.resources.dpu_rack import DPU_RACK
from tests.support.kubernetes.requests import create, get, install
from tests.support.kubernetes.simulated.api import SimulatedApi
from tests.support.kubernetes.simulated.faults import Faults

pytestmark = pytest.mark.virtual_clock

FAST = 1_000.0


class Counters:
    """Objects whose `status.nodes` is to be a number; None means that the object is to be deleted."""

    def __init__(self, writer: Writer) -> None:
        self.cache = named_objects()
        self.observed = ObservedObjects(self.cache, asyncio.get_running_loop().time)
        self.wanted: dict[str, int | None] = {}
        self.position = 1
        self.wait_s: dict[str, float] = {}
        self.confirmed = 0
        self._writer = writer

    def want(self, name: str, number: int | None) -> None:
        self.wanted[name] = number
        self.position += 1
        self._writer.mark(self, name)

    def path(self, name: str) -> str:
        return DPU_RACK.path(name=name)

    def version(self, name: str) -> int:
        return self.cache.version(name)

    def saw(self, name: str, answer: bytes, *, sent_at: int) -> None:
        self.cache.put(msgspec.json.decode(answer, type=Custom), sent_at=sent_at)

    def saw_none(self, name: str) -> None:
        self.cache.forget(name)

    def wrote(self, name: str) -> None:
        self.confirmed += 1

    def plan(self, name: str) -> Plan:
        number, found = self.wanted[name], self.observed.objects.get(name)
        if name in self.wait_s:
            return Wait(self.wait_s.pop(name))
        if number is None:
            return Request("delete", self.path(name), found.uid) if found is not None else None
        if found is None:
            head = {"apiVersion": DPU_RACK.api_version, "kind": DPU_RACK.name}
            return Request("create", DPU_RACK.path(), {**head, "metadata": {"name": name}, "spec": {}})
        if found.status.get("nodes") == number:
            return None
        written = found.status.get("logPosition", {}).get("fleet", 0)
        if self.position < written:
            return Wait(5.0)
        status = {"nodes": number, "logPosition": {"generation": 1, "fleet": self.position}}
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": found.uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        return Request("patch", DPU_RACK.path(name=name, subresource="status"), operations)


class Run:
    """A writer over a simulated API server."""

    def __init__(self, per_s: float, seed: int) -> None:
        self.api = SimulatedApi(Random(seed))
        self.writer = Writer(self.api, RequestBudget(per_s), rng=Random(seed))
        self.counters = Counters(self.writer)

    async def number(self, name: str) -> int | None:
        """The number that an object on the server has."""
        try:
            found = await self._reliably(DPU_RACK.path(name=name))
        except ApiError as error:
            assert error.status == 404
            return None
        number: int | None = found.get("status", {}).get("nodes")
        return number

    async def version(self) -> int:
        """The version of the last commit."""
        found = await self._reliably(DPU_RACK.path())
        return int(found["metadata"]["resourceVersion"])

    async def _reliably(self, path: str) -> dict[str, Any]:
        """Read without injected faults."""
        faults, self.api.faults = self.api.faults, Faults()
        try:
            return await get(self.api, path)
        finally:
            self.api.faults = faults

    def requests(self, *verbs: str) -> int:
        return sum(count for (verb, _), count in self.api.requests.items() if verb in verbs)

    async def until_idle(self, timeout_s: float = 600.0) -> None:
        async with asyncio.timeout(timeout_s):
            while self.writer.pending or self.writer._busy:
                await asyncio.sleep(0.05)


@asynccontextmanager
async def running(per_s: float = FAST, seed: int = 1, *, is_started: bool = True) -> AsyncIterator[Run]:
    made = Run(per_s, seed)
    await install(made.api, definition(DPU_RACK))
    made.api.requests.clear()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(made.writer.run()) if is_started else None
        yield made
        if task is not None:
            task.cancel()


async def test_an_object_is_made_written_and_deleted() -> None:
    async with running() as made:
        made.counters.want("a", 1)
        await made.until_idle()
        assert await made.number("a") == 1
        made.counters.want("a", None)
        await made.until_idle()
        assert await made.number("a") is None
        assert made.writer.counts.writes == made.counters.confirmed == 3 == made.requests("create", "patch", "delete")


async def test_a_hundred_changes_of_one_object_are_one_write() -> None:
    async with running(is_started=False) as made:
        await create(made.api, DPU_RACK.path(), {"metadata": {"name": "a"}, "spec": {}})
        made.counters._writer.mark(made.counters, "a")
        for number in range(100):
            made.counters.want("a", number)
        assert made.writer.pending == 1
        task = asyncio.create_task(made.writer.run())
        await made.until_idle()
        task.cancel()
        assert await made.number("a") == 99
        assert made.requests("patch") == 1


async def test_changes_during_a_slow_write_are_one_more() -> None:
    async with running() as made:
        made.counters.want("a", 0)
        await made.until_idle()
        made.api.faults.latency_s = 1.0
        for number in range(1, 20):
            made.counters.want("a", number)
            await asyncio.sleep(0.05)
        made.api.faults.latency_s = 0.0
        await made.until_idle()
        assert await made.number("a") == 19
        assert made.requests("patch") <= 1 + 2


async def test_an_object_that_waits_is_written_when_its_time_has_come() -> None:
    async with running() as made:
        made.counters.wait_s["a"] = 10.0
        made.counters.want("a", 1)
        await asyncio.sleep(9.9)
        assert made.requests("create") == 0
        await asyncio.sleep(0.2)
        assert await made.number("a") == 1


async def test_requests_keep_to_the_rate() -> None:
    async with running(10.0) as made:
        for place in range(50):
            made.counters.want(f"a{place}", 1)
        await asyncio.sleep(4.0)
        assert 35 <= made.requests("create", "patch", "get") <= 10 + 40 + 1
        await made.until_idle()
        assert [await made.number(f"a{place}") for place in range(50)] == [1] * 50


async def test_an_urgent_object_goes_before_those_that_wait_for_the_rate() -> None:
    async with running(10.0) as made:
        for place in range(200):
            made.counters.want(f"a{place}", 1)
        await asyncio.sleep(5.0)
        made.counters.wanted["urgent"] = 1
        made.writer.mark(made.counters, "urgent", is_urgent=True)
        await asyncio.sleep(1.0)
        assert "urgent" in made.counters.observed.objects
        assert len(made.counters.observed.objects) < 100


@pytest.mark.parametrize("status", [500, 504])
async def test_a_write_that_took_effect_without_an_answer_is_not_repeated(status: int) -> None:
    async with running() as made:
        made.counters.want("a", 1)
        await made.until_idle()
        made.api.faults.refuse(status, "patch", is_committed=True)
        made.counters.want("a", 2)
        await made.until_idle()
        assert await made.number("a") == 2
        assert (made.requests("patch"), made.writer.counts.unknown, made.writer.counts.reads) == (2, 1, 1)


async def test_a_creation_without_an_answer_is_read_and_not_repeated() -> None:
    async with running() as made:
        made.api.faults.refuse(504, "create", is_committed=True)
        made.counters.want("a", 1)
        await made.until_idle()
        assert await made.number("a") == 1
        assert made.requests("create") == 1


async def test_a_conflict_and_an_object_of_another_writer_are_read_and_planned_again() -> None:
    async with running() as made:
        await create(made.api, DPU_RACK.path(), {"metadata": {"name": "a"}, "spec": {}})
        made.counters.want("a", 1)  # it does not know the object yet
        await made.until_idle()
        assert await made.number("a") == 1 and made.writer.counts.conflicts == 1
        made.api.faults.refuse(409, "patch")
        made.counters.want("a", 2)
        await made.until_idle()
        assert await made.number("a") == 2 and made.writer.counts.conflicts == 2


async def test_an_object_that_was_deleted_and_made_again_is_read_before_it_is_written() -> None:
    async with running() as made:
        made.counters.want("a", 1)
        await made.until_idle()
        uid = made.counters.observed.objects["a"].uid
        await made.api.delete(DPU_RACK.path(name="a"), uid=uid)
        made.counters.want("a", 2)
        await made.until_idle()
        assert await made.number("a") == 2, "made again after a 404"
        uid = made.counters.observed.objects["a"].uid
        await made.api.delete(DPU_RACK.path(name="a"), uid=uid)
        await create(made.api, DPU_RACK.path(), {"metadata": {"name": "a"}, "spec": {}})
        made.counters.want("a", 3)
        await made.until_idle()
        assert await made.number("a") == 3 and made.counters.observed.objects["a"].uid != uid


async def test_retry_after_holds_up_all_requests() -> None:
    async with running() as made:
        made.api.faults.refuse(429, "create", retry_after_s=20.0)
        made.counters.want("a", 1)
        await asyncio.sleep(1.0)
        made.counters.want("b", 1)
        await asyncio.sleep(18.5)
        assert made.requests("create", "get", "patch") == 1
        await made.until_idle()
        assert await made.number("a") == await made.number("b") == 1
        assert made.writer.counts.throttled == 1


async def test_a_server_that_is_away_for_an_hour_is_asked_seldom_and_then_gets_one_write_per_object() -> None:
    async with running() as made:
        for place in range(100):
            made.counters.want(f"a{place}", 0)
        await made.until_idle()
        made.api.go_down()
        made.api.requests.clear()
        for number in range(1, 361):
            for place in range(100):
                made.counters.want(f"a{place}", number)
            await asyncio.sleep(10.0)
        assert sum(made.api.requests.values()) < 3_600 / 5, "15 s apart on average, some at the same time"
        made.api.requests.clear()
        made.api.faults.is_down = False
        await made.until_idle(60.0)
        assert [await made.number(f"a{place}") for place in range(100)] == [360] * 100
        assert made.requests("patch") == 100


async def test_an_object_whose_attempts_are_used_up_waits_for_a_change_or_a_slow_retry() -> None:
    async with running() as made:
        made.counters.want("a", 1)
        await made.until_idle()
        made.api.faults.refuse(500, "patch", times=ATTEMPTS + 1)
        made.counters.want("a", 2)
        await asyncio.sleep(PROBE_S)
        assert (made.writer.counts.given_up, made.requests("patch")) == (1, 1 + ATTEMPTS)
        made.counters.want("a", 3)
        await asyncio.sleep(2.0)
        assert await made.number("a") == 3, "a change gives it new attempts"
        made.api.faults.refuse(422, "patch", times=ATTEMPTS)
        made.counters.want("a", 4)
        await asyncio.sleep(SLOW_RETRY_S * 0.7)
        made.counters.want("b", 1)
        await asyncio.sleep(2.0)
        assert (await made.number("a"), await made.number("b")) == (3, 1), "a refusal of one object keeps its pause"
        await asyncio.sleep(SLOW_RETRY_S * 0.8)
        assert await made.number("a") == 4


@pytest.mark.parametrize("status", [403, 404, 500, 504])
async def test_objects_that_wait_because_of_the_server_are_written_soon_after_it_recovers(status: int) -> None:
    """One of them shows the recovery: no object changes. Until then, only this one is tried."""
    names = [f"a{place}" for place in range(40)]
    async with running() as made:
        for name in names:
            made.counters.want(name, 1)
        await made.until_idle()
        made.api.faults.refuse(status, "patch", times=10_000)
        for name in names:
            made.counters.want(name, 2)
        await asyncio.sleep(SLOW_RETRY_S * 0.4)
        assert made.writer.counts.given_up >= len(names)
        before = made.requests("patch")
        await asyncio.sleep(SLOW_RETRY_S * 0.3)
        assert 2 <= made.requests("patch") - before <= 4, "one probe in half a minute"
        made.api.faults.clear()
        await asyncio.sleep(PROBE_S * 1.2 + RECOVERY_S + 1.0)
        assert [await made.number(name) for name in names] == [2] * len(names)


async def test_an_object_that_fails_alone_is_not_tried_at_each_success_of_another() -> None:
    async with running() as made:
        for name in ("bad", "good"):
            made.counters.want(name, 1)
        await made.until_idle()
        made.api.faults.refuse(500, "patch", times=10_000, within="/bad/")
        made.counters.want("bad", 2)
        await asyncio.sleep(60.0)
        before = made.requests("patch")
        for number in range(3_600):
            made.counters.want("good", number)
            await asyncio.sleep(1.0)
        assert made.requests("patch") - before <= 3_600 * (1 + 1.3 / PROBE_S)


async def test_a_new_list_ends_the_pauses_of_its_kind() -> None:
    async with running() as made:
        made.counters.want("a", 1)
        await made.until_idle()
        made.api.faults.refuse(404, "patch", times=ATTEMPTS)
        made.counters.want("a", 2)
        await asyncio.sleep(PROBE_S * 0.5)
        assert await made.number("a") == 1
        made.writer.recovered(made.counters)
        await asyncio.sleep(PROBE_S * 0.25)
        assert await made.number("a") == 2


async def test_an_object_that_changes_during_its_last_attempt_has_new_ones() -> None:
    """The answer is older than the change: an API server that has just started answers 403."""
    async with running() as made:
        made.counters.want("a", 1)
        await made.until_idle()
        made.api.faults.latency_s = 2.0
        made.api.faults.refuse(403, "patch")
        made.counters.want("a", 2)
        await asyncio.sleep(1.0)
        made.counters.want("a", 3)
        await asyncio.sleep(PROBE_S * 0.5)
        assert await made.number("a") == 3
        assert (made.writer.counts.refused, made.writer.counts.given_up) == (1, 0)


async def test_a_refusal_of_one_object_does_not_hold_up_others() -> None:
    async with running() as made:
        made.api.faults.refuse(403, "patch", times=1_000, within="/bad/")
        made.counters.want("bad", 1)
        for place in range(20):
            made.counters.want(f"a{place}", 1)
        await asyncio.sleep(1.0)
        assert [await made.number(f"a{place}") for place in range(20)] == [1] * 20
        assert made.writer.counts.refused == 1


async def test_a_status_of_a_replica_that_is_ahead_stays() -> None:
    async with running() as made:
        made.counters.want("a", 1)
        await made.until_idle()
        path = DPU_RACK.path(name="a", subresource="status")
        ahead = {"nodes": 50, "logPosition": {"generation": 1, "fleet": 1_000}}
        await made.api.patch(path, [{"op": "add", "path": "/status", "value": ahead}], "json")
        made.counters.want("a", 2)
        await asyncio.sleep(60.0)
        assert (await made.number("a"), made.writer.counts.behind) == (50, 1)
        assert made.requests("patch") == 1 + 1 + 1, "one refused write, and none again"
        made.counters.position = 2_000
        await asyncio.sleep(10.0)
        assert await made.number("a") == 2


@pytest.mark.parametrize("seed", range(5))
async def test_write_amplification_under_faults_is_at_most_a_tenth(seed: int) -> None:
    """Half of all requests fail in one way or another, and half of the failed writes take effect all the same."""
    async with running(seed=seed) as made:
        draws = Random(seed)
        faults = made.api.faults = Unreliable(draws)  # type: ignore[assignment]
        needed = 0
        before = await made.version()
        for number in range(1, 11):
            for place in range(20):
                made.counters.want(f"a{place}", number)
                needed += 1 + (number == 1)
            await asyncio.sleep(2_000.0)
            assert [await made.number(f"a{place}") for place in range(20)] == [number] * 20
        assert faults.injected > 200
        assert needed <= await made.version() - before <= 1.1 * needed, "every commit has a version"


class Unreliable:
    """Faults by chance, of every kind that leaves the outcome known or unknown."""

    def __init__(self, draws: Random) -> None:
        self.share = 0.5
        self.injected = 0
        self.is_down = False
        self.latency_s = 0.01
        self.shown = None
        self._draws = draws

    def take(self, verb: str, request: str) -> Any:
        if self._draws.random() >= self.share:
            return None
        self.injected += 1
        return _Refusal(self._draws.choice((0, 409, 429, 500, 503, 504)), self._draws.random() < 0.5)


class _Refusal:
    def __init__(self, status: int, is_unknown: bool) -> None:
        self.status = status
        self.is_committed = is_unknown and status in (0, 500, 504)

    def error(self) -> ApiError:
        return ApiError(self.status, "", "injected")
