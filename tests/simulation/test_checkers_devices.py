"""Devices compared with the tables of their zone: correct tables and times, and wrong ones with one fault each."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from eventstore.log import FLEET_0
from projections.fleet.tables import zone_table as tables
from projections.rules.rule import Rule, SetStep
from schemas import events as e
from tests.simulation.checkers import Evidence, devices
from tests.simulation.checkers.evidence import Freeze
from tests.simulation.history import FinalTable, FrameStarted, History, ProcessUptime, TableInstalled
from tests.support.written_run import ZONES_0, WrittenRun


def installed(at_s: float, version: int, *, device: str = "d", boot: int = 0, epoch: int = 1) -> TableInstalled:
    return TableInstalled(at_s, "z", device, boot, epoch, version, b"")


def run_with(*entries: Any) -> Evidence:
    """A run with only these entries."""
    log = WrittenRun()
    for each in entries:
        log.history.add(each)
    return log.evidence()


def test_a_device_has_no_version_before_it_is_in_the_log() -> None:
    log = WrittenRun()
    log.now_s = 19.0
    log.write(FLEET_0, e.WritesFrozen(log.said(), "z"))

    def faults(at_s: float) -> list[str]:
        log.history = History()
        log.history.add(installed(at_s, 2))
        run = log.evidence()
        run.tables = {"z": {2: b""}}
        return list(devices.check_tables(run))

    assert not faults(20.0)
    assert faults(19.5) == ["d had version 2 at 19.500 s, before it was in the log"]


@pytest.fixture
def log() -> WrittenRun:
    """A zone with two devices and a node that was forwarded to fleet. Any other zone has the default table."""
    made = WrittenRun()
    for dpu in ("d0", "d1"):
        made.write(ZONES_0, e.DpuRegistered(made.said(), "z", dpu, "n", dpu, "b"))
    joined = made.join("a")
    offset = made.write(ZONES_0, joined)
    made.write(FLEET_0, made.forward(joined, 0, offset + 1))
    return made


def whole(log: WrittenRun, device: str, zone: str = "z", **wrong: Any) -> FinalTable:
    """The entry of a device with the whole table of its zone, except for the fields in `wrong`."""
    table = tables.snapshot(log.evidence().fleet, zone)
    rules = tuple((step.rule, step.add4, step.add6) for step in table.steps)
    return replace(FinalTable(zone, device, table.to_version, table.digest, rules), **wrong)


def equal(log: WrittenRun, *dumps: FinalTable) -> list[str]:
    log.history = History()
    for dump in dumps:
        log.history.add(dump)
    return list(devices.check_equality(log.evidence()))


def test_devices_with_the_table_of_their_zone_have_no_faults(log: WrittenRun) -> None:
    assert whole(log, "d0").rules, "the table is not empty"
    assert not equal(log, whole(log, "d0"), whole(log, "d1", rules=None))


def test_a_lagging_device_is_found_and_other_zones_and_unknown_devices_are_ignored(log: WrittenRun) -> None:
    unregistered, elsewhere = whole(log, "nobody", version=0), whole(log, "d1", "y")
    late = whole(log, "d0", version=1, digest=bytes(range(16)))
    has, expected = late.digest.hex()[:8], whole(log, "d0").digest.hex()[:8]
    assert equal(log, unregistered, elsewhere, late) == [
        f"d0 has version 1, digest {has}, and its zone version {whole(log, 'd0').version}, {expected}"
    ]
    assert equal(log, whole(log, "d0", digest=b"")), "the right version with another digest"


def test_a_device_whose_rules_do_not_match_its_digest_is_found(log: WrittenRun) -> None:
    assert equal(log, whole(log, "d0", rules=())) == ["d0 has rules that do not match its digest"]


def test_devices_of_a_zone_without_a_table_are_ignored() -> None:
    log = WrittenRun()
    log.write(ZONES_0, e.DpuRegistered(log.said(), "z", "d", "n", "s", "b"))
    assert not equal(log, FinalTable("z", "d", 7, b"from an earlier log"))


def test_a_table_that_does_not_match_the_members_is_found(log: WrittenRun) -> None:
    log.history.add(whole(log, "d0"))
    run = log.evidence()
    run.fleet.members.rows["a"] = replace(run.fleet.members.rows["a"], address4=1)
    assert "the table of z differs from the one computed from policies and members" in list(devices.check_equality(run))


def test_a_device_never_goes_back_within_a_boot_and_an_epoch() -> None:
    assert not list(
        devices.check_device_versions(
            run_with(installed(1, 5), installed(2, 5), installed(3, 2, boot=1), installed(4, 1, boot=1, epoch=2))
        )
    )
    assert list(
        devices.check_device_versions(run_with(installed(1, 1, epoch=2), installed(2, 9, device="e"), installed(3, 5)))
    ) == ["d went back from 1 to 5 at 3.000 s"]


def frozen(at_s: float, version: int, *, zone: str = "z") -> list[str]:
    """The report about a version installed at this time. Record 10 freezes the zone, and record 20 thaws it at 5 s."""
    run = run_with(replace(installed(at_s, version), zone=zone))
    run.freezes = [Freeze("z", 10, 20, 5.0)]
    return list(devices.check_freezes(run))


@pytest.mark.parametrize("version", [12, 13, 19, 20])
def test_a_change_during_a_freeze_waits_for_the_thaw(version: int) -> None:
    """A version is the position after the record that made it."""
    assert frozen(4.9, version) == [f"d got version {version} at 4.900 s, in the freeze since 10"]
    assert not frozen(5.0, version)
    assert not frozen(4.9, version, zone="y")


@pytest.mark.parametrize("version", [10, 11, 21])
def test_a_change_before_a_freeze_or_by_the_thaw_is_no_fault(version: int) -> None:
    assert not frozen(4.9, version)


RELAYS = (
    ProcessUptime("p0", ("relay",), 40.0, 60.0),
    ProcessUptime("p1", ("api", "relay"), 50.0, 100.0),
    ProcessUptime("p2", ("api",), 0.0, 300.0),
    ProcessUptime("p3", ("relay",), 200.0, 300.0),
)
"""No relay runs from 100 s to 200 s."""


@pytest.mark.parametrize("at_s", [0.0, 30.0, 70.0, 114.0, 115.0, 200.0, 250.0])
def test_a_change_while_a_relay_runs_or_shortly_after_is_no_fault(at_s: float) -> None:
    """A frame in flight may arrive for 15 s. Before the first relay of the run, other relays may run."""
    assert not list(devices.check_without_relay(run_with(*RELAYS, installed(at_s, 2))))


@pytest.mark.parametrize("at_s", [116.0, 199.0])
def test_a_change_while_no_relay_runs_is_found(at_s: float) -> None:
    run = run_with(*RELAYS, installed(60.0, 1, device="e", boot=1), installed(at_s, 2))
    assert list(devices.check_without_relay(run)) == [f"d changed to version 2 at {at_s:.3f} s, while no relay ran"]


def test_a_reboot_without_a_relay_may_empty_the_table() -> None:
    assert not list(devices.check_without_relay(run_with(*RELAYS, installed(50.0, 2), installed(150.0, 0, boot=1))))
    assert list(
        devices.check_without_relay(run_with(*RELAYS, installed(150.0, 0, boot=1), installed(160.0, 2, boot=1)))
    )


def test_an_agent_that_restarts_without_a_relay_reports_its_old_table() -> None:
    assert not list(
        devices.check_without_relay(run_with(*RELAYS, installed(50.0, 2), installed(150.0, 2), installed(160.0, 2)))
    )
    assert list(
        devices.check_without_relay(run_with(*RELAYS, installed(50.0, 2), installed(150.0, 2), installed(160.0, 1)))
    )


def test_the_time_after_the_last_relay_is_not_checked() -> None:
    assert not list(devices.check_without_relay(run_with(RELAYS[0], installed(150.0, 2))))
    assert not list(devices.check_without_relay(run_with(installed(150.0, 2))))


def test_every_device_with_an_unsafe_frame_is_reported() -> None:
    allow, one = Rule(0, "allow", "any", ()), bytes((10, 0, 0, 1, 32))
    add, remove = SetStep(allow, one, b"", b"", b""), SetStep(allow, b"", b"", one, b"")
    run = run_with(
        FrameStarted(1.0, "z", "d", ((allow, one, b""),), (remove, add)),
        FrameStarted(1.5, "z", "good", ((allow, one, b""),), (add, add)),
        FrameStarted(2.0, "z", "e", ((allow, one, b""),), (remove, add)),
    )
    fault = "after 1 of 2 changes source (5, 167772161) gets the verdict deny for ('other', 0)"
    assert list(devices.check_safe_order(run)) == [f"d at 1.000 s: {fault}", f"e at 2.000 s: {fault}"]
