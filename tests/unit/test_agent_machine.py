"""A state machine of the agent protocol: real agents and real relays on a virtual clock, under every fault of both.

Tables change, are frozen, and continue under a later epoch after a restore, while a relay of the former log may still
serve. Relays die and restart, links break, and messages arrive twice. Agents restart with their saved table, an older
one or none. Devices lose their rules, fail halfway through a table, or acknowledge a table that they did not apply.
Every device always holds a table that a relay once served, and no agent returns to an older table while it runs. After
the last fault, every device gets the newest table.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.store import MemoryTableStore
from drivers.backends.device import DeviceFailed
from drivers.backends.simulated import SimulatedDevice
from drivers.wire.links import Link
from projections.rules.device_table import EMPTY_TABLE, DeviceTable
from projections.rules.rule import Rule, SetStep
from tests.support.relays import FIRST, SECOND, THIRD, RelayCluster
from tests.support.rule_source import ALLOW, DROP, Tables
from tests.support.sometimes import Sometimes, sized
from tests.support.virtual_loop import VirtualLoop

NAMES = ("d0", "d1", "d2")
WHICH = st.sampled_from(NAMES)
RELAYS = st.sampled_from(["r0", "r1"])
CONTENTS: tuple[dict[Rule, frozenset[bytes]], ...] = (
    {},
    {ALLOW: FIRST},
    {ALLOW: SECOND},
    {ALLOW: THIRD},
    {ALLOW: SECOND, DROP: FIRST},
    {DROP: THIRD},
)
RECOVERY_S = 150.0

SOMETIMES = Sometimes(
    "a table reached a device",
    "a device applied a delta",
    "a device kept its rules through a freeze",
    "a log was restored, and a device had a table that it lacks",
    "a relay of the former log rejected a device",
    "a DPU came back empty",
    "a DPU came back with an older table",
    "a device lied",
    "a device failed halfway",
    "rules were flushed and came back",
    "a message arrived twice",
    "a relay died under its agents",
    "a DPU was deleted and came back",
)


class FaultyDevice(SimulatedDevice):
    """In its mode, a device applies each table, acknowledges it without applying it, or fails halfway."""

    mode = "good"

    def apply(self, steps: Sequence[SetStep], table: DeviceTable) -> bool | Awaitable[bool]:
        SOMETIMES.saw("a device applied a delta")
        return super().apply(steps, table)

    def _take(self, table: DeviceTable) -> bool:
        if self.mode == "lies":
            SOMETIMES.saw("a device lied")
            return True
        if self.mode == "fails":
            SOMETIMES.saw("a device failed halfway")
            self.holds = EMPTY_TABLE
            raise DeviceFailed("port 3: command timed out")
        return super()._take(table)


class RecordingLink:
    """An agent's end of a link that records each sent message."""

    def __init__(self, relay: str, link: Link) -> None:
        self.relay = relay
        self.link = link
        self.sent: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.link, name)

    def send(self, message: bytes) -> None:
        self.sent.append(message)
        self.link.send(message)


class AgentHost:
    """The host of one agent. Its device and stored table survive a restart of the agent, unless a rule clears them."""

    def __init__(self, name: str, cluster: RelayCluster) -> None:
        self.name = name
        self.device = FaultyDevice(rng=random.Random(name))
        self.store = MemoryTableStore()
        self.boots = 0
        self.links: list[RecordingLink] = []
        self._cluster = cluster
        self.boot()

    def boot(self) -> None:
        self.boots += 1
        identity = AgentIdentity("z", self.name, f"boot-{self.boots}")
        rng = random.Random(f"{self.name} {self.boots}")
        self.agent = Agent(identity, ("r0", "r1"), dial=self._dial, device=self.device, store=self.store, rng=rng)
        self.task = self._cluster.start(self.agent.run())
        self.highest = (0, 0)

    async def _dial(self, address: str) -> Link:
        self.links = [RecordingLink(address, await self._cluster.dial(address))]
        link: Any = self.links[0]
        found: Link = link
        return found


class AgentMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.version = 1
        self.served_tables: list[DeviceTable] = [EMPTY_TABLE]
        self.frozen_at = 0
        self.zombie = ""
        self.wait(self.begin())

    async def begin(self) -> None:
        self.tables = Tables(NAMES)
        self.cluster = RelayCluster(self.tables, relays=2)
        self.dpus = {name: AgentHost(name, self.cluster) for name in NAMES}

    def wait(self, work: Coroutine[Any, Any, None]) -> None:
        self.runner.run(work)

    @rule(seconds=st.sampled_from([0.01, 0.5, 3.0, 15.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.wait(asyncio.sleep(seconds))

    # -- the plane

    @rule(content=st.sampled_from(CONTENTS), skipped=st.integers(0, 3), seconds=st.sampled_from([0.0, 0.5, 15.0]))
    def table_changes(self, content: Any, skipped: int, seconds: float) -> None:
        self.version += 1 + skipped
        self.wait(self.put(content))
        self.wait(asyncio.sleep(seconds))

    async def put(self, content: Any) -> None:
        self.served_tables.append(self.tables.put(self.version, content))

    @precondition(lambda self: not self.frozen_at)
    @rule(content=st.sampled_from(CONTENTS), thaws=st.sampled_from([True, True, False]))
    def freeze(self, content: Any, thaws: bool) -> None:
        self.frozen_at = self.version
        self.tables.frozen.add("z")
        self.wait(self.wake())
        self.table_changes(content, 0, 15.0)
        self.every_device_holds_a_served_table()
        if thaws:
            self.thaw()

    @precondition(lambda self: self.frozen_at)
    @rule()
    def thaw(self) -> None:
        self.frozen_at = 0
        self.tables.frozen.clear()
        self.wait(self.wake())

    async def wake(self) -> None:
        self.tables.wake()

    @precondition(lambda self: not self.zombie and not self.frozen_at)
    @rule(lost=st.sampled_from([0, 1, 1, 2]), content=st.sampled_from(CONTENTS), zombie=st.booleans())
    def restore_the_log(self, lost: int, content: Any, zombie: bool) -> None:
        """Restore the log without its latest changes. With `zombie`, one relay keeps serving the former log."""
        self.end_faults()
        for each in CONTENTS[1:3]:
            self.table_changes(each, 0, 3.0)
        before = self.tables
        kept = sorted(before.history)[: max(1, len(before.history) - lost)]
        self.tables = Tables(before.ordinals, epoch=before.epoch + 1)
        self.tables.unknown = before.unknown | {(before.epoch, version) for version in {*before.history} - {*kept}}
        has_lost_table = any(
            (before.epoch, dpu.agent.table.version) in self.tables.unknown for dpu in self.dpus.values()
        )
        SOMETIMES.saw("a log was restored, and a device had a table that it lacks", has_lost_table)
        self.version = kept[-1] + 1
        self.cluster.tables = self.tables
        for relay in ("r0",) if zombie else ("r0", "r1"):
            self.kill(relay)
            self.wait(self.renewed(relay))
        self.zombie = "r1" if zombie else ""
        self.wait(self.put(content))
        if zombie:
            self.only_the_zombie_serves()

    def kill(self, relay: str) -> None:
        """End a relay's process. All of its links break, also those whose Hello it has not read."""
        self.cluster.kill(relay)
        for dpu in self.dpus.values():
            for link in dpu.links:
                if link.relay == relay:
                    link.link.abort()

    async def renewed(self, relay: str) -> None:
        self.cluster.relays[relay] = self.cluster._relay(relay, self.cluster.relays[relay]._settings)
        self.cluster.down.discard(relay)

    @precondition(lambda self: self.zombie)
    @rule()
    def only_the_zombie_serves(self) -> None:
        self.time_passes(15.0)
        self.kill("r0")
        self.time_passes(15.0)
        self.cluster.down.clear()

    @precondition(lambda self: self.zombie)
    @rule()
    def end_the_zombie(self) -> None:
        self.kill(self.zombie)
        self.wait(self.renewed(self.zombie))
        self.zombie = ""

    @rule(relay=RELAYS)
    def relay_dies(self, relay: str) -> None:
        SOMETIMES.saw("a relay died under its agents", bool(self.cluster.relays[relay].zones))
        self.kill(relay)

    @rule()
    def relays_come_back(self) -> None:
        self.cluster.down.clear()

    @rule(name=WHICH)
    def delete(self, name: str) -> None:
        self.tables.ordinals.pop(name, None)

    @rule()
    def register_all(self) -> None:
        SOMETIMES.saw("a DPU was deleted and came back", len(self.tables.ordinals) < len(NAMES))
        for ordinal, name in enumerate(NAMES):
            self.tables.ordinals.setdefault(name, ordinal)

    def end_faults(self) -> None:
        """End all faults. Agents and devices have not recovered yet when it returns."""
        self.register_all()
        self.cluster.down.clear()
        for dpu in self.dpus.values():
            dpu.device.mode = "good"

    # -- the devices

    @rule(name=WHICH)
    def comes_back_empty(self, name: str) -> None:
        self.reboot(name, "nothing", "empty")

    @rule(name=WHICH, content=st.sampled_from(["as it was", "empty"]))
    def comes_back_with_an_older_table(self, name: str, content: str) -> None:
        for each in CONTENTS[1:3]:
            self.table_changes(each, 0, 3.0)
        self.reboot(name, "older", content)

    @rule(
        name=WHICH, keeps=st.sampled_from(["all", "nothing", "older"]), content=st.sampled_from(["as it was", "empty"])
    )
    def reboot(self, name: str, keeps: str, content: str) -> None:
        dpu = self.dpus[name]
        if not dpu.agent.table.version and not self.frozen_at:  # a DPU without a table cannot lose one
            self.end_faults()
            self.table_changes(CONTENTS[1], 0, 15.0)
        self.wait(self.cancelled(dpu.task))
        held = dpu.agent.table
        if keeps == "nothing":
            dpu.store = MemoryTableStore()
            SOMETIMES.saw("a DPU came back empty", held.version > 0 and content == "empty")
        older = [table for table in self.served_tables if (table.epoch, table.version) < (held.epoch, held.version)]
        if keeps == "older":
            dpu.store.save(older[-1] if older else EMPTY_TABLE)
            SOMETIMES.saw("a DPU came back with an older table", len(older) > 1)
        if content == "empty":
            dpu.device.holds = EMPTY_TABLE
        self.wait(self.booted(dpu))

    async def cancelled(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=60)
        assert done, "a cancelled agent still runs"
        self.cluster.tasks.discard(task)

    async def booted(self, dpu: AgentHost) -> None:
        dpu.boot()

    @rule(name=WHICH)
    def flush(self, name: str) -> None:
        """Remove all rules of a device behind its agent's back; the agent's next audit finds it."""
        self.dpus[name].device.flush()

    @rule(name=WHICH, mode=st.sampled_from(["lies", "fails"]), content=st.sampled_from(CONTENTS), stays=st.booleans())
    def device_misbehaves(self, name: str, mode: str, content: Any, stays: bool) -> None:
        self.dpus[name].device.mode = mode
        self.table_changes(content, 0, 3.0)
        if not stays:
            self.dpus[name].device.mode = "good"

    @precondition(lambda self: not self.zombie and not self.frozen_at)
    @rule(name=WHICH)
    def flushed_and_audited(self, name: str) -> None:
        self.end_faults()
        dpu = self.dpus[name]
        self.time_passes(RECOVERY_S)
        dpu.device.flush()
        self.time_passes(60.0)
        assert dpu.device.holds.rules == self.tables.table.rules
        SOMETIMES.saw("rules were flushed and came back", bool(self.tables.table.rules))

    @rule(name=WHICH, back=st.integers(0, 5))
    def a_message_arrives_twice(self, name: str, back: int) -> None:
        for link in self.dpus[name].links:
            sent = link.sent
            if sent and not link.link._closed and not link.link.other._closed:  # type: ignore[attr-defined]
                link.link.send(sent[-1 - back % len(sent)])
                SOMETIMES.saw("a message arrived twice")

    # -- invariants

    @invariant()
    def every_device_holds_a_served_table(self) -> None:
        for dpu in self.dpus.values():
            holds = dpu.device.holds
            assert holds in self.served_tables, holds
            SOMETIMES.saw("a table reached a device", holds.version > 0)
            assert not self.frozen_at or holds.version <= self.frozen_at or holds.epoch < self.tables.epoch
            SOMETIMES.saw("a device kept its rules through a freeze", 0 < self.frozen_at < self.version)

    @invariant()
    def no_agent_returns_to_an_older_table(self) -> None:
        for dpu in self.dpus.values():
            table = dpu.agent.table
            assert (table.epoch, table.version) >= dpu.highest, (table[:2], dpu.highest)
            dpu.highest = (table.epoch, table.version)
            rejected = self.zombie and table.epoch == self.tables.epoch and dpu.agent.target[0] < table.epoch
            SOMETIMES.saw("a relay of the former log rejected a device", bool(rejected))

    def teardown(self) -> None:
        """End all faults, and check that every device gets the newest table and that the relays report it."""
        if self.zombie:
            self.end_the_zombie()
        if self.frozen_at:
            self.thaw()
        self.end_faults()
        self.time_passes(RECOVERY_S)
        for dpu in self.dpus.values():
            has = (dpu.device.holds[:2], dpu.agent.table[:2], self.tables.table[:2])
            assert dpu.agent.table == self.tables.table, (dpu.name, has)
            assert dpu.device.holds.rules == self.tables.table.rules, (dpu.name, has)
        held = {**self.cluster.relays["r0"].devices().get("z", {}), **self.cluster.relays["r1"].devices().get("z", {})}
        assert {name: (has.epoch, has.version) for name, has in held.items()} == dict.fromkeys(
            NAMES, (self.tables.table.epoch, self.tables.table.version)
        )
        self.wait(self.end())
        self.runner.close()

    async def end(self) -> None:
        for task in self.cluster.tasks:
            task.cancel()
        for result in await asyncio.gather(*self.cluster.tasks, return_exceptions=True):
            assert result is None or isinstance(result, asyncio.CancelledError), result


TestAgentProtocol = sized(AgentMachine, 40, 30, SOMETIMES)
