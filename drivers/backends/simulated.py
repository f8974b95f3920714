"""Simulated devices: their faults, and one device for a real agent.

Faults are drawn from a given random generator and are off by default. The flat records of `simulated_devices`, where a
device costs a few bytes instead of a task, have the same faults.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from drivers.backends.device import DeviceFailed
from projections.rules.device_table import EMPTY_TABLE, DeviceTable
from projections.rules.rule import SetStep


class DeviceFaults(NamedTuple):
    """Faults of devices. Shares and chances are from 0 to 1; a chance is per frame."""

    latency_ms: float = 0.0
    """Median time of a device to apply a frame; the distribution is log-normal."""
    spread: float = 0.5
    """Sigma of the log-normal distribution."""
    slow_share: float = 0.0
    """Share of devices that take `slow_factor` times as long."""
    slow_factor: float = 100.0
    hardware_ms: float = 0.0
    """Time from the application of a frame until the hardware has its table."""
    frame_loss: float = 0.0
    """Chance that a frame never reaches the device."""
    answer_loss: float = 0.0
    """Chance that the device's answer is lost."""
    failures: float = 0.0
    """Chance that the device fails and reports the failure."""
    lies: float = 0.0
    """Chance that the device reports success without applying the frame."""
    false_alarms: float = 0.0
    """Chance that the device reports a failure after applying the frame."""
    reboots_per_hour: float = 0.0
    """Mean number of reboots per device and hour."""
    reboot_s: float = 5.0
    old_share: float = 0.5
    """Share of reboots after which the device has an older table. After the other reboots it has no table."""
    capacity: int = 1_000_000
    """Maximum number of prefixes that a device can hold."""
    small_share: float = 0.0
    """Share of devices that can hold `small_capacity` only."""
    small_capacity: int = 1_000


NO_DEVICE_FAULTS = DeviceFaults()


class SimulatedDevice:
    """One simulated device, as a `Device` for an agent."""

    def __init__(self, faults: DeviceFaults = NO_DEVICE_FAULTS, *, rng: random.Random) -> None:
        self.holds = EMPTY_TABLE
        self._faults = faults
        self._rng = rng
        self._factor = faults.slow_factor if rng.random() < faults.slow_share else 1.0
        self.capacity = faults.small_capacity if rng.random() < faults.small_share else faults.capacity

    def apply(self, steps: Sequence[SetStep], table: DeviceTable) -> bool | Awaitable[bool]:
        return self._take_later(table) if self._faults.latency_ms else self._take(table)

    def restore(self, table: DeviceTable) -> bool | Awaitable[bool]:
        return self._take_later(table) if self._faults.latency_ms else self._take(table)

    async def read_back(self) -> bytes:
        return self.holds.digest

    async def run(self) -> None:
        """A simulated device needs nothing."""

    def flush(self) -> None:
        """Remove all rules, as another program on the DPU would."""
        self.holds = EMPTY_TABLE

    async def _take_later(self, table: DeviceTable) -> bool:
        spread = self._rng.lognormvariate(0.0, self._faults.spread)
        await asyncio.sleep(self._faults.latency_ms * spread * self._factor / 1000)
        return self._take(table)

    def _take(self, table: DeviceTable) -> bool:
        faults = self._faults
        lot = self._rng.random()
        if lot < faults.lies:
            return True
        lot -= faults.lies
        if lot < faults.failures:
            raise DeviceFailed("simulated failure of the device")
        self.holds = table
        if lot < faults.failures + faults.false_alarms:
            raise DeviceFailed("the device reported a failure")
        return True
