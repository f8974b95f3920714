"""Devices compared with the tables of their zone: allowed tables and times, and each with one fault."""

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


def seen(at_s: float, version: int, *, device: str = "d", boot: int = 0, epoch: int = 1) -> TableInstalled:
    return TableInstalled(at_s, "z", device, boot, epoch, version, b"")


def of(*happened: Any) -> Evidence:
    """A run with these entries only."""
    log = WrittenRun()
    for each in happened:
        log.history.add(each)
    return log.evidence()


def test_a_device_has_a_version_once_it_is_in_the_log() -> None:
    log = WrittenRun()
    log.now_s = 19.0
    log.write(FLEET_0, e.WritesFrozen(log.said(), "z"))

    def faults(at_s: float) -> list[str]:
        log.history = History()
        log.history.add(seen(at_s, 2))
        run = log.evidence()
        run.tables = {"z": {2: b""}}
        return list(devices.check_tables(run))

    assert not faults(20.0)
    assert faults(19.5) == ["d had version 2 at 19.500 s, before it was in the log"]


@pytest.fixture
def log() -> WrittenRun:
    """A zone with two devices and a node that was forwarded to fleet; a zone of another name has the default table."""
    made = WrittenRun()
    for dpu in ("d0", "d1"):
        made.write(ZONES_0, e.DpuRegistered(made.said(), "z", dpu, "n", dpu, "b"))
    joined = made.join("a")
    offset = made.write(ZONES_0, joined)
    made.write(FLEET_0, made.forward(joined, 0, offset + 1))
    return made


def whole(log: WrittenRun, device: str, zone: str = "z", **wrong: Any) -> FinalTable:
    """The whole table of a device's zone, except for this fault."""
    table = tables.snapshot(log.evidence().fleet, zone)
    rules = tuple((step.rule, step.add4, step.add6) for step in table.steps)
    return replace(FinalTable(zone, device, table.to_version, table.digest, rules), **wrong)


def equal(log: WrittenRun, *dumps: FinalTable) -> list[str]:
    log.history = History()
    for dump in dumps:
        log.history.add(dump)
    return list(devices.check_equality(log.evidence()))


def test_devices_that_hold_the_table_of_their_zone(log: WrittenRun) -> None:
    assert whole(log, "d0").rules, "there is something to hold"
    assert not equal(log, whole(log, "d0"), whole(log, "d1", rules=None))


def test_a_device_that_lags_is_found_behind_others_that_do_not_count(log: WrittenRun) -> None:
    stranger, elsewhere = whole(log, "nobody", version=0), whole(log, "d1", "y")
    late = whole(log, "d0", version=1, digest=bytes(range(16)))
    has, wants = late.digest.hex()[:8], whole(log, "d0").digest.hex()[:8]
    assert equal(log, stranger, elsewhere, late) == [
        f"d0 has version 1, digest {has}, and its zone version {whole(log, 'd0').version}, {wants}"
    ]
    assert equal(log, whole(log, "d0", digest=b"")), "the right version of something else"


def test_a_device_that_lies_about_what_it_holds(log: WrittenRun) -> None:
    assert equal(log, whole(log, "d0", rules=())) == ["d0 has rules that do not match its digest"]


def test_a_zone_without_a_table_has_nothing_to_hold() -> None:
    log = WrittenRun()
    log.write(ZONES_0, e.DpuRegistered(log.said(), "z", "d", "n", "s", "b"))
    assert not equal(log, FinalTable("z", "d", 7, b"from before the log was lost"))


def test_a_table_that_is_not_what_the_members_come_to(log: WrittenRun) -> None:
    log.history.add(whole(log, "d0"))
    run = log.evidence()
    run.fleet.members.rows["a"] = replace(run.fleet.members.rows["a"], address4=1)
    assert "the table of z differs from the one computed from policies and members" in list(devices.check_equality(run))


def test_a_device_goes_forward_within_a_boot_and_an_epoch() -> None:
    assert not list(
        devices.check_device_versions(of(seen(1, 5), seen(2, 5), seen(3, 2, boot=1), seen(4, 1, boot=1, epoch=2)))
    )
    assert list(devices.check_device_versions(of(seen(1, 1, epoch=2), seen(2, 9, device="e"), seen(3, 5)))) == [
        "d went back from 1 to 5 at 3.000 s"
    ]


def frozen(at_s: float, version: int, *, zone: str = "z") -> list[str]:
    """The report about a version at this time, if the zone is frozen by record 10 and thawed by 20, at 5 s."""
    run = of(replace(seen(at_s, version), zone=zone))
    run.freezes = [Freeze("z", 10, 20, 5.0)]
    return list(devices.check_freezes(run))


@pytest.mark.parametrize("version", [12, 13, 19, 20])
def test_what_changed_in_a_freeze_waits_for_the_thaw(version: int) -> None:
    """A version is the position after the record that made it."""
    assert frozen(4.9, version) == [f"d got version {version} at 4.900 s, in the freeze since 10"]
    assert not frozen(5.0, version)
    assert not frozen(4.9, version, zone="y")


@pytest.mark.parametrize("version", [10, 11, 21])
def test_what_changed_before_a_freeze_or_by_the_thaw_may_be_had(version: int) -> None:
    assert not frozen(4.9, version)


RELAYS = (
    ProcessUptime("p0", ("relay",), 40.0, 60.0),
    ProcessUptime("p1", ("api", "relay"), 50.0, 100.0),
    ProcessUptime("p2", ("api",), 0.0, 300.0),
    ProcessUptime("p3", ("relay",), 200.0, 300.0),
)
"""No relay runs from 100 s to 200 s."""


@pytest.mark.parametrize("at_s", [0.0, 30.0, 70.0, 114.0, 115.0, 200.0, 250.0])
def test_a_device_changes_while_a_relay_runs_or_was_just_there(at_s: float) -> None:
    """A frame in flight may arrive for 15 s; before the first relay, relays outside the run are at work."""
    assert not list(devices.check_without_relay(of(*RELAYS, seen(at_s, 2))))


@pytest.mark.parametrize("at_s", [116.0, 199.0])
def test_a_device_changes_and_no_relay_has_told_it_to(at_s: float) -> None:
    run = of(*RELAYS, seen(60.0, 1, device="e", boot=1), seen(at_s, 2))
    assert list(devices.check_without_relay(run)) == [f"d changed to version 2 at {at_s:.3f} s, while no relay ran"]


def test_a_device_that_reboots_in_the_dark_has_nothing_for_a_while() -> None:
    assert not list(devices.check_without_relay(of(*RELAYS, seen(50.0, 2), seen(150.0, 0, boot=1))))
    assert list(devices.check_without_relay(of(*RELAYS, seen(150.0, 0, boot=1), seen(160.0, 2, boot=1))))


def test_an_agent_that_starts_in_the_dark_has_what_it_had() -> None:
    assert not list(devices.check_without_relay(of(*RELAYS, seen(50.0, 2), seen(150.0, 2), seen(160.0, 2))))
    assert list(devices.check_without_relay(of(*RELAYS, seen(50.0, 2), seen(150.0, 2), seen(160.0, 1))))


def test_one_relay_leaves_no_dark() -> None:
    assert not list(devices.check_without_relay(of(RELAYS[0], seen(150.0, 2))))
    assert not list(devices.check_without_relay(of(seen(150.0, 2))))


def test_every_device_that_a_frame_hurts_is_named() -> None:
    allow, one = Rule(0, "allow", "any", ()), bytes((10, 0, 0, 1, 32))
    add, remove = SetStep(allow, one, b"", b"", b""), SetStep(allow, b"", b"", one, b"")
    run = of(
        FrameStarted(1.0, "z", "d", ((allow, one, b""),), (remove, add)),
        FrameStarted(1.5, "z", "good", ((allow, one, b""),), (add, add)),
        FrameStarted(2.0, "z", "e", ((allow, one, b""),), (remove, add)),
    )
    judged = "after 1 of 2 changes source (5, 167772161) gets the verdict deny for ('other', 0)"
    assert list(devices.check_safe_order(run)) == [f"d at 1.000 s: {judged}", f"e at 2.000 s: {judged}"]
