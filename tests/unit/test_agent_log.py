"""The log of an agent: a line for each fault and for its end, however often a relay or a heartbeat repeats it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Sequence

import pytest

from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.store import MemoryTableStore
from drivers.agents.table import AgentTable
from drivers.backends.device import DeviceFailed, DeviceNotReady
from drivers.backends.simulated import SimulatedDevice
from projections.rules.device_table import DeviceTable
from projections.rules.rule import SetStep
from tests.support.relays import FIRST, RelayCluster, relay_cluster
from tests.support.rule_source import ALLOW, Tables

pytestmark = pytest.mark.virtual_clock


class BrokenDevice(SimulatedDevice):
    """A device that has not been tried yet at first, then fails, until it is mended."""

    fault: DeviceFailed | None = DeviceNotReady("no session yet")

    def _check(self) -> None:
        if self.fault is not None:
            raise self.fault

    def apply(self, steps: Sequence[SetStep], table: DeviceTable) -> bool | Awaitable[bool]:
        self._check()
        return super().apply(steps, table)

    def restore(self, table: DeviceTable) -> bool | Awaitable[bool]:
        self._check()
        return super().restore(table)

    async def read_back(self) -> bytes:
        self._check()
        return await super().read_back()


def start(made: RelayCluster, device: SimulatedDevice) -> Agent:
    who = AgentIdentity("z", "d", "boot")
    agent = Agent(who, ["r0"], dial=made.dial, device=device, store=MemoryTableStore(), rng=random.Random(3))
    made.start(agent.run())
    return agent


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The level and the text of each line of the agent."""
    return [(each.levelname, each.getMessage()) for each in caplog.records if each.name.startswith("drivers.agents.")]


async def test_a_dpu_that_is_not_registered_is_logged_once_and_again_when_it_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    tables = Tables()
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        agent = start(made, SimulatedDevice(rng=random.Random(9)))
        await asyncio.sleep(100)
        refused = ("WARNING", "dpu d not served by the relay: dpu: 'd' is not registered in zone 'z' on this relay")
        assert lines(caplog) == [refused]
        tables.ordinals["d"] = 0
        await asyncio.sleep(100)
        assert agent.table == tables.table
        assert lines(caplog) == [refused, ("INFO", "dpu d served by the relay")]


async def test_a_fault_of_the_device_is_logged_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tables, broken = Tables(["d"]), BrokenDevice(rng=random.Random(9))
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        made.down.add("r0")
        agent = start(made, broken)
        await asyncio.sleep(1)
        assert not lines(caplog), "a device that has not been tried yet has no fault"
        broken.fault = DeviceFailed("port 3: no answer")
        made.down.clear()
        await asyncio.sleep(200)
        assert agent.refusals > 1
        faults = [
            ("WARNING", "dpu d refused table version 5: port 3: no answer"),
            ("WARNING", "table of the device not read, retrying at each heartbeat: port 3: no answer"),
        ]
        assert sorted(lines(caplog)) == sorted(faults)
        broken.fault = None
        await asyncio.sleep(100)
        assert agent.table == tables.table
        assert lines(caplog)[2:] == [("INFO", "table of the device read again")]


async def test_a_saved_table_waits_without_a_word_for_a_device_that_has_not_been_tried_yet(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tables, store = Tables(["d"]), MemoryTableStore()
    store.save(tables.put(5, {ALLOW: FIRST}))
    broken = BrokenDevice(rng=random.Random(9))
    table = AgentTable(broken, store, apply_s=9.0, read_back_s=9.0, slow_s=9.0)
    await table.load()
    assert not lines(caplog)
    broken.fault = DeviceFailed("port 3: no answer")
    await table.load()
    assert lines(caplog) == [("WARNING", "saved table not applied to the device yet: port 3: no answer")]
