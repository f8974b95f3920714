"""The agent of one DPU: it receives frames from a relay, applies them, and reports the results.

The agent is configured with several relays and has a link to one at a time. Without a link, it continues with its last
good table, also after a restart. Its reports contain the table that was read back from the device. A device that
acknowledged a frame without applying it, or lost its rules to another program, is therefore visible in the next
heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from drivers.agents.fault_log import RefusalLog
from drivers.agents.network import AgentNetwork
from drivers.agents.store import TableStore
from drivers.agents.table import SELF, AgentTable
from drivers.backends.device import Device
from drivers.wire import agent_messages, relay_messages
from drivers.wire.agent_messages import Ack, Heartbeat, Hello, NetworkAck
from drivers.wire.links import Dial, Link, LinkClosed
from drivers.wire.protocol import NetworkStatus, ProtocolError, TableStatus
from drivers.wire.relay_connector import AWAY_S_MAX, GoAwayReceived, RelayConnector
from drivers.wire.relay_messages import Frame, GoAway, HeartbeatReply, Network, Welcome
from projections.rules.device_table import DeviceTable

logger = logging.getLogger(__name__)


class AgentSettings(NamedTuple):
    """Settings of an agent."""

    welcome_s: float = 10.0
    """Timeout of the response to a Hello."""
    apply_s: float = 120.0
    """Timeout of the device for one frame."""
    read_back_s: float = 5.0
    """Timeout of a read-back of the device."""
    slow_s: float = 0.05
    """The agent acknowledges a frame as received if the device has not applied it after this time."""


DEFAULTS = AgentSettings()


class AgentIdentity(NamedTuple):
    """The identity of the DPU and of its present boot."""

    zone: str
    dpu: str
    boot_id: str


class Agent:
    """Serves one DPU until `run` is cancelled."""

    def __init__(
        self,
        identity: AgentIdentity,
        relays: Sequence[str],
        *,
        dial: Dial,
        device: Device,
        store: TableStore,
        rng: random.Random,
        settings: AgentSettings = DEFAULTS,
        network: AgentNetwork | None = None,
    ) -> None:
        self.target = (0, 0)
        """The (epoch, version) of the zone's table, as the last message of a relay named it."""
        self.refusals = 0
        self._identity = identity
        self._relays = RelayConnector(relays, dial, rng, who=f"dpu {identity.dpu}")
        self._table = AgentTable(
            device, store, apply_s=settings.apply_s, read_back_s=settings.read_back_s, slow_s=settings.slow_s
        )
        self._network = network
        self._next_network: Network | None = None
        """The newest document that was received and is not applied yet: older ones need not be."""
        self._network_arrived = asyncio.Event()
        self._rng = rng
        self._settings = settings
        self._heartbeat_s = 10.0
        self._last_message_at = 0.0
        self._unserved = ""
        """Why the relay does not serve the DPU; empty if it does."""
        self._table_refusals = RefusalLog(identity.dpu, "table")
        self._network_refusals = RefusalLog(identity.dpu, "network document")

    @property
    def table(self) -> DeviceTable:
        """The last good table."""
        return self._table.table

    async def run(self) -> None:
        """Load the last good table, then follow relays until cancelled."""
        await self._table.load()
        if self._network is not None:
            await self._network.load()
        while True:
            link = await self._relays.connect()
            serving = asyncio.create_task(self._serve(link))
            try:
                await asyncio.wait({serving})
            finally:  # a TaskGroup that fails while cancelled loses the cancellation before Python 3.13
                serving.cancel()
                await asyncio.wait({serving})
            serving.result()

    async def _serve(self, link: Link) -> None:
        """Serve one link until it closes."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow(link, tasks))
        except* (LinkClosed, ProtocolError, TimeoutError) as ended:
            self._relays.lost(ended.exceptions[0])
        finally:
            await link.close()

    async def _follow(self, link: Link, tasks: asyncio.TaskGroup) -> None:
        """Handle the relay's messages on a link, and send heartbeats concurrently."""
        self._send_hello(link)
        async with asyncio.timeout(self._settings.welcome_s):
            first = relay_messages.decode(await link.receive())
        if not isinstance(first, Welcome | GoAway):
            raise ProtocolError("message: the first message must be a welcome")
        self._handle(first, link, tasks)
        self._relays.welcomed()
        now = asyncio.get_running_loop().time
        self._last_message_at = now()
        tasks.create_task(self._send_heartbeats(link))
        if self._network is not None:
            tasks.create_task(self._take_networks(link, self._network))
        while True:
            message = relay_messages.decode(await link.receive())
            self._last_message_at = now()
            if not isinstance(message, Frame | Network):
                self._handle(message, link, tasks)
            elif message.dpus and not message.dpus & SELF:
                continue
            elif isinstance(message, Network):
                self._next_network = message
                self._network_arrived.set()
            else:
                await self._take(message, link)

    def _handle(self, message: Welcome | GoAway | HeartbeatReply, link: Link, tasks: asyncio.TaskGroup) -> None:
        match message:
            case HeartbeatReply():
                self.target = (message.epoch, message.version)
            case Welcome():
                self.target = (message.epoch, message.version)
                self._heartbeat_s = message.heartbeat_ms / 1000
                self._log_service([part.reason for part in message.unserved])
                for part in message.unserved:
                    tasks.create_task(self._ask_again(link, min(AWAY_S_MAX, part.retry_after_ms / 1000)))
            case GoAway():
                raise GoAwayReceived(message)

    def _log_service(self, refusals: Sequence[str]) -> None:
        """Log that the relay does not serve the DPU, once for each reason, and that it does again."""
        refusal = "; ".join(refusals)
        if refusal and refusal != self._unserved:
            logger.warning("dpu %s not served by the relay: %s", self._identity.dpu, refusal)
        elif self._unserved and not refusal:
            logger.info("dpu %s served by the relay", self._identity.dpu)
        self._unserved = refusal

    async def _take(self, frame: Frame, link: Link) -> None:
        """Apply one frame. In the meantime the next frame waits in the link; the relay sends at most one frame
        ahead."""
        result = await self._table.take(frame, partial(self._received, frame, link))
        if isinstance(result, TableStatus):
            link.send(agent_messages.encode(Ack([result], [])))
        else:
            self.refusals += 1
            self._table_refusals.refused(result.version, result.reason)
            link.send(agent_messages.encode(Ack([], [result])))

    def _received(self, frame: Frame, link: Link) -> None:
        """Acknowledge receipt of a frame before the slow device has applied it."""
        if frame.epoch == self._table.table.epoch:
            self._table.received = max(self._table.received, frame.delta.to_version)
            with suppress(LinkClosed):  # the receiving task handles the closed link
                link.send(agent_messages.encode(Ack([self._table.status()], [])))

    async def _take_networks(self, link: Link, network: AgentNetwork) -> None:
        """Apply network documents one by one, always the newest one: a slow device delays no rules."""
        while True:
            await self._network_arrived.wait()
            self._network_arrived.clear()
            message, self._next_network = self._next_network, None
            if message is None:
                continue
            result = await network.take(message)
            if isinstance(result, NetworkStatus):
                link.send(agent_messages.encode(NetworkAck([result], [])))
            else:
                self._network_refusals.refused(result.version, result.reason)
                link.send(agent_messages.encode(NetworkAck([], [result])))

    async def _send_heartbeats(self, link: Link) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_s * self._rng.uniform(0.5, 1.0))
            silent_s = asyncio.get_running_loop().time() - self._last_message_at
            if silent_s > 3 * self._heartbeat_s and not self._table.is_busy:
                raise LinkClosed(f"{link.peer} sent nothing for {silent_s:.0f} s")
            networks = [await self._network.read_back()] if self._network is not None else []
            link.send(agent_messages.encode(Heartbeat([await self._table.read_back()], networks)))

    async def _ask_again(self, link: Link, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        self._send_hello(link)

    def _send_hello(self, link: Link) -> None:
        who = self._identity
        networks = [self._network.status()] if self._network is not None else []
        tables, takes_networks = [self._table.status()], self._network is not None
        link.send(agent_messages.encode(Hello(who.zone, [who.dpu], [who.boot_id], tables, takes_networks, networks)))
