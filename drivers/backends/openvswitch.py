"""A bridge of Open vSwitch as the forwarding device of a DPU.

Rules are flows of one table with cookies of the plane's own; nothing else in the bridge is touched. Each change is one
atomic bundle. What the switch has is read back and compared: at the start, after the switch has restarted, when it
reports that another program has changed flows, and at a fixed interval. A switch whose flows were changed gets them
again, within a budget; one that lost all of them gets them in any case.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from drivers.backends.connection import Connection
from drivers.backends.device import DeviceFailed
from drivers.backends.repairs import BridgeCounts, Repairs
from drivers.openflow.messages import Flow
from drivers.openflow.rule_flows import (
    COOKIE,
    COOKIE_MASK,
    FlowComparison,
    FlowLayout,
    Priorities,
    RuleFlows,
    priorities_found,
    removed_flows,
)
from drivers.openflow.session import SwitchLost, SwitchRefused, SwitchSession, Watched
from projections.rules.device_table import EMPTY_TABLE, DeviceTable, unpack
from projections.rules.rule import SetStep

logger = logging.getLogger(__name__)

CAPACITY = 1_000_000
READ_BACK_S = 30.0
"""A read-back within this time after the last one returns the digest of that."""
GATHER_S = 0.05
"""A reported change of the flows waits this time for others."""


class OpenVSwitch:
    """One bridge. `run` keeps the session with it."""

    def __init__(self, socket: Path, layout: FlowLayout, *, rng: random.Random) -> None:
        self._socket = socket
        self._layout = layout
        self._rng = rng
        self._connection: Connection[SwitchSession] = Connection(rng)
        self._repairs = Repairs("table", {"socket": str(socket)})
        self._table = EMPTY_TABLE
        """The table that the bridge was told to hold."""
        self._priorities: Priorities | None = None
        """Priorities of the rules in the bridge; None until they are read from it."""
        self._digest = EMPTY_TABLE.digest
        self._read_at = float("-inf")
        self._busy = asyncio.Lock()

    @property
    def capacity(self) -> int:
        return CAPACITY

    @property
    def fault(self) -> str:
        """Why there is no session; empty while there is one."""
        return self._connection.fault

    @property
    def counts(self) -> BridgeCounts:
        return self._repairs.counts(self._connection.count)

    async def run(self) -> None:
        """Keep a session with the bridge until cancelled."""
        while True:
            try:
                await self._serve()
            except SwitchLost as lost:
                self._lost(str(lost))
            await asyncio.sleep(self._connection.wait_s())

    async def _serve(self) -> None:
        """Open a session and hold the table until it ends. Raises SwitchLost."""
        session = await SwitchSession.open(self._socket)
        ended: list[BaseException] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(session.serve())
                tasks.create_task(self._hold(session))
        except* SwitchLost as lost:
            ended += lost.exceptions
        finally:
            session.close()
        raise ended[0]

    def _lost(self, fault: str) -> None:
        if self._connection.lost(fault, asyncio.get_running_loop().time()):
            logger.warning("bridge not connected: %s", fault, extra={"socket": str(self._socket)})
        self._priorities = None
        self.forget()

    async def _hold(self, session: SwitchSession) -> None:
        """Have the bridge hold the table: now, and at a fixed interval."""
        await self._watch(session)  # a switch that closes the session before its first answer is not connected
        self._connection.opened(session, asyncio.get_running_loop().time())
        logger.info("bridge connected", extra={"socket": str(self._socket)})
        while True:
            if self._table.version:
                async with self._busy:
                    await self._check(session)
            await self._until_due(session)

    async def _watch(self, session: SwitchSession) -> None:
        """Have the session report changes of the flows of the table."""
        layout = self._layout
        tables = (
            Watched(0, COOKIE, COOKIE_MASK, frozenset({layout.hook_priority})),
            Watched(layout.chains, COOKIE, COOKIE_MASK, frozenset({0})),
            Watched(layout.table),
        )
        try:
            await session.watch(tables)
        except SwitchRefused as error:
            about = {"socket": str(self._socket), "reason": str(error)}
            logger.info("changes of flows are found at the next read-back, the bridge reports none", extra=about)

    async def _until_due(self, session: SwitchSession) -> None:
        """Wait until the bridge reports a change, or for the interval. Changes are heeded the later the more repairs
        there were: a program that undoes each of them would use up the budget at once."""
        spacing_s = self._repairs.budget.spacing_s(asyncio.get_running_loop().time(), READ_BACK_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(READ_BACK_S * self._rng.uniform(0.8, 1.2)):
                await asyncio.sleep(spacing_s)
                await session.until_changed()
                await asyncio.sleep(GATHER_S)

    def forget(self) -> None:
        """Have the next read-back read the bridge, however short ago it was read."""
        self._read_at = float("-inf")

    # -- the device

    def apply(self, steps: Sequence[SetStep], table: DeviceTable) -> bool | Awaitable[bool]:
        return self._apply(steps, table)

    def restore(self, table: DeviceTable) -> bool | Awaitable[bool]:
        return self._restore(table)

    async def read_back(self) -> bytes:
        session = self._connection.required()
        if asyncio.get_running_loop().time() >= self._read_at + READ_BACK_S:
            async with self._busy:
                try:
                    await self._read(session, self._table)
                except (SwitchLost, SwitchRefused) as error:
                    raise DeviceFailed(str(error)) from error
        return self._digest

    async def _apply(self, steps: Sequence[SetStep], table: DeviceTable) -> bool:
        session = self._connection.required()
        async with self._busy:
            priorities, self._priorities = self._priorities, None  # unknown again if this ends half-way
            if priorities is None or not all(priorities.place(step.rule) for step in steps):
                return await self._replace(session, table)
            changes = [(RuleFlows(s.rule, priorities.of_rules[s.rule], self._layout), s) for s in steps]
            deleted = _deleted(changes, table)
            try:
                await session.install(_added(changes), deleted)
            except (SwitchLost, SwitchRefused) as error:
                raise DeviceFailed(str(error)) from error
            for rule in priorities.of_rules.keys() - table.rules.keys():
                del priorities.of_rules[rule]
            self._table, self._digest, self._priorities = table, table.digest, priorities
        return True

    async def _restore(self, table: DeviceTable) -> bool:
        if self._connection.session is None:  # the bridge gets the table with its session
            self._table = table
        session = self._connection.required()
        async with self._busy:
            return await self._replace(session, table)

    async def _replace(self, session: SwitchSession, table: DeviceTable) -> bool:
        """Have the bridge hold exactly this table, whatever it holds."""
        try:
            await self._read(session, table, is_repair=True)
        except (SwitchLost, SwitchRefused) as error:
            raise DeviceFailed(str(error)) from error
        self._table = table
        return True

    # -- comparison with the bridge

    async def _check(self, session: SwitchSession) -> None:
        """Compare the bridge with the table, and repair it within the budget."""
        now = asyncio.get_running_loop().time()
        is_allowed = self._repairs.budget.allows(now)
        try:
            changed = await self._read(session, self._table, is_repair=is_allowed, is_fill=True)
        except SwitchRefused as error:
            self._repairs.not_repaired(str(error), self._digest)
            return
        if not changed:
            self._repairs.whole()
        elif self._digest == self._table.digest:
            self._repairs.repaired(changed, now)
        else:
            self._repairs.beyond_budget(self._digest)

    async def _read(
        self, session: SwitchSession, table: DeviceTable, *, is_repair: bool = False, is_fill: bool = False
    ) -> int:
        """Read the flows of the bridge and compare them with those of a table. With `is_repair`, change those that
        differ; with `is_fill`, do so if the bridge has none. Returns how many differ."""
        priorities = self._priorities
        if priorities is None or priorities.of_rules.keys() != table.rules.keys():
            priorities = await self._read_priorities(session, table)
        found = FlowComparison(table, priorities.of_rules, self._layout)
        await session.read_flows(COOKIE, COOKIE_MASK, found.add)
        self._digest, changed = found.digest(), found.differences
        if is_repair or (is_fill and found.is_empty):
            self._priorities = None
            if found.lacks_fixed:
                await self._check_hooks(session)
            if changed:
                await session.install(found.missing(), found.strays())
            self._priorities, self._digest = priorities, table.digest
        self._read_at = asyncio.get_running_loop().time()
        return changed

    async def _read_priorities(self, session: SwitchSession, table: DeviceTable) -> Priorities:
        """The priorities that the rules of a table have in the bridge, in the order of precedence."""
        found: defaultdict[int, Counter[int]] = defaultdict(Counter)
        """The number of flows by cookie and priority. A flow of another program may have the cookie of a rule."""

        def add(flow: Flow) -> None:
            found[flow.cookie][flow.priority] += 1

        await session.read_flows(COOKIE, COOKIE_MASK, add, self._layout.table)
        most_frequent = {cookie: counts.most_common(1)[0][0] for cookie, counts in found.items()}
        try:
            return priorities_found(most_frequent, table.rules)
        except ValueError as error:  # more rules than a switch can order
            raise SwitchRefused(str(error)) from error

    async def _check_hooks(self, session: SwitchSession) -> None:
        """Raise SwitchRefused if the hooks of table 0 could replace flows of another program, or be hidden by them."""
        priority = self._layout.hook_priority
        for flow in await session.flows(0, 0, table=0):
            if flow.priority == priority and flow.cookie & COOKIE_MASK != COOKIE:
                raise SwitchRefused(f"hook-priority: another program has a flow of priority {priority} in table 0")


def _added(changes: Sequence[tuple[RuleFlows, SetStep]]) -> Iterator[Flow]:
    for flows, step in changes:
        yield from flows.flows(unpack(step.add4, step.add6))


def _deleted(changes: Sequence[tuple[RuleFlows, SetStep]], table: DeviceTable) -> Iterator[Flow]:
    for flows, step in changes:
        if step.remove4 or step.remove6:
            left = table.rules.get(step.rule, frozenset())
            yield from removed_flows(flows, unpack(step.remove4, step.remove6), left)
