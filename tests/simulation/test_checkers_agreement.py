"""Agreement of zones and fleet: reported and ignored cases of a node that left another partition."""

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
        state: ZonesState = self.evidence().folded[self.home(zone)].state
        return state

    def home(self, zone: str) -> Partition:
        return Partition(ZONES, partition_of(zone.encode(), COUNT))

    def joined(self, zone: str, created_ms: int) -> None:
        said = self.said(zone)
        self.write(self.home(zone), e.NodesJoined(said, zone, ["n"], [created_ms], ["u"], b"", b"", [], []))

    def left(self, zone: str) -> None:
        self.write(self.home(zone), e.NodesLeft(self.said(zone), zone, ["n"], [], [], False, b""))

    def told(self, zone: str) -> None:
        number = self.home(zone).number
        mark = self.evidence().fleet.marks.get(number, 0)
        event = forward(self.state(zone), number, mark)
        assert event is not None
        self.write(FLEET_0, event)


def ended(run: Evidence) -> list[str]:
    return list(agreement.check_ended(run))


def test_a_node_that_left_as_something_newer_is_told_where_it_still_is() -> None:
    log = TwoZones()
    log.joined(A, 5)
    log.told(A)
    log.joined(B, 6)
    log.left(B)
    assert not ended(log.evidence()), "fleet has not heard of it"
    log.told(B)
    assert ended(log.evidence()) == [f"node n is in {A}, but left {B} as incarnation 6"]


@pytest.mark.parametrize("created_ms", [5, 7])
def test_a_node_that_is_elsewhere_by_right_is_left_alone(created_ms: int) -> None:
    """The node is as new there and was stated later, or it is newer."""
    log = TwoZones()
    log.joined(B, 5)
    log.joined(A, created_ms)
    log.left(B)
    log.told(B)
    log.told(A)
    assert not ended(log.evidence())


def test_a_join_after_the_leave_is_left_alone_and_one_before_it_is_not() -> None:
    for is_after in (False, True):
        log = TwoZones()
        log.joined(B, 6)
        if not is_after:
            log.joined(A, 5)
        log.left(B)
        log.told(B)
        if is_after:
            log.joined(A, 5)
        log.told(A)
        assert bool(ended(log.evidence())) != is_after


def test_a_node_that_came_back_to_where_it_left_ends_nothing_elsewhere() -> None:
    log = TwoZones()
    log.joined(A, 5)
    log.joined(B, 6)
    log.left(B)
    log.told(B)
    log.joined(B, 6)
    assert not ended(log.evidence())


def test_verify_has_nothing_to_say_of_what_agrees_and_names_what_does_not() -> None:
    log = TwoZones()
    log.joined(A, 5)
    assert list(agreement.check_verified(log.evidence())) == ["in transit between zones and fleet: 1 nodes"]
    log.told(A)
    assert not list(agreement.check_verified(log.evidence()))
    run = log.evidence()
    mark = run.fleet.marks[log.home(A).number]
    ghost = e.MembershipChanged(
        log.stated(), log.home(A).number, mark, mark + 1, 1, [A], ["ghost"], [0], [1], ["u"], b"", b"", [], [], [], []
    )
    log.write(FLEET_0, ghost)
    assert list(agreement.check_verified(log.evidence())) == [
        f"1 node that fleet has in zone {A}, and the zone does not have: ghost"
    ]
