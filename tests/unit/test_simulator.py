"""The simulator with a registrar that fails, and the cost of idle devices."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Collection

import pytest

from drivers.backends.simulated import NO_DEVICE_FAULTS, DeviceFaults
from drivers.backends.simulated_devices import SimulatedDevices
from drivers.simulators.simulator import DpuRefused, Simulator
from drivers.wire.agent_messages import Ack
from drivers.wire.links import Link, LinkClosed
from eventstore.errors import LogUnavailable
from tests.support.virtual_loop import run_virtual

pytestmark = pytest.mark.virtual_clock

SILENCES = 3


class FlakyRegistrar:
    """A registrar of one zone. Each request fails `SILENCES` times before it succeeds."""

    def __init__(self) -> None:
        self.registrations: list[str] = []
        self._asked: dict[str, int] = {}
        self._told = False

    async def zones(self) -> Collection[str]:
        if self._told:
            await asyncio.Event().wait()
        self._told = True
        return ("z",)

    async def registered(self, zone: str) -> dict[str, str]:
        self._answer_late(zone)
        return {"z-dpu-0001": "redfish://h:1"}

    async def register(self, zone: str, dpu: str, node: str, serial: str, bmc_address: str) -> None:
        self._answer_late(dpu)
        self.registrations.append(dpu)

    def _answer_late(self, question: str) -> None:
        self._asked[question] = self._asked.get(question, 0) + 1
        if self._asked[question] <= SILENCES:
            raise LogUnavailable("the plane does not answer")


class RefusingRegistrar(FlakyRegistrar):
    """A registrar that refuses one DPU for good."""

    async def register(self, zone: str, dpu: str, node: str, serial: str, bmc_address: str) -> None:
        if dpu == "z-dpu-0000":
            raise DpuRefused("dpu: 'z-dpu-0000' is registered in zone 'y'; delete it there first")
        await super().register(zone, dpu, node, serial, bmc_address)


async def _no_relay(address: str) -> Link:
    raise LinkClosed(f"{address} is down")


async def test_registration_is_retried_while_the_plane_is_unavailable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "drivers.simulators.simulator")
    registrar = FlakyRegistrar()
    devices = Simulator(registrar, ["r"], dial=_no_relay, rng=random.Random(1), dpus_per_zone=3)
    running = asyncio.create_task(devices.run())
    await asyncio.sleep(60)
    assert not running.done()
    assert sorted(registrar.registrations) == ["z-dpu-0000", "z-dpu-0002"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert set(caplog.messages) == {"registrar not available, retrying: the plane does not answer"}
    requests = Counter(record.__dict__["request"] for record in caplog.records)
    assert requests == dict.fromkeys(
        ("list DPUs of zone z", "register DPU z-dpu-0000", "register DPU z-dpu-0002"), SILENCES
    )


async def test_a_refused_device_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """Any caller may register a DPU under the name of a simulated one, which once ended `serve --simulate`."""
    registrar = RefusingRegistrar()
    devices = Simulator(registrar, ["r"], dial=_no_relay, rng=random.Random(1), dpus_per_zone=4)
    running = asyncio.create_task(devices.run())
    await asyncio.sleep(60)
    assert not running.done()
    assert sorted(registrar.registrations) == ["z-dpu-0002", "z-dpu-0003"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert caplog.messages.count("simulated DPU not registered") == 1


class CountingFleet(SimulatedDevices):
    """Simulated devices that count their ticks."""

    ticks = 0

    def tick(self, now: float) -> dict[int, list[Ack]]:
        self.ticks += 1
        return super().tick(now)


def _ticks_in_an_hour(faults: DeviceFaults) -> int:
    async def scenario() -> int:
        devices = Simulator(FlakyRegistrar(), ["r"], dial=_no_relay, rng=random.Random(1), dpus_per_zone=3)
        fleet = devices.devices = CountingFleet(faults, random.Random(1))
        running = asyncio.create_task(devices.run())
        await asyncio.sleep(3_600)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return fleet.ticks

    return run_virtual(scenario())


def test_idle_devices_have_no_ticks() -> None:
    assert not _ticks_in_an_hour(NO_DEVICE_FAULTS)


def test_devices_with_random_reboots_tick_every_few_seconds() -> None:
    assert 600 <= _ticks_in_an_hour(DeviceFaults(reboots_per_hour=1.0)) <= 1_000
