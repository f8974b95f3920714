"""The contract of a BMC with provisioners. It runs on a virtual clock."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

import pytest

from drivers.backends.bmc import Bmc, NeedsOperator, SessionEnded, Unreachable
from drivers.backends.simulated_bmc import BmcFaults

PLAIN = BmcFaults(latency_s=0.0, pace=0.01, no_images=frozenset({"missing"}))
LONG_TASKS = PLAIN._replace(pace=100.0)
"""With these faults, a task lasts longer than any scenario, also on a busy machine."""
TIMEOUT_S = 10.0
Scenario = Callable[[Bmc], Awaitable[None]]


class BmcContract(ABC):
    """Each scenario gets a device `d`. The image `missing` does not exist on it."""

    @abstractmethod
    def connected(self, scenario: Scenario, faults: BmcFaults = PLAIN) -> None:
        """Run a scenario with a device that has these faults."""

    def test_a_task_runs_by_itself_and_a_done_install_has_its_image(self) -> None:
        async def scenario(bmc: Bmc) -> None:
            assert (await bmc.open(1)).serial == "SN-d"
            task = await bmc.start(1, "install", "image-1")
            assert (task.action, task.image, task.token, task.state) == ("install", "image-1", 1, "running")
            while (found := await bmc.read(1)).tasks[-1].state == "running":
                assert found.image == ""
                await asyncio.sleep(0.01)
            assert (found.tasks[-1].id, found.tasks[-1].state, found.image) == (task.id, "done", "image-1")

        self.connected(scenario)

    def test_a_later_session_ends_earlier_ones_and_adopts_their_task(self) -> None:
        async def scenario(bmc: Bmc) -> None:
            await bmc.open(3)
            task = await bmc.start(3, "reboot", "")
            assert [found.id for found in (await bmc.open(5)).tasks] == [task.id]
            for late in (bmc.open(3), bmc.read(3), bmc.start(4, "reboot", ""), bmc.cancel(3, task.id)):
                with pytest.raises(SessionEnded, match=r"attempt \d"):
                    await late
            assert (await bmc.open(5)).tasks[-1].token == 3

        self.connected(scenario)

    def test_a_second_task_is_refused_while_one_runs(self) -> None:
        async def scenario(bmc: Bmc) -> None:
            await bmc.open(1)
            task = await bmc.start(1, "install", "image-1")
            with pytest.raises(Unreachable, match="in progress"):
                await bmc.start(1, "reboot", "")
            await bmc.cancel(1, task.id)
            await bmc.cancel(1, task.id)
            await bmc.start(1, "reboot", "")
            assert [found.state for found in (await bmc.read(1)).tasks] == ["cancelled", "running"]

        self.connected(scenario, LONG_TASKS)

    def test_a_missing_image_needs_an_operator(self) -> None:
        async def scenario(bmc: Bmc) -> None:
            await bmc.open(1)
            with pytest.raises(NeedsOperator, match="'missing' does not exist on the device"):
                await bmc.start(1, "install", "missing")

        self.connected(scenario)


async def within_timeout(scenario: Awaitable[None]) -> None:
    """Fail a scenario that hangs."""
    async with asyncio.timeout(TIMEOUT_S):
        await scenario
