"""The agent of one DPU keeps its last good table through faults of its device and relay, and through restarts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence
from pathlib import Path

import pytest

from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.store import FileTableStore, MemoryTableStore, TableStore
from drivers.agents.table import AgentTable
from drivers.backends.device import DeviceFailed
from drivers.backends.simulated import NO_DEVICE_FAULTS, DeviceFaults, SimulatedDevice
from drivers.wire import agent_messages, relay_messages
from drivers.wire.agent_messages import Hello
from drivers.wire.links import Link, memory_link_pair
from drivers.wire.protocol import TableStatus
from drivers.wire.relay_messages import Frame, GoAway, HeartbeatReply, Unserved, Welcome
from projections.installs.rows import Level
from projections.rules.device_table import EMPTY_TABLE, DeviceTable, digest_of, steps_between
from projections.rules.rule import Delta, SetStep
from tests.support.relays import FIRST, SECOND, THIRD, RelayCluster, relay_cluster
from tests.support.rule_source import ALLOW, Tables

pytestmark = pytest.mark.virtual_clock


def new_agent(
    made: RelayCluster,
    device: SimulatedDevice,
    *,
    store: TableStore | None = None,
    relays: Sequence[str] = ("r0",),
    zone: str = "z",
) -> Agent:
    who = AgentIdentity(zone, "d", "boot")
    agent = Agent(who, relays, dial=made.dial, device=device, store=store or MemoryTableStore(), rng=random.Random(3))
    made.start(agent.run())
    return agent


def device(faults: DeviceFaults = NO_DEVICE_FAULTS) -> SimulatedDevice:
    return SimulatedDevice(faults, rng=random.Random(9))


def served() -> Tables:
    tables = Tables(["d"])
    tables.put(5, {ALLOW: FIRST})
    return tables


async def test_device_and_agent_follow_the_relay() -> None:
    tables, simulated = served(), device()
    async with relay_cluster(tables) as made:
        agent = new_agent(made, simulated)
        for version, rules in ((6, SECOND), (7, THIRD)):
            tables.put(version, {ALLOW: rules})
            await asyncio.sleep(1)
            assert agent.table == simulated.holds == tables.table
        await asyncio.sleep(60)
        assert agent.target == (1, 7)


async def test_a_restart_needs_no_relay_and_resumes_by_a_delta(tmp_path: Path) -> None:
    tables = served()
    async with relay_cluster(tables) as made:
        new_agent(made, device(), store=FileTableStore(tmp_path / "table", "d", "z"))
        await asyncio.sleep(1)
    tables.put(6, {ALLOW: SECOND})
    async with relay_cluster(tables) as made:
        made.down.add("r0")
        empty_device = device()
        agent = new_agent(made, empty_device, store=FileTableStore(tmp_path / "table", "d", "z"))
        await asyncio.sleep(60)
        assert agent.table == empty_device.holds == tables.history[5]
        made.down.clear()
        snapshots = tables.snapshots
        await asyncio.sleep(60)
        assert agent.table == empty_device.holds == tables.history[6]
        assert tables.snapshots == snapshots


async def test_a_dpu_that_moves_to_another_zone_gets_the_table_of_that_zone(tmp_path: Path) -> None:
    """The new zone's table may have a lower version. The saved table of the former zone must not count as newer."""
    here, there, simulated = served(), Tables(["d"]), device()
    async with relay_cluster(here) as made:
        new_agent(made, simulated, store=FileTableStore(tmp_path / "table", "d", "z"))
        await asyncio.sleep(1)
    there.put(3, {ALLOW: THIRD})
    async with relay_cluster(there) as made:
        agent = new_agent(made, simulated, store=FileTableStore(tmp_path / "table", "d", "y"), zone="y")
        assert simulated.holds == here.table, "the device keeps its table until a relay sends another"
        await asyncio.sleep(60)
        assert agent.table == simulated.holds == there.table


async def test_after_a_restore_the_version_in_hardware_of_the_former_log_is_not_reported() -> None:
    class Lagging(SimulatedDevice):
        """A device that writes only the first table to hardware at once."""

        def _take(self, table: DeviceTable) -> bool:
            super()._take(table)
            return table.version == 500

    lagging = Lagging(rng=random.Random(9))
    held = AgentTable(lagging, MemoryTableStore(), apply_s=9.0, read_back_s=9.0, slow_s=9.0)
    levels = []
    for epoch, version in ((1, 500), (1, 501), (2, 300)):
        rules = {ALLOW: FIRST}
        steps = steps_between(EMPTY_TABLE, DeviceTable(epoch, version, digest_of(rules), rules))
        frame = Frame(0, epoch, Delta(0, version, digest_of(rules), steps))
        found = await held.take(frame, lambda: None)
        assert isinstance(found, TableStatus)
        levels.append((found.applied, found.in_hardware))
    assert levels == [(500, 500), (501, 500), (300, 0)]


async def test_an_agent_cancelled_while_its_link_breaks_ends() -> None:
    async with relay_cluster(served()) as made:
        who, store, rng = AgentIdentity("z", "d", "boot"), MemoryTableStore(), random.Random(3)
        agent = Agent(who, ["r0"], dial=made.dial, device=device(), store=store, rng=rng)
        running = made.start(agent.run())
        await asyncio.sleep(1)
        made.kill("r0")
        await asyncio.sleep(0)
        running.cancel()
        done, _ = await asyncio.wait({running}, timeout=100)
        assert done


async def test_an_agent_without_a_saved_table_leaves_the_device_unchanged_until_a_relay_sends_one() -> None:
    tables, simulated = served(), device()
    simulated.holds = DeviceTable(1, 3, b"x" * 16, {ALLOW: SECOND})
    async with relay_cluster(tables) as made:
        made.down.add("r0")
        agent = new_agent(made, simulated)
        await asyncio.sleep(100)
        assert (agent.table, simulated.holds.version) == (EMPTY_TABLE, 3)
        made.down.clear()
        await asyncio.sleep(60)
        assert agent.table == simulated.holds == tables.table


async def test_flushed_rules_are_restored_after_the_next_heartbeat() -> None:
    tables, simulated = served(), device()
    async with relay_cluster(tables) as made:
        new_agent(made, simulated)
        await asyncio.sleep(1)
        simulated.flush()
        await asyncio.sleep(12)
        assert simulated.holds == tables.table


class FaultyDevice(SimulatedDevice):
    """In its mode, a device applies each table, acknowledges it without applying it, or fails halfway."""

    mode = "good"
    restored = 0

    def apply(self, steps: Sequence[SetStep], table: DeviceTable) -> bool | Awaitable[bool]:
        if self.mode == "lies":
            return True
        if self.mode == "fails":
            self.holds = self.holds._replace(digest=b"half-way".ljust(16), rules={})
            raise DeviceFailed("port 3: command timed out")
        return super().apply(steps, table)

    def restore(self, table: DeviceTable) -> bool | Awaitable[bool]:
        self.restored += 1
        return super().restore(table)


async def test_a_device_with_a_false_acknowledgement_is_found_by_its_digest_and_reconciled() -> None:
    tables, simulated = served(), FaultyDevice(rng=random.Random(1))
    async with relay_cluster(tables) as made:
        new_agent(made, simulated)
        await asyncio.sleep(1)
        simulated.mode = "lies"
        tables.put(6, {ALLOW: SECOND})
        await asyncio.sleep(0.1)
        assert made.versions() == [6]
        assert simulated.holds.version == 5
        simulated.mode, before = "good", simulated.restored
        await asyncio.sleep(15)
        assert simulated.holds == tables.table
        assert simulated.restored == before + 1


async def test_a_failed_device_is_named_in_the_report_and_reconciled_later() -> None:
    tables, simulated = served(), FaultyDevice(rng=random.Random(1))
    async with relay_cluster(tables) as made:
        agent = new_agent(made, simulated)
        await asyncio.sleep(1)
        simulated.mode = "fails"
        tables.put(6, {ALLOW: SECOND})
        await asyncio.sleep(0.1)
        assert (agent.table.version, agent.refusals) == (5, 1)
        simulated.mode = "good"
        await asyncio.sleep(15)
        assert agent.table == simulated.holds == tables.table
        refused = [report.refused for report in tables.reports if report.refused]
        assert refused == [{"d": "DEVICE: port 3: command timed out"}]


async def test_an_agent_with_a_slow_device_acknowledges_receipt_and_keeps_its_link() -> None:
    tables, simulated = served(), device(DeviceFaults(latency_ms=60_000.0, spread=0.0))
    async with relay_cluster(tables) as made:
        agent = new_agent(made, simulated)
        await asyncio.sleep(1)
        link = next(iter(made.relay.zones["z"].sessions)).link
        for version in range(6, 30):
            tables.put(version, {ALLOW: SECOND if version % 2 else FIRST})
            await asyncio.sleep(10)
        await asyncio.sleep(300)
        assert agent.table == tables.table
        assert next(iter(made.relay.zones["z"].sessions)).link is link
        assert simulated.holds == tables.table
        reported = [entry for report in tables.reports for entry in zip(report.versions, report.levels, strict=True)]
        versions = list(dict.fromkeys(version for version, level in reported if level == Level.APPLIED))
        assert 5 < len(versions) < 15  # deltas are merged because the device takes a minute for each
        for version in versions[1:]:
            assert reported.index((version, Level.RECEIVED)) < reported.index((version, Level.APPLIED))


async def test_a_frame_is_acknowledged_as_received_while_the_device_is_being_read() -> None:
    class SlowToRead(SimulatedDevice):
        """A device whose table takes 4 s to read back."""

        async def read_back(self) -> bytes:
            await asyncio.sleep(4)
            return await super().read_back()

    held = AgentTable(SlowToRead(rng=random.Random(9)), MemoryTableStore(), apply_s=9.0, read_back_s=9.0, slow_s=0.1)
    reading, slow = asyncio.create_task(held.read_back()), asyncio.Event()
    await asyncio.sleep(1)
    rules = {ALLOW: FIRST}
    table = DeviceTable(1, 5, digest_of(rules), rules)
    frame = Frame(0, 1, Delta(0, 5, table.digest, steps_between(EMPTY_TABLE, table)))
    taking = asyncio.create_task(held.take(frame, slow.set))
    await asyncio.sleep(0.1)
    assert slow.is_set() and not taking.done()
    assert (await reading).applied == 0
    found = await taking
    assert isinstance(found, TableStatus) and found.applied == 5


async def test_an_agent_moves_from_a_silent_relay_to_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = served()
    async with relay_cluster(tables, relays=2) as made:
        agent = new_agent(made, device(), relays=("r0", "r1"))
        await asyncio.sleep(1)
        silent = next(relay for relay in made.relays.values() if relay.zones)
        session = next(iter(silent.zones["z"].sessions))
        monkeypatch.setattr(session.link, "send", lambda _message: None)
        tables.put(6, {ALLOW: SECOND})
        await asyncio.sleep(80)
        assert agent.table == tables.table
        assert not silent.zones["z"].sessions


class HalfApplying(SimulatedDevice):
    """A device that applies the delta to one version only halfway. A whole table replaces the rest; deltas do not."""

    halts_at = 7

    async def apply(self, steps: Sequence[SetStep], table: DeviceTable) -> bool:
        if table.version == self.halts_at:
            self.holds = DeviceTable(1, table.version, b"h" * 16, {ALLOW: FIRST | SECOND | THIRD})
            await asyncio.sleep(100)
        if self.holds.version == self.halts_at:
            self.holds = DeviceTable(1, table.version, b"h" * 16, {ALLOW: FIRST | SECOND | THIRD})
            return True
        return self._take(table)


async def test_a_device_that_applied_half_a_delta_gets_a_whole_table_next() -> None:
    """The link breaks while the device applies version 7, and the next frame leads to version 8."""
    tables, half_applying = served(), HalfApplying(NO_DEVICE_FAULTS, rng=random.Random(9))
    async with relay_cluster(tables) as made:
        agent = new_agent(made, half_applying)
        await asyncio.sleep(1)
        tables.put(6, {ALLOW: SECOND})
        await asyncio.sleep(1)
        tables.put(7, {ALLOW: THIRD})
        await asyncio.sleep(1)
        made.kill("r0")
        await asyncio.sleep(20)
        assert (agent.table.version, half_applying.holds.version) == (6, 7)
        tables.put(8, {ALLOW: FIRST})
        made.down.clear()
        while agent.table.version < 8:
            await asyncio.sleep(0.01)
        assert half_applying.holds == tables.table


@pytest.mark.parametrize(
    "answer", [GoAway("go", (1 << 32) - 1), Welcome(1, 5, False, 1_000, [Unserved(1, "no", 1 << 31)])]
)
async def test_an_agent_limits_the_wait_that_a_relay_asks_for(answer: GoAway | Welcome) -> None:
    hellos: list[float] = []

    async def dial(_address: str) -> Link:
        relays, agents = memory_link_pair("r0", "agent")
        serving.add(asyncio.create_task(serve(relays)))
        return agents

    async def serve(link: Link) -> None:
        while True:
            if isinstance(agent_messages.decode(await link.receive()), Hello):
                hellos.append(asyncio.get_running_loop().time())
                link.send(relay_messages.encode(answer))
            else:  # with a reply to each heartbeat the agent keeps its link
                link.send(relay_messages.encode(HeartbeatReply(1, 5, False)))

    serving: set[asyncio.Task[None]] = set()
    who, store, rng = AgentIdentity("z", "d", "boot"), MemoryTableStore(), random.Random(3)
    agent = asyncio.create_task(Agent(who, ["r0"], dial=dial, device=device(), store=store, rng=rng).run())
    await asyncio.sleep(200)
    assert len(hellos) > 1
    for task in (agent, *serving):
        task.cancel()
    await asyncio.gather(agent, *serving, return_exceptions=True)
