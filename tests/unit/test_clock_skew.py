"""Wrong clocks are detected by comparison with other clocks, the log and the monotonic clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from deploy.cli.operations.status import summary, verdict
from deploy.web.metrics.log import collect_clocks
from eventstore.replicas.clock_skew import CHECK_S, FRESH_S, LOG, SAMPLES, STEP_SHOWN_S, ClockSkew
from schemas.api import dpuplane_pb2 as pb
from tests.support.virtual_loop import run_virtual

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class Host:
    """A host with a clock that may be ahead, and the append time of the last folded record."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        self.append_ms = 0
        self.clocks = ClockSkew(self.now_ms, lambda: self.append_ms)

    def true_ms(self) -> int:
        return START_MS + round(asyncio.get_running_loop().time() * 1_000)

    def now_ms(self) -> int:
        return self.true_ms() + self.ahead_ms


def run(scenario: Callable[[Host], Any]) -> None:
    async def whole() -> None:
        host = Host()
        watching = asyncio.create_task(host.clocks.run())
        await asyncio.sleep(0)
        await scenario(host)
        watching.cancel()

    run_virtual(whole())


def test_clocks_that_agree_are_no_fault() -> None:
    async def scenario(host: Host) -> None:
        for latency_ms in (5, 900, 4_000, 7):
            sent_ms, host.append_ms = host.true_ms(), host.true_ms()
            await asyncio.sleep(latency_ms / 1_000)
            host.clocks.observe("p2", sent_ms)
            host.clocks.observe(LOG, sent_ms)
        assert host.clocks.offsets_ms() == {"p2": 5, LOG: 5}, "the smallest sample has the least latency"
        assert not [*host.clocks.faults()] and not host.clocks.log_ahead_ms()

    run(scenario)


@pytest.mark.parametrize(("ahead_ms", "words"), [(HOUR_MS, "3600.0 s ahead of"), (-HOUR_MS, "3600.0 s behind")])
def test_a_clock_that_differs_from_the_log_or_a_replica_is_reported(ahead_ms: int, words: str) -> None:
    async def scenario(host: Host) -> None:
        host.clocks.observe(LOG, host.now_ms() - ahead_ms)
        host.clocks.observe("p2", host.now_ms())
        assert [*host.clocks.faults()] == [f"this host's clock is {words} that of the log"]
        host.clocks.observe("p3", host.now_ms() - ahead_ms)
        assert f"this host's clock is {words} that of replica p3" in host.clocks.faults()
        for _ in range(SAMPLES):
            host.clocks.observe("p3", host.now_ms())
        assert len([*host.clocks.faults()]) == 1, "the clock of p3 agrees again"
        await asyncio.sleep(FRESH_S)
        assert not host.clocks.offsets_ms(), "all samples are too old"

    run(scenario)


def test_a_clock_that_is_set_is_detected_without_other_clocks() -> None:
    async def scenario(host: Host) -> None:
        host.ahead_ms = HOUR_MS
        await asyncio.sleep(2 * CHECK_S)
        assert [*host.clocks.faults()] == ["this host's clock was set ahead by 3600.0 s, 0 minutes ago"]
        host.append_ms = host.now_ms()
        await asyncio.sleep(900)
        host.ahead_ms = 0
        await asyncio.sleep(2 * CHECK_S)
        assert [step.ms for step in host.clocks.steps()] == [HOUR_MS, -HOUR_MS]
        assert host.clocks.log_ahead_ms() == HOUR_MS - 900_000 - 2_000
        assert "the last record is 2698.0 s ahead of this host's clock" in host.clocks.faults()
        host.append_ms = host.now_ms()
        await asyncio.sleep(STEP_SHOWN_S)
        assert not [*host.clocks.faults()]

    run(scenario)


def test_a_slewed_clock_is_not_reported_as_set() -> None:
    async def scenario(host: Host) -> None:
        for _ in range(100):
            host.ahead_ms += 400
            await asyncio.sleep(CHECK_S)
        assert not host.clocks.steps()

    run(scenario)


def test_metrics_and_the_verdict_report_a_wrong_clock() -> None:
    async def scenario(host: Host) -> None:
        host.clocks.observe(LOG, host.now_ms() - 2_000)
        host.clocks.observe("p2", host.now_ms() + 500)
        host.clocks.observe("p3", host.now_ms() + 7_000)
        host.append_ms = host.now_ms() + 4_000
        shown = {
            (sample.name, *sample.labels.values()): sample.value
            for metric in collect_clocks(host.clocks)
            for sample in metric.samples
        }
        assert shown == {
            ("dpuplane_clock_offset_seconds", "log"): 2.0,
            ("dpuplane_clock_offset_seconds", "replica"): -7.0,
            ("dpuplane_clock_step_seconds",): 0.0,
            ("dpuplane_log_ahead_seconds",): 4.0,
        }
        found = pb.Status(clock_faults=host.clocks.faults())
        assert verdict(found) == "wrong: 3 clock faults"
        assert ("clock", "this host's clock is 7.0 s behind that of replica p3") in summary(found)

    run(scenario)
