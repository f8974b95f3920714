"""Writes to an API server by a replica that lags behind the log: it takes nothing back that another one wrote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec
import pytest

from drivers.kubernetes.request_budget import RequestBudget
from drivers.kubernetes.resources.target import ResourceTarget
from drivers.kubernetes.writer import CONFIRMED_S, Writer
from eventstore.replicas.beacons import SingleReplica
from projections.kubernetes.object_events import ignore
from projections.kubernetes.resources.api_kinds import API_KINDS
from projections.kubernetes.resources.goals import LiveObjects
from projections.kubernetes.resources.live_object import LiveObject
from projections.kubernetes.resources.writes import Goal
from projections.resources import kinds
from schemas.resources.crds import definition
from schemas.resources.dpf import KINDS
from tests.support.kubernetes.requests import create, get, install
from tests.support.kubernetes.simulated.api import SimulatedApi

pytestmark = pytest.mark.virtual_clock

SOURCE, NAME = "east", "default/jammy"
KIND = API_KINDS[kinds.BFB]
PATH = KIND.path("default", "jammy")
BODY = {
    "apiVersion": KIND.api_version,
    "kind": KIND.name,
    "metadata": {"name": "jammy"},
    "spec": {"url": "https://images.example.org/jammy.bfb"},
}


class LateGoals:
    """The goals of a replica that has folded `folded` of a log's phases; the last folded one is to be shown."""

    def __init__(self) -> None:
        self.log = ["Downloading"]
        self.folded = 1
        self.is_over = False

    def is_consistent(self) -> bool:
        return True

    def is_exclusive(self, key: str) -> bool:
        return False

    def is_foreign(self, key: str, live: LiveObject) -> bool:
        return False

    def goal(self, key: str, live: LiveObject | None) -> Goal:
        return Goal(status={"phase": self.log[self.folded - 1]}, is_over=self.is_over and self.folded == 1)


class LateReplica:
    """The writer of a replica, and an API server that another replica writes to as well."""

    def __init__(self) -> None:
        self.api = SimulatedApi(Random(1))
        self.goals = LateGoals()
        self.is_log_away = False
        self.while_asked: list[Callable[[], Any]] = []
        """What happens while the next questions for the end of the log are answered."""
        self.questions = 0
        cache = LiveObjects().add(SOURCE, kinds.BFB)
        goals: Any = self.goals
        self.target = ResourceTarget(
            SOURCE, KIND, cache, goals, SingleReplica("late"), report=ignore, now_ms=lambda: 1_790_000_000_000
        )
        self.writer = Writer(self.api, RequestBudget(1_000.0), rng=Random(1), catch_up=self._catch_up)

    async def _catch_up(self) -> bool:
        self.questions += 1
        if self.is_log_away:
            return False
        end = len(self.goals.log)
        if self.while_asked:
            await self.while_asked.pop(0)()
        self.goals.folded = max(self.goals.folded, end)
        return True

    async def advance(self, phase: str, *, is_seen: bool = True) -> None:
        """Let the log advance. Another replica shows it at once, and our watch sees that."""
        self.goals.log.append(phase)
        body = {key: BODY[key] for key in ("apiVersion", "kind", "metadata")} | {"status": {"phase": phase}}
        query = {"fieldManager": "dpuplane", "force": "true"}
        await self.api.patch(f"{PATH}/status", body, "apply", query)
        if is_seen:
            await self.see()

    async def see(self) -> None:
        self.target.cache.put(msgspec.json.decode(await self.api.get(PATH), type=LiveObject))

    async def phase(self) -> str | None:
        found: str | None = (await get(self.api, PATH)).get("status", {}).get("phase")
        return found

    async def until_idle(self, timeout_s: float = 60.0) -> None:
        self.writer.mark(self.target, NAME)
        async with asyncio.timeout(timeout_s):
            while self.writer.pending or self.writer._busy:
                await asyncio.sleep(0.05)


@asynccontextmanager
async def late_replica() -> AsyncIterator[LateReplica]:
    made = LateReplica()
    bfb = next(kind for kind in KINDS if kind.name == KIND.name)
    await install(made.api, definition(bfb))
    await create(made.api, KIND.path("default"), BODY)
    await made.see()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(made.writer.run())
        yield made
        task.cancel()


async def test_a_status_that_is_newer_than_our_fold_stays() -> None:
    async with late_replica() as late:
        await late.advance("Ready")
        await late.until_idle()
        assert (await late.phase(), late.writer.counts.writes) == ("Ready", 0)
        assert late.questions == 1, "it seemed to need a write"


async def test_an_object_that_only_an_old_fold_does_not_want_is_not_deleted() -> None:
    async with late_replica() as late:
        late.goals.is_over = True
        await late.advance("Ready")
        await late.until_idle()
        assert (await late.phase(), late.writer.counts.writes) == ("Ready", 0)


async def test_an_object_that_changes_during_the_question_is_judged_by_another_question() -> None:
    """The first answer may be from before the record that the other replica shows."""
    async with late_replica() as late:
        late.while_asked = [lambda: late.advance("Ready")]
        await late.until_idle()
        assert (await late.phase(), late.writer.counts.writes) == ("Ready", 0)
        assert late.questions == 2


async def test_a_write_for_a_version_that_was_replaced_unseen_is_refused_and_planned_again() -> None:
    async with late_replica() as late:
        late.while_asked = [lambda: late.advance("Ready", is_seen=False)]
        await late.until_idle()
        assert (await late.phase(), late.writer.counts.conflicts) == ("Ready", 1)
        assert late.writer.counts.writes == 0


async def test_a_process_that_was_stopped_during_the_question_asks_again() -> None:
    async with late_replica() as late:
        late.while_asked = [lambda: asyncio.sleep(CONFIRMED_S + 1.0)]
        await late.until_idle()
        assert (await late.phase(), late.questions, late.writer.counts.writes) == ("Downloading", 2, 1)


async def test_without_the_log_nothing_is_written_and_afterwards_everything_is() -> None:
    async with late_replica() as late:
        late.is_log_away = True
        late.writer.mark(late.target, NAME)
        await asyncio.sleep(30.0)
        assert await late.phase() == "Initializing" and late.writer.pending == 1
        assert 30 <= late.questions <= 150, "it asks again after a pause"
        late.is_log_away = False
        await late.until_idle()
        assert await late.phase() == "Downloading"
