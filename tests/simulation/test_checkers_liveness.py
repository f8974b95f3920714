"""Unfinished work at rest, and missing alarms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from eventstore.log import FLEET_0, ZONES, Partition
from schemas import events as e
from tests.simulation.checkers import Evidence, liveness
from tests.simulation.history import Alarm, FaultInjected, FinalPosition, ProcessUptime
from tests.support.written_run import ZONES_0, WrittenRun

ZONES_1 = Partition(ZONES, 1)


def joined(log: WrittenRun, name: str, *, taken: bool = True) -> tuple[e.NodesJoined, int]:
    """A join and the position after it. With `taken`, fleet took it and the zone got the acknowledgement."""
    event = log.join(name)
    end = log.write(ZONES_0, event) + 1
    if taken:
        log.write(FLEET_0, log.forward(event, end - 1 if end > 2 else 0, end))
        log.write(ZONES_0, e.OutboxAcknowledged(log.stated(), end))
    return event, end


def test_unforwarded_changes_are_found() -> None:
    log = WrittenRun()
    joined(log, "a")
    assert not list(liveness.check_forwarded(log.evidence()))
    for name in "bcde":
        joined(log, name, taken=False)
    assert list(liveness.check_forwarded(log.evidence())) == [
        "zones/0 has not forwarded its changes at [3, 4, 5]",
    ]


def limited(log: WrittenRun, installs: int) -> int:
    """Set limits of z in fleet; returns the offset."""
    return log.write(FLEET_0, e.ZoneUpdated(log.said(), "z", False, {}, installs, 2))


def test_undelivered_records_of_fleet_are_found() -> None:
    log = WrittenRun()
    first = limited(log, 1)
    assert list(liveness.check_forwarded(log.evidence())) == [
        "fleet has not delivered to zones/0 the records caused by [1]"
    ]
    log.write(ZONES_0, e.ZoneLimitsSet(log.stated(), 0, first, "y", 1, 2))
    assert list(liveness.check_forwarded(log.evidence())), "taken up to the record, but without it"
    log.write(ZONES_0, e.ZoneLimitsSet(log.stated(), first, first + 1, "z", 1, 2))
    assert not list(liveness.check_forwarded(log.evidence()))
    for installs in range(2, 6):
        limited(log, installs)
    assert list(liveness.check_forwarded(log.evidence())) == [
        "fleet has not delivered to zones/0 the records caused by [2, 3, 4]"
    ]


def test_a_different_node_in_fleet_is_found() -> None:
    log = WrittenRun()
    joined(log, "a")
    assert not list(liveness.check_membership(log.evidence()))
    run = log.evidence()
    run.fleet.members.rows["a"] = replace(run.fleet.members.rows["a"], address4=1)
    (fault,) = liveness.check_membership(run)
    assert fault.startswith("node a: zones say ('z', ")


def test_a_node_only_in_its_zone_or_only_in_fleet_is_found() -> None:
    log = WrittenRun()
    joined(log, "a", taken=False)
    (fault,) = liveness.check_membership(log.evidence())
    assert fault.endswith("fleet says None")
    log = WrittenRun()
    log.write(FLEET_0, log.forward(log.join("a"), 0, 2))
    (fault,) = liveness.check_membership(log.evidence())
    assert fault.startswith("node a: zones say None, fleet says ('z', ")


def test_a_held_member_may_be_absent_from_its_zone() -> None:
    log = WrittenRun()
    log.write(FLEET_0, log.forward(log.join("a"), 0, 2))
    run = log.evidence()
    run.fleet.members.rows["a"] = replace(run.fleet.members.rows["a"], held=True)
    assert not list(liveness.check_membership(run))


def test_a_node_in_two_zones_is_found() -> None:
    log = WrittenRun()
    joined(log, "a")
    run = log.evidence()
    run.folded[ZONES_1] = run.folded[ZONES_0]
    assert list(liveness.check_membership(run)) == ["node a is in z and in z"]


def test_different_limits_in_a_zone_are_found() -> None:
    log = WrittenRun()
    log.write(FLEET_0, e.ZoneUpdated(log.said(), "y", True, {"site": "x"}, -1, -1))
    stated = limited(log, 1)
    assert list(liveness.check_limits(log.evidence())) == ["z has limits (0, 0), and fleet has (1, 2)"]
    log.write(ZONES_0, e.ZoneLimitsSet(log.stated(), 0, stated + 1, "z", 1, 2))
    assert not list(liveness.check_limits(log.evidence()))


def request(log: WrittenRun, what: str) -> None:
    log.write(ZONES_0, e.LifecycleRequested(log.said(), "z", "d", what, "bf-1" if what == "provision" else ""))


def test_an_open_or_running_step_is_found() -> None:
    log = WrittenRun()
    log.write(ZONES_0, e.DpuRegistered(log.said(), "z", "d", "n", "s", "b"))
    assert not list(liveness.check_idle(log.evidence()))
    request(log, "provision")
    row = log.evidence().folded[ZONES_0].state.dpus.rows["d"]
    where = "d is at Node Effect"
    assert list(liveness.check_idle(log.evidence())) == [f"{where}, open, attempt {row.attempt}: {row.message}"]
    request(log, "pause")
    assert not list(liveness.check_idle(log.evidence())), "a paused DPU may wait"
    request(log, "resume")
    log.write(ZONES_0, e.StepStarted(log.stated(), "z", "d", "Node Effect", row.attempt + 1, "p#1"))
    (fault,) = liveness.check_idle(log.evidence())
    assert fault.startswith(f"{where}, running, attempt {row.attempt + 1}: ")
    request(log, "pause")
    assert list(liveness.check_idle(log.evidence())), "a pause does not stop a running attempt"


def test_a_lagging_or_halted_replica_is_found() -> None:
    log = WrittenRun()
    joined(log, "a")
    joined(log, "b")
    log.history.add(FinalPosition("p0", ZONES_0, 5, b"", ""))
    log.history.add(FinalPosition("p0", Partition("decisions", 0), 9, b"", ""))
    assert not list(liveness.check_replicas(log.evidence()))
    log.history.add(FinalPosition("p1", ZONES_0, 4, b"", ""))
    log.history.add(FinalPosition("p2", ZONES_0, 4, b"", "a newer fold"))
    assert list(liveness.check_replicas(log.evidence())) == [
        "p1 is at 4 of zones/0, the log at 5",
        "p2 has halted zones/0: a newer fold",
    ]


def alarms_missing(*entries: Any, taken_s: float | None = None, end_s: float = 200.0) -> list[str]:
    """The report about a join at 100 s that fleet takes at `taken_s`, or never."""
    log = WrittenRun()
    for each in entries:
        log.history.add(each)
    log.now_s = 99.0
    event, end = joined(log, "a", taken=False)
    if taken_s is not None:
        log.now_s = taken_s - 1.0
        log.write(FLEET_0, log.forward(event, 0, end))
    log.now_s = end_s
    return list(liveness.check_alarms(log.evidence()))


def expected(fault_free_s: int) -> list[str]:
    return [f"zones/0@1 reached fleet after {fault_free_s} fault-free s, without an alarm"]


def test_a_change_reaches_fleet_within_30_s() -> None:
    assert not alarms_missing(end_s=130.0), "30 s are allowed"
    assert not alarms_missing(taken_s=130.0)
    assert alarms_missing(end_s=131.0) == expected(31)
    assert alarms_missing(taken_s=140.0) == expected(40)


def test_an_alarm_of_the_partition_is_enough() -> None:
    assert not alarms_missing(Alarm(120.0, "p0", "zones/0", True))
    assert alarms_missing(Alarm(120.0, "p0", "zones/0", False)) == expected(100), "the alarm ended"
    assert alarms_missing(Alarm(120.0, "p0", "zones/1", True)) == expected(100), "the alarm of another partition"


def fault(from_s: float, to_s: float) -> FaultInjected:
    return FaultInjected("crash", "p0", from_s, to_s)


@pytest.mark.parametrize(
    ("entries", "fault_free_s"),
    [
        pytest.param([fault(20, 50)], 100, id="before the join"),
        pytest.param([fault(300, 310)], 100, id="after the end"),
        pytest.param([fault(120, 130)], 70, id="a fault and 20 s of aftermath"),
        pytest.param([fault(50, 90)], 90, id="the aftermath only"),
        pytest.param([fault(190, 250)], 90, id="until the end"),
        pytest.param([fault(110, 111), fault(140, 141)], 58, id="two separate faults"),
        pytest.param([fault(110, 115), fault(130, 131)], 59, id="a fault in the aftermath of another"),
        pytest.param([fault(120, 121), fault(110, 150)], 40, id="a fault within another"),
        pytest.param([fault(101, 102), fault(125, 126), fault(130, 131), fault(160, 161)], 32, id="four"),
        pytest.param([ProcessUptime("p0", (), 0, 150)], 80, id="a process that died"),
        pytest.param([ProcessUptime("p0", (), 0, 200)], 100, id="a process that was up until the end"),
        pytest.param([ProcessUptime("p0", (), 0, 150), fault(110, 111)], 59, id="a process that died, and a fault"),
        pytest.param(
            [ProcessUptime("p0", ("api",), 0, 101), ProcessUptime("p0", ("api",), 140, 300)], 41, id="no API process"
        ),
        pytest.param(
            [ProcessUptime("p0", ("api",), 0, 101), ProcessUptime("p1", ("api",), 99, 300)],
            80,
            id="another API process",
        ),
        pytest.param(
            [ProcessUptime("p0", ("relay",), 0, 101), ProcessUptime("p0", ("relay",), 140, 300)],
            80,
            id="another role",
        ),
    ],
)
def test_only_fault_free_time_counts(entries: list[Any], fault_free_s: int) -> None:
    assert alarms_missing(*entries) == expected(fault_free_s)


def test_the_first_late_change_of_a_partition_is_reported() -> None:
    log = WrittenRun()
    log.now_s = 99.0
    for name in "abc":
        joined(log, name, taken=False)
    one, two, _ = (log.join(name) for name in "abc")
    log.write(FLEET_0, log.forward(one, 0, 2))
    log.now_s = 149.0
    log.write(FLEET_0, log.forward(two, 2, 3))
    log.now_s = 200.0
    assert list(liveness.check_alarms(log.evidence())) == [
        "zones/0@2 reached fleet after 49 fault-free s, without an alarm"
    ]


def test_records_that_are_not_forwarded_need_no_alarm() -> None:
    log = WrittenRun()
    log.write(ZONES_0, e.DpuRegistered(log.said(), "z", "d", "n", "s", "b"))
    log.now_s = 200.0
    assert not list(liveness.check_alarms(log.evidence()))


def test_every_zones_partition_is_checked_if_the_end_is_known() -> None:
    log = WrittenRun()
    joined(log, "a", taken=False)
    log.now_s = 200.0

    def faults(change: Callable[[Evidence], None]) -> list[str]:
        run = log.evidence()
        change(run)
        return [fault.partition("@")[0] for fault in liveness.check_alarms(run)]

    def twice(run: Evidence) -> None:
        run.steps[ZONES_1] = run.steps[ZONES_0]
        run.appended_s = lambda *_: 1.0  # type: ignore[method-assign]

    assert faults(twice) == ["zones/0", "zones/1"]
    assert not faults(lambda run: setattr(run, "end_s", None))
