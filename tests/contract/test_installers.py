"""Runs the contract of installers on simulated devices, whose steps are tasks, and on a BMC that speaks Redfish."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random

import pytest
from msgspec.structs import replace

from drivers.backends.simulated_bmc import BmcFaults, SimulatedBmc
from drivers.provisioning.device import DeviceExecutor
from drivers.redfish.installer import Wanted
from drivers.simulators.redfish.faults import Outcome
from drivers.simulators.redfish.identity import BLUEFIELD_3, BLUEFIELD_4, BLUEFIELD_4_MEDIA_STAGING, Generation
from projections.zones.dpus.phases import INITIALIZE_INTERFACE
from tests.contract.installer import InstalledDpu, InstallerContract
from tests.support.attempted_steps import AttemptedSteps
from tests.support.redfish_steps import Steps, direct_steps

pytestmark = pytest.mark.virtual_clock


class SimulatedDpu(AttemptedSteps):
    """A simulated device."""

    def __init__(self) -> None:
        super().__init__("s", "simulated:d", "i")
        clock = asyncio.get_running_loop().time
        self.device = SimulatedBmc("s", now_s=clock, rng=Random(1), faults=BmcFaults(latency_s=0.0))

    @property
    def installs(self) -> int:
        return sum(task.action == "install" for task in self.device.begun)

    @property
    def restarts(self) -> int:
        return sum(task.action == "reboot" for task in self.device.begun)

    @property
    def has_image(self) -> bool:
        return self.device.image == "i"

    def installer(self) -> DeviceExecutor:
        return DeviceExecutor(lambda _address: self.device)

    async def run(
        self, *, stop_after: int = 1_000_000, on_progress: Callable[[str], None] = lambda task: None
    ) -> Mapping[str, str]:
        try:
            return await super().run(stop_after=stop_after, on_progress=on_progress)
        finally:
            self.device.faults = BmcFaults(latency_s=0.0)

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


class Bluefield4(RedfishDpu):
    """A card that boots its image from virtual media."""

    @property
    def installs(self) -> int:
        return self.bmc.card.media_boots


async def prepared(kind: type[RedfishDpu], generation: Generation, versions: Mapping[str, str]) -> RedfishDpu:
    made = direct_steps(generation=generation)
    found = kind(made.bmc, made.connect, made.dpu.bmc_address, made.url)
    found.wanted = Wanted(versions=versions)
    found.enter(INITIALIZE_INTERFACE)
    await found.run()
    return found


class TestRedfish(InstallerContract):
    async def dpu(self) -> InstalledDpu:
        return await prepared(RedfishDpu, BLUEFIELD_3, {"DPU_BSP": "4.9.0"})


class TestRedfishOfBluefield4(InstallerContract):
    async def dpu(self) -> InstalledDpu:
        return await prepared(Bluefield4, BLUEFIELD_4, {"DPU_OS": "DOCA_2.9.3_BSP_4.9.0"})


class TestRedfishOfBluefield4WithStagedMedia(InstallerContract):
    async def dpu(self) -> InstalledDpu:
        return await prepared(Bluefield4, BLUEFIELD_4_MEDIA_STAGING, {"DPU_OS": "DOCA_2.9.3_BSP_4.9.0"})
