"""Timers report a passed deadline once, by rank, and in time whatever the clocks do."""

from __future__ import annotations

import asyncio

import pytest

from drivers.timers import GRACE_S, RETRY_S, Timers
from eventstore.ids import internal_envelope
from projections.zones.dpus.phases import NODE_EFFECT, STEPS
from schemas.events import DeadlinePassed, StepStarted
from tests.support.memory_plane import Plane, plane
from tests.support.virtual_loop import run_virtual

pytestmark = pytest.mark.virtual_clock

ATTEMPT_S = STEPS[NODE_EFFECT].deadline_ms / 1_000
LIMIT_S = ATTEMPT_S + GRACE_S


class Clock:
    """A clock that is `ahead_ms` ahead of the clock of the log."""

    def __init__(self, made: Plane, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms
        self._made = made

    def __call__(self) -> int:
        return self._made.now_ms() + self.ahead_ms


def timers(made: Plane, name: str, clock: Clock | None = None) -> Timers:
    found = Timers(made.replicas[name], made.ranks(name), now_ms=clock or made.now_ms, rng=made.rng())
    made.spawn(name, found.run())
    return found


async def begin_step(made: Plane, name: str = "d") -> None:
    """Start an attempt that never reports a result."""
    await made.register(name)
    await made.request(name, "provision", "image-1")
    number = made.dpu(name).attempt + 1
    event = StepStarted(internal_envelope(name, "test", made.now_ms()), "z1", name, NODE_EFFECT, number, "nobody")
    await next(iter(made.replicas.values())).append_event(made.partition("z1"), b"z1", event, timeout_s=5.0)
    await made.until(lambda: made.dpu(name).step_state == "running")


async def test_a_deadline_is_reported_once_when_it_passes() -> None:
    async with plane() as made:
        await made.add("r1")
        found = timers(made, "r1")
        await asyncio.sleep(5)
        await begin_step(made)
        assert abs(await made.until(lambda: made.dpu("d").failures == 1, timeout_s=2 * LIMIT_S) - LIMIT_S) < 0.1
        await asyncio.sleep(3_600)
        assert found.appended == made.count(made.partition("z1"), DeadlinePassed) == 1


@pytest.mark.parametrize("ahead_ms", [20_000, 7_200_000, -7_200_000])
async def test_a_deadline_is_reported_in_time_by_a_wrong_clock(ahead_ms: int) -> None:
    async with plane() as made:
        await made.add("r1")
        found = timers(made, "r1", Clock(made, ahead_ms))
        await begin_step(made)
        waited_s = await made.until(lambda: made.dpu("d").failures == 1, timeout_s=2 * LIMIT_S)
        assert abs(waited_s - LIMIT_S) < 0.1
        assert found.appended == 1


def test_a_clock_jump_ends_no_attempt_early_or_late() -> None:
    """A clock that was set ahead once ended every running step at once, and no step ended in the hour after it."""

    async def scenario(jumps_ms: tuple[int, ...]) -> None:
        async with plane() as made:
            await made.add("r1")
            found = timers(made, "r1")
            await begin_step(made)
            for jump_ms in jumps_ms:
                await asyncio.sleep(LIMIT_S / 5)
                made.ahead_ms += jump_ms
                await made.register(f"other{jump_ms}")
            assert made.dpu("d").failures == 0
            left_s = LIMIT_S - len(jumps_ms) * LIMIT_S / 5
            assert abs(await made.until(lambda: made.dpu("d").failures == 1, timeout_s=2 * LIMIT_S) - left_s) < 1.0
            assert found.appended == 1

    for jumps_ms in ((3_600_000,), (3_600_000, -3_600_000)):
        run_virtual(scenario(jumps_ms))


async def test_an_attempt_begun_under_a_fast_clock_has_its_normal_deadline() -> None:
    async with plane() as made:
        await made.add("r1")
        made.ahead_ms = 3_600_000
        found = timers(made, "r1")
        await begin_step(made)
        await asyncio.sleep(LIMIT_S / 2)
        made.ahead_ms = 0
        await made.register("another")
        waited_s = await made.until(lambda: made.dpu("d").failures == 1, timeout_s=2 * LIMIT_S)
        assert abs(waited_s - LIMIT_S) < 1.0, "the deadline counts from the correction"
        assert found.appended == 1


@pytest.mark.parametrize("ahead_ms", [7_200_000, -7_200_000])
async def test_a_timer_with_a_wrong_clock_learns_the_time_from_the_log(ahead_ms: int) -> None:
    async with plane() as made:
        await made.add("r1")
        await begin_step(made)
        found = timers(made, "r1", Clock(made, ahead_ms))
        waited_s = await made.until(lambda: made.dpu("d").failures == 1, timeout_s=2 * LIMIT_S)
        assert ATTEMPT_S <= waited_s < LIMIT_S + 1.0
        assert found.appended <= 2


async def test_an_append_that_did_not_land_is_not_evidence_of_a_wrong_clock() -> None:
    """The last record of a quiet log may be old, and by its time the deadline has not passed."""
    async with plane() as made:
        await made.add("r1")
        found = timers(made, "r1")
        await begin_step(made)
        made.log.failures.late_s[made.partition("z1")] = 36_000.0
        waited_s = await made.until(lambda: made.dpu("d").failures == 1, timeout_s=2 * LIMIT_S)
        assert LIMIT_S <= waited_s < LIMIT_S + 2 * RETRY_S
        assert (found.appended, found.internal_events.failures) == (1, 1)


def test_a_timer_of_lower_rank_reports_only_if_the_first_does_not() -> None:
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
            return found.appended, took_s - LIMIT_S

    assert run_virtual(scenario(True))[0] == 0
    stated, late_s = run_virtual(scenario(False))
    assert stated == 1 and 0.29 < late_s < 0.4


async def test_a_deadline_that_was_met_is_not_reported() -> None:
    async with plane() as made:
        await made.add("r1")
        found = timers(made, "r1")
        await begin_step(made)
        await made.request("d", "skip")
        await asyncio.sleep(2 * LIMIT_S)
        assert found.appended == 0


async def test_no_deadline_of_a_halted_partition_is_reported() -> None:
    async with plane() as made:
        replica = await made.add("t1")
        timers(made, "t1")
        await begin_step(made)
        replica.folded(made.partition("z1")).halted = "a record that this binary cannot fold"
        await asyncio.sleep(LIMIT_S + 600)
        assert made.count(made.partition("z1"), DeadlinePassed) == 0
