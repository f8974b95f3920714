"""A bridge of Open vSwitch as the network of a DPU: the ports and the switches of its network document.

Ports are made by the database of the switch, in one transaction, and flows by OpenFlow, in one bundle. A document is
brought to the bridge in three steps: new ports, then the flows, then the removal of old ports. So no flow outputs to a
port that does not exist yet, and old connections work until the new ones do.

The device holds the document: it connects an interface as soon as its port exists, and restores what a restarted switch
has lost. Ports without the plane's mark, and flows without its cookies, are never changed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from drivers.backends.bridge_ports import PortPlan, plan_ports
from drivers.backends.connection import Connection
from drivers.backends.device import DeviceFailed, Programmed
from drivers.backends.repairs import BridgeCounts, Repairs
from drivers.openflow.chain_flows import (
    NETWORK_COOKIE,
    SWITCHING_PRIORITIES,
    ChainDifference,
    ChainLayout,
    Endpoint,
    chain_flows,
    compare_chains,
)
from drivers.openflow.messages import Flow
from drivers.openflow.rule_flows import COOKIE_MASK
from drivers.openflow.session import SwitchLost, SwitchRefused, SwitchSession, Watched
from drivers.ovsdb.operations import configuration_number, next_configuration
from drivers.ovsdb.session import DatabaseLost, DatabaseRefused, DatabaseSession, Operation
from drivers.ovsdb.tables import COLUMNS, SwitchRows, configured, switch_rows
from drivers.wire.agent_messages import NO_DIGEST
from projections.resources.network_documents.document import DIGEST_BYTES, Document, ptp_interfaces

logger = logging.getLogger(__name__)

CHECK_S = 30.0
"""Interval at which the flows of the bridge are compared with those of the document."""
GATHER_S = 0.05
"""A change of the database waits this time for others, as the switch updates port by port."""
CONFIGURE_S = 20.0
"""Timeout of the switch for a change of its configuration."""


class NetworkBridge(NamedTuple):
    """A bridge with its OpenFlow socket, the socket of the database, and where the flows of chains go."""

    name: str
    socket: Path
    database: Path
    layout: ChainLayout


class _Held(NamedTuple):
    """The document that the bridge was told to hold."""

    document: Document
    digest: bytes


class _Sessions(NamedTuple):
    switch: SwitchSession
    database: DatabaseSession


class OpenVSwitchNetwork:
    """The network of one bridge. `run` keeps the sessions with the switch and its database."""

    def __init__(self, bridge: NetworkBridge, *, rng: random.Random) -> None:
        self.waiting: dict[str, str] = {}
        """What interfaces without a port wait for."""
        self._bridge = bridge
        self._rng = rng
        self._connection: Connection[_Sessions] = Connection(rng)
        self._repairs = Repairs("network document", {"bridge": bridge.name})
        self._held: _Held | None = None
        self._plan: PortPlan | None = None
        """The plan by which the bridge was last changed."""
        self._busy = asyncio.Lock()

    @property
    def fault(self) -> str:
        """Why there is no session; empty while there are both."""
        return self._connection.fault

    @property
    def counts(self) -> BridgeCounts:
        return self._repairs.counts(self._connection.count)

    async def run(self) -> None:
        """Keep the sessions, and have the bridge hold the document, until cancelled."""
        while True:
            try:
                await self._serve()
            except (SwitchLost, DatabaseLost) as lost:
                if self._connection.lost(str(lost), asyncio.get_running_loop().time()):
                    logger.warning("network of the bridge not connected: %s", lost, extra={"bridge": self._bridge.name})
                self._plan = None
            await asyncio.sleep(self._connection.wait_s())

    async def _serve(self) -> None:
        """Open the sessions and hold the document until one of them ends. Raises SwitchLost, DatabaseLost."""
        ended: list[BaseException] = []
        async with AsyncExitStack() as stack:
            database = await DatabaseSession.open(self._bridge.database)
            stack.callback(database.close)
            switch = await SwitchSession.open(self._bridge.socket)
            stack.callback(switch.close)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(switch.serve())
                    tasks.create_task(database.serve())
                    tasks.create_task(self._hold(_Sessions(switch, database)))
                    tasks.create_task(self._heed(switch))
            except* (SwitchLost, DatabaseLost) as lost:
                ended += lost.exceptions
        raise ended[0]

    async def _hold(self, sessions: _Sessions) -> None:
        """Have the bridge hold the document: now, when the database has changed, and at a fixed interval."""
        try:
            await sessions.database.monitor(COLUMNS)
            # Until a restarted switch has taken over its configuration, the database has its former port numbers.
            await self._transact(sessions.database, ())
        except DatabaseRefused as error:
            raise DatabaseLost(str(error)) from error
        self._connection.opened(sessions, asyncio.get_running_loop().time())
        logger.info("network of the bridge connected", extra={"bridge": self._bridge.name})
        now = asyncio.get_running_loop().time
        due_at = now()
        while True:
            seen = sessions.database.updates
            is_due = now() >= due_at
            await self._restore(sessions, is_due=is_due)
            if is_due:  # a change of the database, which may change all the time, does not defer the check
                due_at = now() + CHECK_S * self._rng.uniform(0.8, 1.2)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due_at):
                    await sessions.database.updated(seen)
                    await asyncio.sleep(GATHER_S)

    async def _heed(self, switch: SwitchSession) -> None:
        """Have the bridge hold the document when it reports that another program has changed flows: the later, the more
        repairs there were."""
        layout = self._bridge.layout
        watched = (
            Watched(0, NETWORK_COOKIE, COOKIE_MASK, frozenset({layout.hook_priority})),
            Watched(layout.table),
            # Learned flows, which end all the time, have other cookies and other priorities.
            Watched(layout.table + 1, NETWORK_COOKIE, COOKIE_MASK, SWITCHING_PRIORITIES),
        )
        try:
            await switch.watch(watched)
        except SwitchRefused:
            return  # the interval has to do
        while True:
            await switch.until_changed()
            await asyncio.sleep(GATHER_S)
            if (sessions := self._connection.session) is not None:
                await self._restore(sessions, is_due=True)
            await asyncio.sleep(self._repairs.budget.spacing_s(asyncio.get_running_loop().time(), CHECK_S))

    async def _restore(self, sessions: _Sessions, *, is_due: bool) -> None:
        """Have the bridge hold the document if a check is due, or if ports have come or gone."""
        try:
            async with self._busy:
                if self._held is not None and (is_due or self._has_other_plan(sessions, self._held)):
                    await self._check(sessions, self._held)
        except (SwitchRefused, DatabaseRefused, DeviceFailed) as error:
            self._repairs.not_repaired(str(error))

    # -- the device

    async def program(self, document: bytes, digest: bytes) -> Programmed:
        try:
            found = _Held(msgspec.json.decode(document, type=Document), digest)
        except msgspec.DecodeError as error:
            raise DeviceFailed(f"the document cannot be read: {error}") from error
        if self._connection.session is None and self._held is None:  # the bridge gets the document with its sessions
            self._held = found
        with self._failing() as sessions:
            async with self._busy:
                programmed = await self._change(sessions, found)
                self._held = found
        return programmed

    async def read_back(self) -> Programmed:
        with self._failing() as sessions:
            async with self._busy:
                if self._held is None:
                    return Programmed(NO_DIGEST)
                plan = self._planned(sessions, self._held)
                found = await sessions.switch.flows(NETWORK_COOKIE, COOKIE_MASK)
                differing = compare_chains(found, self._flows(self._held, plan))
                return Programmed(_digest(self._held, plan, found, differing), tuple(plan.waiting))

    @contextmanager
    def _failing(self) -> Iterator[_Sessions]:
        """The sessions. What they raise is DeviceFailed."""
        sessions = self._connection.required()
        try:
            yield sessions
        except (SwitchLost, SwitchRefused, DatabaseLost, DatabaseRefused) as error:
            raise DeviceFailed(str(error)) from error

    # -- changes

    async def _check(self, sessions: _Sessions, held: _Held) -> None:
        """Restore what the bridge lacks. Flows that differ although no port has changed are repaired within a
        budget."""
        plan = self._planned(sessions, held)
        if plan != self._plan or plan.makes or plan.removes:
            await self._change(sessions, held)
            self._repairs.whole()
            return
        found = await sessions.switch.flows(NETWORK_COOKIE, COOKIE_MASK)
        differing = compare_chains(found, self._flows(held, plan))
        if not differing.missing and not differing.strays:
            self._repairs.whole()
            return
        now = asyncio.get_running_loop().time()
        if not self._repairs.budget.allows(now, is_empty=not found):
            self._repairs.beyond_budget(_digest(held, plan, found, differing))
            return
        await self._change(sessions, held)
        self._repairs.repaired(sum(map(len, differing)), now)

    async def _change(self, sessions: _Sessions, held: _Held) -> Programmed:
        """Make the bridge hold a document: new ports, flows, then the removal of old ports."""
        self._plan = None
        plan = self._planned(sessions, held)
        if plan.makes:
            await self._transact(sessions.database, plan.makes)
            plan = self._planned(sessions, held)
        found = await sessions.switch.flows(NETWORK_COOKIE, COOKIE_MASK)
        differing = compare_chains(found, self._flows(held, plan))
        if any(flow.table == 0 for flow in differing.missing):
            await self._check_hooks(sessions.switch)
        if differing.missing or differing.strays:
            await sessions.switch.install(differing.missing, differing.strays)
        if plan.removes:
            await self._transact(sessions.database, plan.removes)
            plan = self._planned(sessions, held)
        self._plan = plan
        self._tell(dict(plan.waiting))
        whole = ChainDifference([], [])
        return Programmed(_digest(held, plan, found, whole), tuple(plan.waiting))

    async def _transact(self, database: DatabaseSession, operations: tuple[Operation, ...]) -> None:
        """Change the database, and wait until the switch has taken over the change."""
        number = configuration_number(await database.transact([*operations, *next_configuration()]))
        try:
            async with asyncio.timeout(CONFIGURE_S):
                await database.until(lambda rows: configured(rows) >= number)
        except TimeoutError:
            fault = f"the switch did not take over a change of its ports within {CONFIGURE_S:.0f} s"
            raise DatabaseRefused(fault) from None

    async def _check_hooks(self, switch: SwitchSession) -> None:
        """Raise SwitchRefused if the hooks of table 0 could replace flows of another program, or be hidden by them."""
        priority = self._bridge.layout.hook_priority
        for flow in await switch.flows(0, 0, table=0):
            if flow.priority == priority and flow.cookie & COOKIE_MASK != NETWORK_COOKIE:
                fault = f"another program has a flow of priority {priority} in table 0, that of the hooks of chains"
                raise SwitchRefused(f"hook-priority: {fault}")

    def _has_other_plan(self, sessions: _Sessions, held: _Held) -> bool:
        return self._planned(sessions, held) != self._plan

    def _planned(self, sessions: _Sessions, held: _Held) -> PortPlan:
        rows: SwitchRows = switch_rows(sessions.database.rows)
        bridge = rows.bridges.get(self._bridge.name)
        if bridge is None:
            raise DeviceFailed(f"the switch has no bridge {self._bridge.name}")
        return plan_ports(held.document, rows, bridge)

    def _flows(self, held: _Held, plan: PortPlan) -> list[Flow]:
        """The flows of the switches of a document: an interface without a port does not hold up the others."""
        switches = (
            (each.chain, [plan.endpoints[port.interface] for port in each.ports if port.interface in plan.endpoints])
            for each in held.document.switches
        )
        return chain_flows(switches, self._bridge.layout, _ptp_pairs(held.document, plan))

    def _tell(self, waiting: dict[str, str]) -> None:
        if waiting != self.waiting:
            about = {"bridge": self._bridge.name, "interfaces": [f"{name}: {why}" for name, why in waiting.items()]}
            if waiting:
                logger.info("interfaces of the network document wait for their ports", extra=about)
            else:
                logger.info("all interfaces of the network document have their ports", extra=about)
            self.waiting = waiting


def _ptp_pairs(document: Document, plan: PortPlan) -> Iterator[tuple[str, Endpoint, Endpoint]]:
    """The service and the physical interface of each switch that exchange PTP messages, with the chain, as far as they
    have their ports."""
    by_name = {each.name: each for each in document.interfaces}
    for switch in document.switches:
        pair = ptp_interfaces(switch, by_name).pair
        if pair is not None and plan.endpoints.keys() >= {*pair}:
            service, uplink = pair
            yield switch.chain, plan.endpoints[service], plan.endpoints[uplink]


def _digest(held: _Held, plan: PortPlan, found: list[Flow], differing: ChainDifference) -> bytes:
    """The digest of the document if the bridge has all of it that its ports allow, else one of what it has."""
    if not (plan.makes or plan.removes or differing.missing or differing.strays):
        return held.digest
    content = repr((held.digest, plan.makes, plan.removes, sorted(found)))
    return blake2b(content.encode(), digest_size=DIGEST_BYTES).digest()
