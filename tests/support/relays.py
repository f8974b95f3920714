"""Relays within one process, the clients that dial them, and an agent's end of a link driven by the test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from drivers.backends.simulated import NO_DEVICE_FAULTS, DeviceFaults
from drivers.relays.relay import Relay, RelaySettings
from drivers.simulators.simulator import Simulator
from drivers.wire import agent_messages, relay_messages
from drivers.wire.agent_messages import Ack, FromAgent, Hello
from drivers.wire.links import Busy, Link, LinkClosed, memory_link_pair
from drivers.wire.protocol import TableStatus
from drivers.wire.relay_messages import Frame, HeartbeatReply, ToAgent, Welcome
from tests.support.rule_source import Tables, packed

SETTINGS = RelaySettings(handshakes_at_once=1_000)
FIRST, SECOND, THIRD = (packed("10.0.0.0/8"), packed("10.0.0.0/8", "11.0.0.0/8"), packed("11.0.0.0/8"))


class StaticRegistrar:
    """A registrar for a simulator: these zones, with DPUs registered as the tables list them."""

    def __init__(self, tables: Tables, *names: str) -> None:
        self._tables = tables
        self._names = names
        self._told = False

    async def zones(self) -> tuple[str, ...]:
        if self._told:
            await asyncio.Event().wait()
        self._told = True
        return self._names

    async def registered(self, zone: str) -> dict[str, str]:
        return {}

    async def register(self, zone: str, dpu: str, node: str, serial: str, bmc_address: str) -> None:
        self._tables.ordinals[dpu] = int(dpu[-4:])


class RelayCluster:
    """Several relays of one log, and the clients that dial them."""

    def __init__(self, tables: Tables, relays: int = 1, settings: RelaySettings = SETTINGS) -> None:
        self.tables = tables
        self.tasks: set[asyncio.Task[None]] = set()
        self.relays = {f"r{i}": self._relay(f"r{i}", settings) for i in range(relays)}
        self.down: set[str] = set()

    def _relay(self, name: str, settings: RelaySettings) -> Relay:
        now = asyncio.get_running_loop().time
        rng = random.Random(name)
        relay = Relay(self.tables, name=name, now_ms=lambda: round(now() * 1000), rng=rng, settings=settings)
        self.start(relay.run())
        return relay

    @property
    def relay(self) -> Relay:
        return self.relays["r0"]

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        return task

    async def dial(self, address: str) -> Link:
        if address in self.down:
            raise LinkClosed("down")
        if wait_s := self.relays[address].admit("agent", is_one_dpu=False):
            raise Busy("busy", wait_s)
        relays_end, agents_end = memory_link_pair(address, "agent")
        self.start(self.relays[address].serve(relays_end))
        return agents_end

    def kill(self, address: str) -> None:
        self.down.add(address)
        for zone in list(self.relays[address].zones.values()):
            for session in list(zone.sessions):
                session.link.abort()

    def simulate(self, zones: list[str], count: int, faults: DeviceFaults = NO_DEVICE_FAULTS) -> Simulator:
        simulator = Simulator(
            StaticRegistrar(self.tables, *zones),
            sorted(self.relays),
            dial=self.dial,
            rng=random.Random(5),
            dpus_per_zone=count,
            faults=faults,
        )
        self.start(simulator.run())
        return simulator

    def versions(self) -> list[int]:
        return [
            held.version
            for relay in self.relays.values()
            for zone in relay.devices().values()
            for held in zone.values()
        ]

    def equal_the_table(self, simulator: Simulator) -> bool:
        """Whether every device holds the table, read from the device itself."""
        tables = simulator.devices.tables
        return all(tables[int(number)] == self.tables.table for number in simulator.devices.records.actual)


@asynccontextmanager
async def relay_cluster(
    tables: Tables, relays: int = 1, settings: RelaySettings = SETTINGS
) -> AsyncIterator[RelayCluster]:
    made = RelayCluster(tables, relays, settings)
    try:
        yield made
    finally:
        for task in made.tasks:
            task.cancel()
        for result in await asyncio.gather(*made.tasks, return_exceptions=True):
            assert result is None or isinstance(result, asyncio.CancelledError), result


class AgentPeer:
    """The agent's end of a link, driven by the test."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def say(self, message: FromAgent) -> None:
        self.link.send(agent_messages.encode(message))

    def hello(self, *dpus: str, held: TableStatus | None = None, zone: str = "z") -> None:
        self.say(Hello(zone, dpus, ["b"] * len(dpus), [held] if held else []))

    async def hear(self) -> ToAgent:
        async with asyncio.timeout(60):
            return relay_messages.decode(await self.link.receive())

    async def frame(self) -> Frame:
        while not isinstance(message := await self.hear(), Frame):
            assert isinstance(message, Welcome | HeartbeatReply)
        return message

    async def is_quiet(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while isinstance(relay_messages.decode(await self.link.receive()), Welcome | HeartbeatReply):
                    pass
        except TimeoutError:
            return True
        return False


def has(frame: Frame) -> Ack:
    """The report of a link's only DPU after it has applied a frame."""
    version = frame.delta.to_version
    return Ack([TableStatus(1, frame.epoch, version, version, version, frame.delta.digest)], [])
