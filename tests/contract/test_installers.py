"""Runs the contract of installers on simulated devices, whose steps are tasks, and on a BMC that speaks Redfish."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

import pytest
from msgspec.structs import replace

from drivers.backends.bmc import TaskFailed
from drivers.backends.simulated_bmc import BmcFaults, SimulatedBmc
from drivers.provisioning.attempts import Attempt, AttemptSuperseded, CallTiming
from drivers.provisioning.device import DeviceExecutor
from drivers.redfish.installer import Wanted
from projections.zones.dpus.phases import PREPARE_IMAGE, STEPS
from projections.zones.rows import Dpu
from tests.contract.installer import InstalledDpu, InstallerContract
from tests.support.bmc.faults import Outcome
from tests.support.redfish_steps import Steps, direct_steps

pytestmark = pytest.mark.virtual_clock


class SimulatedDpu:
    """A simulated device and its row in the log."""

    def __init__(self) -> None:
        clock = asyncio.get_running_loop().time
        self.device = SimulatedBmc("s", now_s=clock, rng=Random(1), faults=BmcFaults(latency_s=0.0))
        self.dpu = Dpu("z", 0, "", "s", "simulated:d", "Pending", 10, 10, 9, 1, image="i", disowned=10, began_ms=1)

    @property
    def installs(self) -> int:
        return sum(task.action == "install" for task in self.device.begun)

    @property
    def restarts(self) -> int:
        return sum(task.action == "reboot" for task in self.device.begun)

    @property
    def has_image(self) -> bool:
        return self.device.image == "i"

    def enter(self, phase: str) -> None:
        attempt = self.dpu.attempt
        self.dpu = replace(self.dpu, phase=phase, entered=attempt, disowned=attempt, task="")

    async def run(self, *, stop_after: int = 1_000_000) -> Mapping[str, str]:
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
            self.dpu = replace(self.dpu, task=task, percent=percent)

        step, calls = STEPS[self.dpu.phase], asyncio.Semaphore(1)
        attempt = Attempt("d", self.dpu, step, check, thawed, report, calls, CallTiming())
        try:
            facts = await DeviceExecutor(lambda _address: self.device).run(attempt)
        except TaskFailed:
            self.dpu = replace(self.dpu, disowned=self.dpu.attempt)
            raise
        finally:
            self.device.faults = BmcFaults(latency_s=0.0)
        self.dpu = replace(self.dpu, facts={**self.dpu.facts, **facts})
        return facts

    def fail_next(self, how: str) -> None:
        self.device.faults = BmcFaults(latency_s=0.0, fail=float(how == "fail"), lie=float(how == "lie"))

    def exchange(self) -> None:
        self.device.serial = "another"


class RedfishDpu(Steps):
    """A card whose BMC speaks Redfish, called without sockets."""

    @property
    def installs(self) -> int:
        return self.updates

    @property
    def restarts(self) -> int:
        return sum(path.endswith("ComputerSystem.Reset") for _, path in self.bmc.requests)

    @property
    def has_image(self) -> bool:
        return self.bmc.card.os == "DOCA_2.9.3_BSP_4.9.0"

    def fail_next(self, how: str) -> None:
        self.bmc.card.outcomes.planned.append(Outcome("fail" if how == "fail" else "lie"))

    def exchange(self) -> None:
        self.dpu = replace(self.dpu, serial="another")


class TestSimulatedDevices(InstallerContract):
    async def dpu(self) -> InstalledDpu:
        return SimulatedDpu()


class TestRedfish(InstallerContract):
    async def dpu(self) -> InstalledDpu:
        made = direct_steps()
        found = RedfishDpu(made.bmc, made.connect, made.dpu.bmc_address, made.url)
        found.wanted = Wanted(versions={"DPU_BSP": "4.9.0"})
        found.enter(PREPARE_IMAGE)
        await found.run()
        return found
