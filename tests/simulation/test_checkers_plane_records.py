"""Records that the plane writes by itself, and bounded quantities: the largest allowed value, and one more."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from eventstore.log import FLEET_0, INSTALLS, Partition
from eventstore.replicas.beacons import Beacon
from eventstore.replicas.status import PartitionStatus
from schemas import events as e
from tests.simulation.checkers import Evidence, plane_records
from tests.simulation.checkers.evidence import REPLICAS_0
from tests.simulation.history import Invoked, ProcessUptime, Sample
from tests.support.written_run import ZONES_0, WrittenRun
from tests.support.written_steps import WrittenSteps

INSTALLS_0 = Partition(INSTALLS, 0)


@pytest.fixture
def log() -> WrittenRun:
    """A log whose zones partition has three records, the last of them at 10 s."""
    made = WrittenRun()
    made.write(ZONES_0, made.join("a"))
    made.now_s = 9.0
    made.write(ZONES_0, made.join("b"))
    return made


def status(position: int, saved: int = 0, *, digest: str = "", running: str = "") -> PartitionStatus:
    return PartitionStatus(ZONES_0, position, saved, digest, running, (), 1, "", 0, 0, 0)


def states(log: WrittenRun, at_s: float, *statuses: PartitionStatus, replica: str = "p0") -> None:
    """A replica's beacon at this time."""
    log.now_s = at_s - 1.0
    beacon = Beacon(replica=replica, roles=[], addresses={}, version="", supports={}, partitions=list(statuses))
    log.append(REPLICAS_0, msgspec.json.encode(beacon))


def reports(log: WrittenRun, at_s: float, *versions: int, zone: str = "z") -> None:
    """A relay's report at this time."""
    log.now_s = at_s - 1.0
    report = e.InstallsReported(log.stated(), zone, "r0", 1, 1, list(versions), [], [], [], [], {}, {})
    log.write(INSTALLS_0, report)


def test_a_reported_position_within_the_log_is_no_fault(log: WrittenRun) -> None:
    states(log, 9.5, status(2))
    states(log, 10.0, status(3))
    assert not list(plane_records.check_positions(log.evidence()))


def test_a_reported_position_beyond_the_log_is_found(log: WrittenRun) -> None:
    states(log, 9.5, status(3))
    assert list(plane_records.check_positions(log.evidence())) == ["p0 reported zones/0@3, which did not exist yet"]


def test_reported_digests_of_a_fresh_fold_are_no_fault(log: WrittenRun) -> None:
    second, third = log.evidence().steps[ZONES_0][1:]
    states(log, 11.0, status(3, 2, digest=second.digest.hex(), running=third.running.hex()))
    assert not list(plane_records.check_digests(log.evidence()))


def test_reported_digests_of_another_position_are_found(log: WrittenRun) -> None:
    second, third = log.evidence().steps[ZONES_0][1:]
    states(log, 11.0, status(3, 2, digest=third.digest.hex(), running=second.running.hex()))
    assert list(plane_records.check_digests(log.evidence())) == [
        "p0 reported zones/0@3 after other records than are in the log",
        "p0 reported zones/0@2 with other rows than a fresh fold has",
    ]


def test_digests_at_an_unknown_position_are_ignored(log: WrittenRun) -> None:
    states(log, 11.0, status(9, 9, digest="d", running="r"))
    assert not list(plane_records.check_digests(log.evidence()))


def versions(log: WrittenRun, *found: int) -> list[str]:
    """The report if a zone had these versions, one after the other."""
    run = log.evidence()
    run.tables = {"z": dict.fromkeys(found, b"")}
    return list(plane_records.check_versions(run))


def test_a_version_that_goes_back_or_exceeds_the_log_is_found(log: WrittenRun) -> None:
    log.write(FLEET_0, e.WritesFrozen(log.said(), "z"))
    assert not versions(log)
    assert not versions(log, 0, 1, 2)
    assert versions(log, 2, 1) == ["the version of z went back"]
    assert versions(log, 2, 3) == ["z has version 3, beyond the end of the log"]


def test_a_zone_of_an_empty_fleet_has_version_0() -> None:
    run = WrittenSteps().evidence()
    run.tables = {"y": {}, "z": {0: b""}}
    assert not list(plane_records.check_versions(run))
    run.tables = {"z": {1: b""}}
    assert list(plane_records.check_versions(run)) == ["z has version 1, beyond the end of the log"]


def test_a_report_of_a_future_version_is_found(log: WrittenRun) -> None:
    log.now_s = 19.0
    log.write(FLEET_0, e.WritesFrozen(log.said(), "z"))
    reports(log, 0.5)
    reports(log, 19.5, 1, 0)
    reports(log, 20.0, 1, 2)
    assert not versions(log)
    reports(log, 19.5, 2, 1)
    assert versions(log) == ["r0 reported version 2 of z, which did not exist yet"]


def rate_report(write: Callable[[WrittenRun, float], None], *counts: int) -> list[str]:
    """The report about windows that start 10.5 s apart, each with `count` records within 10 s."""
    log = WrittenRun()
    for window, count in enumerate(counts):
        for number in range(count):
            write(log, 100 + 10.5 * window + 10 * number / (count - 1))
    return list(plane_records.check_rates(log.evidence()))


def test_too_frequent_beacons_are_found() -> None:
    """Two per second, 30 % more for duplicates, and 8 more for a start."""
    assert not rate_report(states, 34, 34, 34)
    assert rate_report(states, 34, 35, 34) == ["p0 sent beacons 35 times in 10 s from 110.5 s on"]


def test_too_frequent_reports_are_found() -> None:
    """One per second by a relay for a zone, 30 % more for duplicates, and 8 more for a start."""
    assert not rate_report(reports, 21, 21, 21)
    assert rate_report(reports, 21, 22, 21) == ["r0 reported of z 22 times in 10 s from 110.5 s on"]


def test_rates_are_counted_by_replica_and_by_zone() -> None:
    log = WrittenRun()
    for number in range(34):
        for number_of_writer in range(3):
            states(log, 100 + number / 4, replica=f"p{number_of_writer}")
            reports(log, 100 + number / 2, zone=f"z{number_of_writer}")
    assert not list(plane_records.check_rates(log.evidence()))


def test_rates_are_not_checked_without_append_times() -> None:
    log = WrittenRun()
    for _ in range(100):
        states(log, 100.0)
    run = Evidence(log.history, log.records)
    assert not list(plane_records.check_rates(run))


def step_starts(idle: int, useful: int, *starts: str, failed: int = 0) -> list[str]:
    """The report about these numbers of step starts without and with effect, and of failed steps.

    `starts` are the names of started processes. A capital letter is a provisioner.
    """
    steps = WrittenSteps(
        *(ProcessUptime(instance, ("provisioner",) if instance.isupper() else (), 0.0, 9.0) for instance in starts)
    )
    for number in range(failed):
        failure = e.StepFailed(steps.log.stated(), "z", "d", "Rebooting", number, "transient", "it hung up")
        steps.add(failure, dpus={"d": None})
    for number in range(idle + useful):
        step = e.StepStarted(steps.log.stated(), "z", "d", "Rebooting", number, "p#1")
        if number < useful:
            steps.add(step, dpus={"d": None})
        else:
            steps.add(step)
    steps.add(e.WritesFrozen(steps.log.said(), "z"), FLEET_0)
    return list(plane_records.check_idle_records(steps.evidence()))


@pytest.mark.parametrize(
    ("limit", "useful", "starts"), [(11, 0, ""), (11, 0, "a"), (14, 0, "ab"), (16, 10, "a"), (22, 10, "abc")]
)
def test_too_many_records_without_effect_are_found(limit: int, useful: int, starts: str) -> None:
    """One per two records with effect, three per start of a process, and 8."""
    assert not step_starts(limit, useful, *starts)
    assert step_starts(limit + 1, useful, *starts) == [
        f"{limit + 1} StepStarted changed nothing, and {useful} changed something"
    ]


def test_a_failed_step_allows_one_more_start_without_effect() -> None:
    assert not step_starts(16 + 5, 10, "a", failed=5)
    assert step_starts(16 + 6, 10, "a", failed=5) == ["22 StepStarted changed nothing, and 10 changed something"]


def test_a_failed_step_allows_one_early_start_per_provisioner() -> None:
    assert not step_starts(17 + 3 * 5, 0, *"ABC", failed=5)
    assert step_starts(17 + 3 * 5 + 1, 0, *"ABC", failed=5) == [
        "33 StepStarted changed nothing, and 0 changed something"
    ]
    assert step_starts(17 + 2 * 5 + 1, 0, *"AAB", failed=5) == [
        "28 StepStarted changed nothing, and 0 changed something"
    ]


def test_commands_of_users_without_effect_are_no_fault() -> None:
    steps = WrittenSteps()
    for _ in range(100):
        steps.add(e.WritesFrozen(steps.log.said(), "z"), FLEET_0)
    assert not list(plane_records.check_idle_records(steps.evidence()))


def written(sends: int, copies: int, *, is_answered: bool = True) -> list[str]:
    """The report about a command by the numbers of its sends and of its copies in the log."""
    log = WrittenRun()
    event = log.join("a")
    for _ in range(sends):
        log.history.add(Invoked(0.0, "c", event.envelope.command_id, ZONES_0))
    for _ in range(copies):
        log.write(ZONES_0, event)
    if is_answered:
        log.tell(event, 1)
    return [fault.removeprefix(event.envelope.command_id) for fault in plane_records.check_retries(log.evidence())]


def test_more_copies_of_a_command_than_sends_are_found() -> None:
    """A log may duplicate each attempt."""
    assert not written(1, 2)
    assert not written(3, 6)
    assert written(1, 3) == [" was sent 1 times and is in the log 3 times"]
    assert written(3, 7) == [" was sent 3 times and is in the log 7 times"]
    assert not written(0, 3), "the sends are not recorded"
    assert not written(1, 3, is_answered=False), "the command is not answered yet"


def test_the_highest_value_above_a_bound_is_reported() -> None:
    """The report names the highest value, once, with the time at which it was first reached."""

    def faults(*values: float) -> list[str]:
        log = WrittenRun()
        for at_s, value in enumerate(values):
            log.history.add(Sample(at_s, "p0", "open files", value))
            log.history.add(Sample(at_s, "p0", "tasks", 400))
        return list(plane_records.check_bounds(log.evidence()))

    assert not faults(1_000, 3)
    assert faults(1_001, 5_000, 5_000, 3) == ["p0 had 5000 open files at 1.0 s; the bound is 1000"]
