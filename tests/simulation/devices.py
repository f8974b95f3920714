"""The simulated devices of a run: the production simulator, which records every change, and its registrar."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from drivers.backends.simulated import DeviceFaults
from drivers.backends.simulated_devices import SimulatedDevices
from drivers.backends.simulated_records import DeviceIndexes
from drivers.simulators.simulator import NAMING
from drivers.wire.agent_messages import Ack
from drivers.wire.relay_messages import Frame
from tests.simulation.history import History, TableInstalled
from tests.support.virtual_loop import current_loop


class WatchedFleet(SimulatedDevices):
    """Simulated devices that record every table that they install."""

    def __init__(self, faults: DeviceFaults, rng: random.Random, history: History, zone_names: Sequence[str]) -> None:
        super().__init__(faults, rng)
        self._history = history
        self._zone_names = zone_names
        self._recorded = np.zeros(0, np.int32)
        self._boots = np.zeros(0, np.uint32)

    def handle_frame(self, zone: int, frame: Frame, now: float) -> list[Ack]:
        acks = super().handle_frame(zone, frame, now)
        self._record_changes()
        return acks

    def tick(self, now: float) -> dict[int, list[Ack]]:
        acks = super().tick(now)
        self._record_changes()
        return acks

    def reboot(self, now: float) -> dict[int, DeviceIndexes]:
        risen = super().reboot(now)
        for devices in risen.values():
            self._history.counts["device reboots"] += len(devices)
        self._record_changes()
        return risen

    def bring_all_up(self, zone: int) -> None:
        super().bring_all_up(zone)
        self._record_changes()

    def _record_changes(self) -> None:
        records = self.records
        if len(self._recorded) != records.count:
            missing = records.count - len(self._recorded)
            self._recorded = np.concatenate((self._recorded, np.zeros(missing, np.int32)))
            self._boots = np.concatenate((self._boots, np.zeros(missing, np.uint32)))
        for device in np.flatnonzero((records.claimed != self._recorded) | (records.boots != self._boots)).tolist():
            table = self.tables[int(records.claimed[device])]
            zone = int(records.zone[device])
            name = NAMING.dpu.format(zone=self._zone_names[zone], number=device - self.zones[zone].start)
            at_s, boot = current_loop().time(), int(records.boots[device])
            zone_name = self._zone_names[zone]
            self._history.add(TableInstalled(at_s, zone_name, name, boot, table.epoch, table.version, table.digest))
            self._history.note(at_s, "device", name, boot, table.version, table.digest.hex())
        self._recorded, self._boots = records.claimed.copy(), records.boots.copy()


class SimulatedRegistrar:
    """The registrar of the simulator. It calls any process that is up."""

    def __init__(
        self, zones: Sequence[str], registered: Callable[[str], Mapping[str, str]], register: Callable[..., object]
    ) -> None:
        self._zones = zones
        self._registered = registered
        self._register = register
        self._last_zones = False

    async def zones(self) -> Collection[str]:
        if self._last_zones:
            await current_loop().create_future()  # no zone is added later
        self._last_zones = True
        return self._zones

    async def registered(self, zone: str) -> Mapping[str, str]:
        return self._registered(zone)

    async def register(self, zone: str, dpu: str, node: str, serial: str, bmc_address: str) -> None:
        await self._register(zone, dpu, node, serial, bmc_address)  # type: ignore[misc]
