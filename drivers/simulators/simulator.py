"""Simulated DPUs of whole zones, connected to relays as agents are.

One link per zone, over the given dialer: within the process or over WebSocket. The simulator watches for new zones and
registers their DPUs; `zone` maintains a zone's link, as an agent does. `backends.simulated_devices` computes the
effects of frames and time on the devices.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import NamedTuple, Protocol, TypeVar

from drivers.backends.simulated import NO_DEVICE_FAULTS, DeviceFaults
from drivers.backends.simulated_devices import SimulatedDevices
from drivers.backends.simulated_records import NEVER
from drivers.simulators.zone import SimulatedZone
from drivers.wire.links import Dial
from drivers.wire.relay_connector import RelayConnector
from eventstore.backoff import backoff_ceiling
from eventstore.errors import PermanentError, TransientError

logger = logging.getLogger(__name__)

TICK_S = 0.01
"""Shortest interval of device ticks: all changes within it are handled together."""
REGISTRATIONS_AT_ONCE = 64
BACKOFF_FIRST_S, BACKOFF_LAST_S = 0.25, 8.0

T = TypeVar("T")


class DpuRefused(PermanentError):
    """The plane refused this DPU, for example because its name is in use. Other DPUs are not affected."""


class DpuRegistrar(Protocol):
    """The simulator's port to the plane: the present zones, and the registration of DPUs."""

    async def zones(self) -> Collection[str]:
        """The present zones. The first call returns at once, later calls when the zones have changed."""
        ...

    async def registered(self, zone: str) -> Mapping[str, str]:
        """The addresses of the BMCs of a zone's DPUs, by the names of the DPUs. Raises TransientError to ask for a
        retry."""
        ...

    async def register(self, zone: str, dpu: str, node: str, serial: str, bmc_address: str) -> None:
        """Register a DPU; returns when the log has it. Raises TransientError to ask for a retry, and DpuRefused."""
        ...


class Bmcs(Protocol):
    """The BMCs of simulated DPUs."""

    async def address(self, dpu: str, serial: str, registered: str) -> str:
        """The address of the BMC of a DPU. `registered` is the one in the log; empty for a new DPU."""
        ...


class Naming(NamedTuple):
    """Formats of the names of a zone's simulated DPUs, with `zone` and `number`."""

    dpu: str = "{zone}-dpu-{number:04}"
    node: str = "{zone}-node-{number:04}"
    serial: str = "SIM-{zone}-{number:04}"
    bmc_address: str = "simulated:{zone}-dpu-{number:04}"


NAMING = Naming()


class Simulator:
    """Simulates devices until `run` is cancelled. Without `bmcs`, a provisioner simulates the BMCs in its process."""

    def __init__(
        self,
        registrar: DpuRegistrar,
        relays: Sequence[str],
        *,
        dial: Dial,
        rng: random.Random,
        dpus_per_zone: int,
        faults: DeviceFaults = NO_DEVICE_FAULTS,
        naming: Naming = NAMING,
        bmcs: Bmcs | None = None,
    ) -> None:
        self.devices = SimulatedDevices(faults, rng)
        self.zones: dict[str, SimulatedZone] = {}
        self._registrar = registrar
        self._relays = relays
        self._dial = dial
        self._rng = rng
        self._dpus_per_zone = dpus_per_zone
        self._naming = naming
        self._bmcs = bmcs
        self._registering = asyncio.Semaphore(REGISTRATIONS_AT_ONCE)
        self._work = asyncio.Event()

    async def run(self) -> None:
        """Simulate every present and future zone."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tick())
            while True:
                for name in sorted(set(await self._registrar.zones()) - set(self.zones)):
                    tasks.create_task(self._serve(self._add(name)))

    def _add(self, name: str) -> SimulatedZone:
        dpus = [self._naming.dpu.format(zone=name, number=number) for number in range(self._dpus_per_zone)]
        self.zones[name] = SimulatedZone(
            name,
            dpus,
            self.devices.add_zone(len(dpus)),
            devices=self.devices,
            relays=RelayConnector(self._relays, self._dial, self._rng, who=f"simulated zone {name}"),
            rng=self._rng,
            on_work=self._work.set,
        )
        return self.zones[name]

    async def _serve(self, zone: SimulatedZone) -> None:
        await self._register_all(zone)
        await zone.run()

    async def _register_all(self, zone: SimulatedZone) -> None:
        there = await self._retrying(f"list DPUs of zone {zone.name}", lambda: self._registrar.registered(zone.name))
        due = [(number, dpu) for number, dpu in enumerate(zone.dpus) if dpu not in there or self._bmcs is not None]
        for start in range(0, len(due), REGISTRATIONS_AT_ONCE):
            async with asyncio.TaskGroup() as tasks:
                for number, dpu in due[start : start + REGISTRATIONS_AT_ONCE]:
                    tasks.create_task(self._register(zone.name, number, dpu, there.get(dpu)))

    async def _register(self, zone: str, number: int, dpu: str, registered: str | None) -> None:
        """Register a DPU, unless the log has it. The BMC of one that it has is served at its registered address."""
        _, node, serial, bmc = (text.format(zone=zone, number=number) for text in self._naming)
        async with self._registering:
            if self._bmcs is not None:
                bmc = await self._bmcs.address(dpu, serial, registered or "")
            if registered is not None:
                if registered != bmc:
                    logger.warning(
                        "simulated BMC is not at its registered address; delete the DPU, and restart the simulator",
                        extra={"dpu": dpu, "registered": registered, "address": bmc},
                    )
                return
            try:
                await self._retrying(
                    f"register DPU {dpu}", lambda: self._registrar.register(zone, dpu, node, serial, bmc)
                )
            except DpuRefused as refused:  # the zone's Hello names it nevertheless, and relays leave it unserved
                logger.warning("simulated DPU not registered", extra={"dpu": dpu, "zone": zone, "reason": str(refused)})

    async def _retrying(self, request: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Call the registrar until it responds: devices outlive an outage of the plane."""
        for failures in count():
            try:
                return await ask()
            except TransientError as error:
                logger.info("registrar not available, retrying: %s", error, extra={"request": request})
            await asyncio.sleep(self._rng.uniform(0.0, backoff_ceiling(failures, BACKOFF_FIRST_S, BACKOFF_LAST_S)))
        raise AssertionError("count() does not end")

    async def _tick(self) -> None:
        """Advance all devices in one loop, which sleeps while nothing is due."""
        loop = asyncio.get_running_loop()
        while True:
            await self._until_due()
            now = loop.time()
            zones = list(self.zones.values())
            for number, acks in self.devices.tick(now).items():
                zones[number].answer(acks)
            for number, risen in self.devices.reboot(now).items():
                zones[number].say_hello(risen)
            for zone in zones:
                zone.tick(now)

    async def _until_due(self) -> None:
        self._work.clear()
        due_at = min((zone.due_at for zone in self.zones.values()), default=NEVER)
        due_at = max(min(due_at, self.devices.due_at), asyncio.get_running_loop().time() + TICK_S)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due_at if due_at < NEVER else None):
                await self._work.wait()
                await asyncio.sleep(TICK_S)
