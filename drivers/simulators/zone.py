"""The link of one simulated zone: it sends the devices' messages, and passes the relay's messages to the devices.

A DPU's number on the link is its index in the zone, since every link begins with a Hello of all DPUs.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from drivers.backends.simulated_devices import SimulatedDevices
from drivers.backends.simulated_records import NEVER, DeviceIndexes, devices_of
from drivers.wire import agent_messages
from drivers.wire.agent_messages import Ack, FromAgent, Heartbeat, Hello
from drivers.wire.links import Link, LinkClosed
from drivers.wire.protocol import MAX_PARTS, ProtocolError
from drivers.wire.relay_connector import AWAY_S_MAX, GoAwayReceived, RelayConnector
from drivers.wire.relay_messages import Frame, GoAway, Welcome

logger = logging.getLogger(__name__)

WELCOME_S = 10.0


class SimulatedZone:
    """The devices of one zone, as agents behind one link."""

    def __init__(
        self,
        name: str,
        dpus: Sequence[str],
        number: int,
        *,
        devices: SimulatedDevices,
        relays: RelayConnector,
        rng: random.Random,
        on_work: Callable[[], None],
    ) -> None:
        self.name = name
        self.dpus = dpus
        self._number = number
        self._devices = devices
        self._relays = relays
        self._rng = rng
        self._on_work = on_work
        self._link: Link | None = None
        self._heartbeat_s = 10.0
        self._beat_at = 0.0
        self._retries: list[tuple[float, int]] = []
        """Retry times of unserved DPUs, each with a set of DPUs."""
        self._logged = 0
        """The set of unserved DPUs of this link that were logged. They are logged only once, because they retry every
        two seconds."""

    async def run(self) -> None:
        """Maintain a link to a relay until cancelled."""
        while True:
            link = await self._relays.connect()
            try:
                await self._follow(link)
            except (LinkClosed, ProtocolError, TimeoutError) as error:
                self._relays.lost(error)
            finally:
                self._link = None
                self._retries.clear()
                self._logged = 0
                await link.close()

    def answer(self, acks: Sequence[Ack]) -> None:
        """Send the devices' answers; without a link they are dropped."""
        for ack in acks:
            self._send(ack)

    def say_hello(self, devices: DeviceIndexes) -> None:
        """Send a Hello for devices that are new on the link or have rebooted."""
        places = self._devices.zones[self._number]
        boots = self._devices.records.boots
        names = [self.dpus[device - places.start] for device in devices.tolist()]
        statuses = self._devices.statuses(self._number, devices, read_back=True)[:MAX_PARTS]
        self._send(Hello(self.name, names, [str(boot) for boot in boots[devices].tolist()], statuses))

    @property
    def due_at(self) -> float:
        """The time of the next heartbeat or repeated Hello."""
        return min([self._beat_at, *(at for at, _ in self._retries)]) if self._link is not None else NEVER

    def tick(self, now: float) -> None:
        """Send due heartbeats and repeat due Hellos."""
        if self._link is None:
            return
        if now >= self._beat_at:
            self._beat_at = now + self._heartbeat_s * self._rng.uniform(0.5, 1.0)
            statuses = self._devices.heartbeat(self._number)
            for start in range(0, len(statuses), MAX_PARTS):
                self._send(Heartbeat(statuses[start : start + MAX_PARTS]))
        due = [dpus for at, dpus in self._retries if now >= at]
        if due:
            self._retries = [(at, dpus) for at, dpus in self._retries if now < at]
            for dpus in due:
                self.say_hello(devices_of(self._devices.zones[self._number], dpus))

    async def _follow(self, link: Link) -> None:
        """Serve one link until it ends."""
        now = asyncio.get_running_loop().time
        self._link, self._beat_at = link, now() + self._rng.uniform(0.5, 1.0) * self._heartbeat_s
        self._devices.bring_all_up(self._number)
        self.say_hello(devices_of(self._devices.zones[self._number], 0))
        self._on_work()
        wait_s = WELCOME_S
        while True:
            async with asyncio.timeout(wait_s):
                data = await link.receive()
            match self._devices.tables.decode(data):
                case Frame() as frame:
                    self.answer(self._devices.handle_frame(self._number, frame, now()))
                    self._on_work()
                case Welcome() as welcome:
                    self._handle_welcome(welcome, now())
                    self._on_work()
                    wait_s = 3 * self._heartbeat_s
                case GoAway() as refused:
                    raise GoAwayReceived(refused)

    def _handle_welcome(self, welcome: Welcome, now: float) -> None:
        self._relays.welcomed()
        self._heartbeat_s = welcome.heartbeat_ms / 1000
        for part in welcome.unserved:
            if part.dpus & ~self._logged:
                logger.info(
                    "zone %s: %d DPUs not served by the relay: %s", self.name, part.dpus.bit_count(), part.reason
                )
            self._logged |= part.dpus
            self._retries.append(
                (now + min(AWAY_S_MAX, part.retry_after_ms / 1000), part.dpus & (1 << len(self.dpus)) - 1)
            )

    def _send(self, message: FromAgent) -> None:
        if self._link is None:
            return
        try:
            self._link.send(agent_messages.encode(message))
        except LinkClosed:
            self._link = None  # the receiving task handles the closed link
