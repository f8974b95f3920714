"""Attempts at the steps of one DPU with an installer, and the row of the DPU that they leave in the log."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from drivers.backends.bmc import TaskFailed
from drivers.provisioning.attempts import Attempt, AttemptSuperseded, CallTiming, Executor
from projections.zones.dpus.install_interfaces import step_of
from projections.zones.rows import Dpu

TASK_LENGTH_MAX = 253
"""The longest name of a task that the log accepts."""


class AttemptedSteps(ABC):
    """The steps of one DPU. `dpu` is its row, as the log has it; `progress` are the tasks and percentages appended."""

    def __init__(self, serial: str, address: str, image: str) -> None:
        self.progress: list[tuple[str, int]] = []
        self.timing = CallTiming()
        self.dpu = Dpu("z", 0, "", serial, address, "Pending", 10, 10, 9, 1, image=image, disowned=10, began_ms=1)

    @abstractmethod
    def installer(self) -> Executor:
        """The installer of the next attempt."""

    def enter(self, phase: str) -> None:
        """Begin a phase, as the fold does."""
        dpu = self.dpu
        self.dpu = replace(dpu, phase=phase, entered=dpu.attempt, disowned=dpu.attempt, task="", percent=0)

    async def run(
        self, *, stop_after: int = 1_000_000, on_progress: Callable[[str], None] = lambda task: None
    ) -> Mapping[str, str]:
        """Run the next attempt at the present phase. After `stop_after` checks another actor owns the step."""
        self.dpu = replace(self.dpu, attempt=self.dpu.attempt + 1, began_ms=self.dpu.began_ms + 1)
        checks = 0

        def check() -> None:
            nonlocal checks
            checks += 1
            if checks > stop_after:
                raise AttemptSuperseded("not any more")

        async def thawed() -> None:
            check()

        async def report(task: str, percent: int) -> None:
            check()
            assert len(task) <= TASK_LENGTH_MAX
            self.progress.append((task, percent))
            self.dpu = replace(self.dpu, task=task, percent=percent)
            on_progress(task)

        step, calls = step_of(self.dpu.bmc_address, self.dpu.phase), asyncio.Semaphore(8)
        attempt = Attempt("d", self.dpu, step, check, thawed, report, calls, self.timing)
        try:
            facts = await self.installer().run(attempt)
        except TaskFailed:
            self.dpu = replace(self.dpu, disowned=self.dpu.attempt)
            raise
        self.dpu = replace(self.dpu, facts={**self.dpu.facts, **facts})
        return facts

    async def do(self, phase: str) -> Mapping[str, str]:
        """Enter a phase and run one attempt at it."""
        self.enter(phase)
        return await self.run()
