"""The offset of this host's clock from those of the log and other replicas, and steps of this clock.

A command is refused if it is appended more than 1 minute before, or more than 2 minutes after, the time in its id. If
the clock of a host is off by that much, all commands from this host are refused. A clock that is off by one second
already needs attention. Three comparisons detect a clock that is off:

- other clocks: a beacon carries the time of its sender, and this replica's own beacon returns with the time of the log.
  Latency only increases the difference, so the smallest of the last samples counts;
- the record that was folded last: it cannot be later than now;
- the monotonic clock of this process: a sudden change of the difference between it and the wall clock means that the
  wall clock was set. In the embedded engine, with one clock only, this is the only signal.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

OFF_MS = 1_000
"""Difference from which a clock is reported as off. NTP keeps clocks within a few milliseconds."""

LOG = "the log"

CHECK_S = 1.0
SAMPLES = 20
FRESH_S = 10.0
"""Maximum age of samples that are shown."""

STEP_SHOWN_S = 3_600.0
STEPS_SHOWN = 4


class ClockStep(NamedTuple):
    """The clock was set ahead by `ms` (back, if negative), at `at_s` of the monotonic clock."""

    at_s: float
    ms: int


class ClockSkew:
    """Compares the clocks. `append_ms` is the append time of the last folded record, 0 for none."""

    def __init__(self, now_ms: Callable[[], int], append_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._append_ms = append_ms
        self._heard: dict[str, tuple[float, deque[int]]] = {}
        self._steps: deque[ClockStep] = deque(maxlen=STEPS_SHOWN)
        self._zero_ms: int | None = None

    async def run(self) -> None:
        """Check for clock steps, for ever."""
        while True:
            self.check()
            await asyncio.sleep(CHECK_S)

    def now_ms(self) -> int:
        """The time by this clock."""
        return self._now_ms()

    def check(self) -> None:
        """Compare the clock with the monotonic one."""
        now_s = asyncio.get_running_loop().time()
        zero_ms = self._now_ms() - round(now_s * 1_000)
        if self._zero_ms is not None and abs(zero_ms - self._zero_ms) > OFF_MS:
            self._steps.append(ClockStep(now_s, zero_ms - self._zero_ms))
            self._heard.clear()
        self._zero_ms = zero_ms

    def observe(self, whose: str, time_ms: int) -> None:
        """Add a sample: the other clock showed this time a moment ago."""
        now_s = asyncio.get_running_loop().time()
        _, samples = self._heard.pop(whose, (0.0, deque[int](maxlen=SAMPLES)))
        samples.append(self._now_ms() - time_ms)
        self._heard = {name: heard for name, heard in self._heard.items() if now_s - heard[0] < FRESH_S}
        self._heard[whose] = (now_s, samples)

    def offsets_ms(self) -> dict[str, int]:
        """How far this clock is ahead of each clock with recent samples."""
        now_s = asyncio.get_running_loop().time()
        return {name: min(samples) for name, (at_s, samples) in self._heard.items() if now_s - at_s < FRESH_S}

    def log_ahead_ms(self) -> int:
        """How far the append time of the last folded record is ahead of this clock; 0 if it is not."""
        return max(0, self._append_ms() - self._now_ms())

    def steps(self) -> list[ClockStep]:
        """The latest steps of the clock in the last hour."""
        now_s = asyncio.get_running_loop().time()
        return [step for step in self._steps if now_s - step.at_s < STEP_SHOWN_S]

    def faults(self) -> Iterator[str]:
        """One sentence per clock that is off."""
        for name, offset_ms in sorted(self.offsets_ms().items()):
            if abs(offset_ms) > OFF_MS:
                yield f"this host's clock is {_apart(offset_ms)} that of {name if name == LOG else f'replica {name}'}"
        if (ahead_ms := self.log_ahead_ms()) > OFF_MS:
            yield f"the last record is {ahead_ms / 1_000:.1f} s ahead of this host's clock"
        now_s = asyncio.get_running_loop().time()
        for step in self.steps():
            way = "ahead" if step.ms > 0 else "back"
            minutes = (now_s - step.at_s) / 60
            yield f"this host's clock was set {way} by {abs(step.ms) / 1_000:.1f} s, {minutes:.0f} minutes ago"


def _apart(offset_ms: int) -> str:
    return f"{abs(offset_ms) / 1_000:.1f} s {'ahead of' if offset_ms > 0 else 'behind'}"
