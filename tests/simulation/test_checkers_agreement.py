"""Agreement of zones and fleet: which cases of a node that left another partition are faults, and which are not."""

from __future__ import annotations

import pytest

from deploy.composition.topics import TOPICS
from eventstore.log import FLEET_0, ZONES, Partition, partition_of
from projections.forwarding.zones_to_fleet import forward
from projections.zones.state import ZonesState
from schemas import events as e
from tests.simulation.checkers import agreement
from tests.simulation.checkers.evidence import Evidence
from tests.support.written_run import WrittenRun

COUNT = 2
A, B = (
    next(zone for zone in map("z{}".format, range(99)) if partition_of(zone.encode(), COUNT) == number)
    for number in range(COUNT)
)


class TwoZones(WrittenRun):
    """A zone in each of two partitions, each forwarded separately. No record of fleet's outbox is delivered."""

    def __init__(self) -> None:
        super().__init__()
        created = self.records[FLEET_0][0]
        for partition in TOPICS.partitions(ZONES, COUNT):
            self.records[partition] = [created]
            self._appended_s[partition, 0] = 0.0

    def state(self, zone: str) -> ZonesState:
        state: ZonesState = self.evidence().folded[self.partition_of_zone(zone)].state
        return state

    def partition_of_zone(self, zone: str) -> Partition:
        return Partition(ZONES, partition_of(zone.encode(), COUNT))

    def joined(self, zone: str, created_ms: int) -> None:
        envelope = self.said(zone)
        self.write(
            self.partition_of_zone(zone), e.NodesJoined(envelope, zone, ["n"], [created_ms], ["u"], b"", b"", [], [])
        )

    def left(self, zone: str) -> None:
        self.write(self.partition_of_zone(zone), e.NodesLeft(self.said(zone), zone, ["n"], [], [], False, b""))

    def forwarded(self, zone: str) -> None:
        number = self.partition_of_zone(zone).number
        mark = self.evidence().fleet.marks.get(number, 0)
        event = forward(self.state(zone), number, mark)
        assert event is not None
        self.write(FLEET_0, event)


def faults(run: Evidence) -> list[str]:
    return list(agreement.check_ended(run))


def test_an_older_incarnation_elsewhere_is_a_fault_once_the_leave_is_forwarded() -> None:
    log = TwoZones()
    log.joined(A, 5)
    log.forwarded(A)
    log.joined(B, 6)
    log.left(B)
    assert not faults(log.evidence()), "the leave is not forwarded yet"
    log.forwarded(B)
    assert faults(log.evidence()) == [f"node n is in {A}, but left {B} as incarnation 6"]


@pytest.mark.parametrize("created_ms", [5, 7])
def test_a_newer_or_later_join_in_another_zone_is_no_fault(created_ms: int) -> None:
    """The incarnation in the other zone is equally new and joined later, or is newer."""
    log = TwoZones()
    log.joined(B, 5)
    log.joined(A, created_ms)
    log.left(B)
    log.forwarded(B)
    log.forwarded(A)
    assert not faults(log.evidence())


def test_an_older_incarnation_that_joined_before_the_leave_is_a_fault() -> None:
    for is_after in (False, True):
        log = TwoZones()
        log.joined(B, 6)
        if not is_after:
            log.joined(A, 5)
        log.left(B)
        log.forwarded(B)
        if is_after:
            log.joined(A, 5)
        log.forwarded(A)
        assert bool(faults(log.evidence())) != is_after


def test_a_leave_that_a_rejoin_revoked_is_no_fault_elsewhere() -> None:
    log = TwoZones()
    log.joined(A, 5)
    log.joined(B, 6)
    log.left(B)
    log.forwarded(B)
    log.joined(B, 6)
    assert not faults(log.evidence())


def test_verify_reports_only_differences() -> None:
    log = TwoZones()
    log.joined(A, 5)
    assert list(agreement.check_verified(log.evidence())) == ["in transit between zones and fleet: 1 nodes"]
    log.forwarded(A)
    assert not list(agreement.check_verified(log.evidence()))
    run = log.evidence()
    mark = run.fleet.marks[log.partition_of_zone(A).number]
    ghost = e.MembershipChanged(
        log.stated(),
        log.partition_of_zone(A).number,
        mark,
        mark + 1,
        1,
        [A],
        ["ghost"],
        [0],
        [1],
        ["u"],
        b"",
        b"",
        [],
        [],
        [],
        [],
    )
    log.write(FLEET_0, ghost)
    assert list(agreement.check_verified(log.evidence())) == [
        f"1 node that fleet has in zone {A}, and the zone does not have: ghost"
    ]
