"""Runs the contract of installers on DPUs that the agent of their host installs through a rshim.

A FIFO resets its DPU only when it is read, later than a real rshim: a loaded machine may show the boot before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.contract.installer import InstalledDpu, InstallerContract
from tests.support.rshim_steps import BFB, RshimSteps

pytestmark = pytest.mark.timeout(600)


class RshimDpu(RshimSteps):
    """A DPU, whose agent runs during attempts."""

    @property
    def installs(self) -> int:
        return self.device.installs

    @property
    def restarts(self) -> int:
        return self.device.restarts

    @property
    def has_image(self) -> bool:
        return self.device.image == BFB

    async def run(
        self, *, stop_after: int = 1_000_000, on_progress: Callable[[str], None] = lambda task: None
    ) -> Mapping[str, str]:
        async with self.working():
            return await super().run(stop_after=stop_after, on_progress=on_progress)

    def enter(self, phase: str) -> None:
        super().enter(phase)
        self.device.age(1_000)

    def fail_next(self, how: str) -> None:
        self.device.planned.append(how)

    def exchange(self) -> None:
        self.dpu = replace(self.dpu, serial="another")


class TestRshim(InstallerContract):
    @pytest.fixture(autouse=True)
    async def folders(self, tmp_path: Path) -> AsyncIterator[None]:
        self._folder, self._count = tmp_path, 0
        with ExitStack() as self._devices:
            yield

    async def dpu(self) -> InstalledDpu:
        self._count += 1
        made = RshimDpu(self._folder / str(self._count))
        self._devices.enter_context(made.device.running())
        return made
