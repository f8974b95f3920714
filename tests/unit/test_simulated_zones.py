"""Relays and simulated zones on a virtual clock: under any device faults, every device finally has the table."""

from __future__ import annotations

import asyncio
import logging

import pytest
from pyroaring import BitMap

from drivers.backends.simulated import NO_DEVICE_FAULTS, DeviceFaults
from eventstore.errors import AppendUnknown
from schemas.events import InstallsReported
from tests.support.relays import FIRST, SECOND, THIRD, relay_cluster
from tests.support.rule_source import ALLOW, Tables, packed

pytestmark = pytest.mark.virtual_clock


async def test_every_device_gets_each_version_and_each_frame_is_encoded_once() -> None:
    tables = Tables()
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        simulator = made.simulate(["a", "b", "c"], 40)
        await asyncio.sleep(2)
        for version, rules in ((6, SECOND), (7, THIRD), (8, FIRST)):
            tables.put(version, {ALLOW: rules})
            await asyncio.sleep(0.5)
            assert made.versions() == [version] * 120
            assert made.equal_the_table(simulator)
        assert made.relay.frame_cache.encoded == 4
        assert simulator.devices.tables.applied == 4


async def test_a_burst_of_versions_is_merged_for_slow_devices() -> None:
    tables = Tables()
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        simulator = made.simulate(["a"], 50, DeviceFaults(latency_ms=400.0, slow_share=0.1, slow_factor=20.0))
        await asyncio.sleep(60)
        for version in range(6, 106):
            tables.put(version, {ALLOW: packed("10.0.0.0/8", f"11.{version}.0.0/16")})
            await asyncio.sleep(0.05)
        await asyncio.sleep(60)
        assert made.versions() == [105] * 50
        assert made.equal_the_table(simulator)
        slowest = simulator.devices.records.factor > 1
        assert slowest.any()
        assert not slowest.all()


async def test_a_zone_that_changes_its_relay_needs_no_snapshot() -> None:
    tables = Tables()
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables, relays=2) as made:
        simulator = made.simulate(["a", "b"], 30)
        await asyncio.sleep(5)
        snapshots = tables.snapshots
        made.kill("r0")
        tables.put(6, {ALLOW: SECOND})
        await asyncio.sleep(30)
        made.down.clear()
        made.kill("r1")
        tables.put(7, {ALLOW: THIRD})
        await asyncio.sleep(30)
        assert made.versions() == [7] * 60
        assert made.equal_the_table(simulator)
        assert tables.snapshots == snapshots


@pytest.mark.parametrize(
    "faults",
    [
        DeviceFaults(lies=0.3),
        DeviceFaults(false_alarms=0.3),
        DeviceFaults(failures=0.3),
        DeviceFaults(frame_loss=0.3, answer_loss=0.3),
        DeviceFaults(reboots_per_hour=30.0),
        DeviceFaults(latency_ms=200.0, hardware_ms=300.0, slow_share=0.1),
        DeviceFaults(100.0, 1.0, 0.1, 10.0, 50.0, 0.1, 0.1, 0.1, 0.1, 0.1, 10.0),
    ],
    ids=["lies", "false alarms", "failures", "losses", "reboots", "slow", "everything"],
)
async def test_after_any_device_faults_every_device_has_the_table(faults: DeviceFaults) -> None:
    tables = Tables()
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        simulator = made.simulate(["a", "b"], 50, faults)
        await asyncio.sleep(30)
        for version in range(6, 26):
            tables.put(version, {ALLOW: packed("10.0.0.0/8", f"11.{version}.0.0/16")})
            await asyncio.sleep(2)
        assert not made.equal_the_table(simulator)
        simulator.devices.faults = NO_DEVICE_FAULTS
        await asyncio.sleep(300)
        assert made.equal_the_table(simulator)
        assert made.versions() == [25] * 100


async def test_devices_without_room_are_named_in_reports_and_keep_their_table() -> None:
    tables = Tables()
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        simulator = made.simulate(["a"], 100, DeviceFaults(small_share=0.2, small_capacity=3))
        await asyncio.sleep(10)
        tables.put(6, {ALLOW: FIRST | packed(*(f"11.{i}.0.0/17" for i in range(10)))})
        await asyncio.sleep(60)
        small = int((simulator.devices.records.capacity == 3).sum())
        assert sorted(made.versions()) == [5] * small + [6] * (100 - small)
        refused = {name: why for report in tables.reports for name, why in report.refused.items()}
        assert len(refused) == small
        assert all(why.startswith("FULL: ") for why in refused.values())
        tables.put(7, {ALLOW: SECOND})
        await asyncio.sleep(120)
        assert made.equal_the_table(simulator)


async def test_a_frozen_zone_gets_no_frame_until_its_thaw() -> None:
    tables = Tables()
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        made.simulate(["a", "b"], 10)
        await asyncio.sleep(5)
        tables.frozen = {"a"}
        tables.put(6, {ALLOW: SECOND})
        await asyncio.sleep(60)
        held = made.relay.devices()
        assert {device.version for device in held["a"].values()} == {5}
        assert {device.version for device in held["b"].values()} == {6}
        tables.frozen = set()
        tables.wake()
        await asyncio.sleep(1)
        assert made.versions() == [6] * 20


async def test_devices_that_no_relay_serves_retry_and_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "drivers.simulators.zone")
    tables = Tables()
    tables.put(5, {ALLOW: FIRST})
    async with relay_cluster(tables) as made:
        made.simulate(["a"], 10)
        await asyncio.sleep(5)
        last, ordinal = tables.ordinals.popitem()
        tables.wake()
        await asyncio.sleep(60)
        assert made.versions() == [5] * 9
        tables.ordinals[last] = ordinal
        await asyncio.sleep(10)
        assert made.versions() == [5] * 10
    assert len([line for line in caplog.messages if "1 DPUs not served" in line]) == 1


async def test_reports_are_sent_on_change_and_repeated_while_their_outcome_is_unknown() -> None:
    class FlakyTables(Tables):
        is_flaky = True

        async def report(self, event: InstallsReported) -> None:
            await super().report(event)
            if self.is_flaky:
                raise AppendUnknown("the broker did not answer")

    tables = FlakyTables()
    tables.put(5, {ALLOW: FIRST}, at_ms=0)
    async with relay_cluster(tables) as made:
        made.simulate(["a"], 10)
        await asyncio.sleep(10)
        assert len(tables.reports) >= 5
        tables.is_flaky = False
        await asyncio.sleep(10)
        count = len(tables.reports)
        await asyncio.sleep(60)
        assert len(tables.reports) == count
        report = tables.reports[-1]
        assert (report.zone, report.epoch, report.dpu_count, report.relay) == ("a", 1, 10, "r0")
        assert [*zip(report.versions, report.levels, strict=True)] == [(5, 0), (5, 1), (5, 2)]
        assert [set(BitMap.deserialize(bitmap)) for bitmap in report.ordinals] == [set(range(10))] * 3
