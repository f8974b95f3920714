"""Timers: a deadline is stated when it has come, by rank, and again if the log's clock says that it has not."""

from __future__ import annotations

import asyncio

from drivers.timers import Timers
from eventstore.ids import statement
from projections.phases import NODE_EFFECT, STEPS
from schemas.events import DeadlinePassed, StepStarted
from tests.support.driven import Plane, plane
from tests.support.virtual_loop import run_virtual

LIMIT_S = STEPS[NODE_EFFECT].deadline_ms / 1_000


def timers(made: Plane, name: str, ahead_ms: int = 0) -> Timers:
    """Timers whose clock is so much ahead of the log's."""
    found = Timers(made.replicas[name], made.ranks(name), now_ms=lambda: made.now_ms() + ahead_ms, rng=made.rng())
    made.spawn(name, found.run())
    return found


async def begin_step(made: Plane) -> None:
    """An attempt of which nobody will hear again."""
    await made.register("d")
    await made.request("d", "provision", "image-1")
    number = made.dpu("d").attempt + 1
    event = StepStarted(statement("d", "test", made.now_ms()), "z1", "d", NODE_EFFECT, number, "nobody")
    await next(iter(made.replicas.values())).state_fact(made.partition("z1"), b"z1", event, timeout_s=5.0)
    await made.until(lambda: made.dpu("d").standing == "running")


def test_a_deadline_is_stated_when_it_has_come_and_once() -> None:
    async def scenario() -> None:
        async with plane() as made:
            await made.add("r1")
            found = timers(made, "r1")
            await asyncio.sleep(5)
            await begin_step(made)
            assert abs(await made.until(lambda: made.dpu("d").failures == 1, timeout_s=2 * LIMIT_S) - LIMIT_S) < 0.1
            await asyncio.sleep(3_600)
            assert found.stated == made.count(made.partition("z1"), DeadlinePassed) == 1

    run_virtual(scenario())


def test_a_clock_that_is_ahead_says_it_until_it_counts() -> None:
    async def scenario() -> None:
        async with plane() as made:
            await made.add("r1")
            found = timers(made, "r1", ahead_ms=20_000)
            await begin_step(made)
            assert LIMIT_S <= await made.until(lambda: made.dpu("d").failures == 1, timeout_s=2 * LIMIT_S) < LIMIT_S + 4
            assert 5 < found.stated < 25

    run_virtual(scenario())


def test_the_second_in_rank_speaks_only_if_the_first_does_not() -> None:
    async def scenario(both: bool) -> tuple[int, float]:
        async with plane() as made:
            await made.add("r1")
            await made.add("r2")
            if both:
                timers(made, "r1")
            found = timers(made, "r2")
            await begin_step(made)
            took_s = await made.until(lambda: made.dpu("d").failures == 1, timeout_s=2 * LIMIT_S)
            await asyncio.sleep(60)
            return found.stated, took_s - LIMIT_S

    assert run_virtual(scenario(True))[0] == 0
    stated, late_s = run_virtual(scenario(False))
    assert stated == 1 and 0.29 < late_s < 0.4


def test_a_deadline_that_was_met_is_never_stated() -> None:
    async def scenario() -> None:
        async with plane() as made:
            await made.add("r1")
            found = timers(made, "r1")
            await begin_step(made)
            await made.request("d", "skip")
            await asyncio.sleep(2 * LIMIT_S)
            assert found.stated == 0

    run_virtual(scenario())
