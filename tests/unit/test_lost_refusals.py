"""A device must not report a version as received after it failed to apply it.

The refusal may be lost, so that the relay gets only the next heartbeat. If that heartbeat reported the version as
received, the relay would wait as for a slow device, and the device would get no update until its link breaks.
"""

from __future__ import annotations

import random

from drivers.agents.store import MemoryTableStore
from drivers.agents.table import AgentTable
from drivers.backends.simulated import NO_DEVICE_FAULTS, DeviceFaults, SimulatedDevice
from drivers.backends.simulated_devices import SimulatedDevices
from drivers.wire.agent_messages import Refusal
from drivers.wire.relay_messages import Frame
from projections.rules.device_table import EMPTY_TABLE, DeviceTable, digest_of, steps_between
from projections.rules.rule import Delta
from tests.support.rule_source import ALLOW, packed

FAILING = DeviceFaults(failures=1.0)


def _table(version: int, network: str) -> DeviceTable:
    rules = {ALLOW: packed(network)}
    return DeviceTable(1, version, digest_of(rules), rules)


FIRST, SECOND = _table(3, "10.0.0.0/8"), _table(5, "10.0.0.0/7")


def _frame(before: DeviceTable, after: DeviceTable) -> Frame:
    delta = Delta(before.version, after.version, after.digest, steps_between(before, after))
    return Frame(dpus=0, epoch=after.epoch, delta=delta)


async def test_an_agent_whose_device_failed_reports_no_new_version() -> None:
    store = MemoryTableStore()
    store.save(FIRST)
    device = SimulatedDevice(FAILING, rng=random.Random(1))
    held = AgentTable(device, store, apply_s=1.0, read_back_s=1.0, slow_s=1.0)
    await held.load()
    assert isinstance(await held.take(_frame(FIRST, SECOND), lambda: None), Refusal)
    assert (held.status().applied, held.status().received) == (3, 3)


def test_a_simulated_device_that_failed_reports_no_new_version() -> None:
    fleet = SimulatedDevices(NO_DEVICE_FAULTS, random.Random(1))
    zone = fleet.add_zone(1)
    fleet.handle_frame(zone, _frame(EMPTY_TABLE, FIRST), now=0.0)
    fleet.faults = FAILING
    fleet.handle_frame(zone, _frame(FIRST, SECOND), now=1.0)
    (beat,) = fleet.heartbeat(zone)
    assert (beat.applied, beat.received) == (3, 3)
