"""Provisioners during a freeze: no action starts on a device of a frozen zone before the thaw."""

from __future__ import annotations

import asyncio

import pytest

from drivers.backends.bmc import Bmc
from drivers.backends.simulated_bmc import BmcFaults, SimulatedBmcs
from drivers.provisioning.provisioner import Provisioner
from eventstore.log import FLEET_0
from projections.zones.dpus.phases import DPU_CONFIG, NODE_EFFECT, OS_INSTALLING, READY
from schemas.events import Event, StepFailed, StepStarted, WritesFrozen, WritesThawed
from tests.support.memory_plane import Plane, device_executors, plane

pytestmark = pytest.mark.virtual_clock

HOUR_S = 3_600.0
SLOW = BmcFaults(latency_s=0.001, pace=10.0)


class ProvisionerUnderTest:
    """A provisioner of simulated devices. `connected` has the name of each device that it connected to."""

    def __init__(self, made: Plane) -> None:
        self.connected: list[str] = []
        self._made = made
        self.bmcs = SimulatedBmcs(now_s=asyncio.get_running_loop().time, rng=made.rng(), faults=SLOW)
        self.provisioner = Provisioner(
            made.replicas["p1"], made.ranks("p1"), device_executors(self._connect), now_ms=made.now_ms, rng=made.rng()
        )
        made.spawn("p1", self.provisioner.run())

    def begun(self, name: str) -> list[str]:
        """The actions that began on a device."""
        return [task.action for task in self.bmcs.device(name).begun]

    async def freeze(self, zone: str) -> None:
        await self._say(WritesFrozen(self._made.command(zone), zone))

    async def thaw(self, zone: str) -> None:
        await self._say(WritesThawed(self._made.command(zone), zone))

    def _connect(self, address: str) -> Bmc:
        self.connected.append(address.removeprefix("simulated:"))
        return self.bmcs.connect(address)

    async def _say(self, event: Event) -> None:
        answer = await self._made.replicas["p1"].submit(FLEET_0, b"fleet", event, timeout_s=5.0)
        assert answer.outcome.code == "done"


async def test_no_step_begins_in_a_frozen_zone_before_the_thaw() -> None:
    async with plane() as made:
        await made.add("p1")
        driver = ProvisionerUnderTest(made)
        await driver.freeze("z1")
        for name, zone in (("d", "z1"), ("e", "z2")):
            await made.register(name, zone=zone)
            await made.request(name, "provision", "image-1", zone=zone)
        await made.until(lambda: made.dpu("e", "z2").phase == READY, timeout_s=HOUR_S)
        await asyncio.sleep(HOUR_S)
        assert (made.dpu("d").phase, made.dpu("d").step_state) == (NODE_EFFECT, "open")
        assert "d" not in driver.connected and driver.provisioner.under_way == 0
        await driver.thaw("z1")
        await made.until(lambda: made.dpu("d").phase == READY, timeout_s=HOUR_S)


async def test_a_running_step_ends_during_a_freeze_and_no_other_begins() -> None:
    async with plane() as made:
        await made.add("p1")
        driver = ProvisionerUnderTest(made)
        await made.register("d")
        await made.request("d", "provision", "image-1")
        await made.until(lambda: made.dpu("d").phase == OS_INSTALLING and made.dpu("d").percent > 0, timeout_s=HOUR_S)
        begun = driver.begun("d")
        assert begun[-1] == "install"
        await driver.freeze("")
        await asyncio.sleep(HOUR_S)
        assert (made.dpu("d").phase, made.dpu("d").step_state) == (DPU_CONFIG, "open")
        assert driver.begun("d") == begun
        await driver.thaw("")
        await made.until(lambda: made.dpu("d").phase == READY, timeout_s=HOUR_S)
        assert not made.count(made.partition("z1"), StepFailed)


async def test_a_step_started_just_before_a_freeze_does_nothing_before_the_thaw() -> None:
    async with plane() as made:
        await made.add("p1")
        driver = ProvisionerUnderTest(made)
        await made.register("d")
        made.log.failures.append_latency_s = 1.0
        await made.request("d", "provision", "image-1")
        await driver.freeze("z1")
        await made.until(lambda: made.dpu("d").step_state == "running")
        await asyncio.sleep(HOUR_S / 10)
        assert made.count(made.partition("z1"), StepStarted) == 1 and not driver.begun("d")
        await driver.thaw("z1")
        await made.until(lambda: made.dpu("d").phase == READY, timeout_s=HOUR_S)
        assert not made.count(made.partition("z1"), StepFailed)
