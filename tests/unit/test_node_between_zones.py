"""One incarnation of a node that goes to and fro between zones of two partitions, while what is forwarded and what is
delivered from fleet's outbox crosses: in the end it is in one zone, and fleet knows which."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from eventstore.log import partition_of
from projections.forwarding.fleet_to_zones import next_record
from projections.forwarding.zones_to_fleet import forward
from tests.support.fleet import PARTITIONS, Fleet
from tests.support.zones import ZoneLog

ZONES = tuple(
    next(zone for zone in map("z{}".format, range(99)) if partition_of(zone.encode(), PARTITIONS) == number)
    for number in (0, 1)
)
TURNS = 50
"""More than anything takes to come to rest."""


class Plane:
    """Two zones partitions, one zone in each, and fleet. Nothing goes from one to another but by a step."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.logs = ZoneLog(), ZoneLog()
        self.said = 0

    def join(self, number: int) -> None:
        self.said += 1
        labels = {"said": str(self.said)}
        self.logs[number].join("n", zone=ZONES[number], created_ms=5, uid="u", labels=labels)

    def forward(self, number: int) -> bool:
        event = forward(self.logs[number].state, number, self.fleet.state.marks.get(number, 0))
        return event is not None and self.fleet.apply(event).code == "done"

    def deliver(self, number: int) -> bool:
        log = self.logs[number]
        event = next_record(self.fleet.state, number, log.state.fleet_mark)
        return event is not None and log.append(event).code == "done"

    def rest(self) -> None:
        for _ in range(TURNS):
            moved = [step(number) for step in (self.forward, self.deliver) for number in (0, 1)]
            if not any(moved):
                return
        raise AssertionError("it never comes to rest")


steps = st.lists(st.tuples(st.sampled_from(["join", "forward", "deliver"]), st.sampled_from([0, 1])), max_size=14)
CROSSED = [("join", 0), ("forward", 0), ("join", 1), ("forward", 1), ("join", 0), ("deliver", 0)]


@given(steps)
@example(CROSSED)
def test_it_is_nowhere_twice_and_nowhere_lost(steps: list[tuple[str, int]]) -> None:
    plane = Plane()
    plane.join(0)
    for step, number in steps:
        getattr(plane, step)(number)
    plane.rest()
    (where,) = (ZONES[number] for number, log in enumerate(plane.logs) if "n" in log.state.nodes.rows)
    assert plane.fleet.state.members.rows["n"].zone == where
