"""The largest forward that a zone makes is one that fleet takes: else the zone is stuck for ever."""

from __future__ import annotations

from random import Random

from eventstore.fold import At
from eventstore.ids import envelope, uuid7
from eventstore.log import FLEET, ZONES, Partition
from projections.fleet import FleetFold
from projections.forwarding import forward
from projections.zone import ZoneFold
from schemas.events import MAX_FORWARD_ITEMS, MAX_ITEMS, NodesJoined

NOW_MS = 1_700_000_000_000


def test_fleet_takes_a_full_forward() -> None:
    zones, fleet = ZoneFold(), FleetFold(1)
    state, rng = zones.empty(Partition(ZONES, 0)), Random(1)
    for number in range(5):
        at = At(Partition(ZONES, 0), number + 1, NOW_MS, NOW_MS)
        names = [f"n{number}-{i}" for i in range(MAX_ITEMS)]
        addresses = b"".join((0x0A000000 + number * MAX_ITEMS + i + 1).to_bytes(4, "big") for i in range(MAX_ITEMS))
        said = envelope("z1", "?test", uuid7(NOW_MS, rng))
        event = NodesJoined(said, "z1", names, [], [], addresses, b"", [], [])
        zones.evolve(state, zones.decide(state, event, at).change, at)
    members, mark = fleet.empty(Partition(FLEET, 0)), 0
    sizes: list[int] = []
    while (found := forward(state, 0, mark)) is not None:
        at = At(Partition(FLEET, 0), len(sizes) + 1, NOW_MS, NOW_MS)
        decision = fleet.decide(members, found, at)
        assert decision.outcome.code == "done", decision.outcome.reason
        fleet.evolve(members, decision.change, at)
        sizes.append(len(found.names))
        mark = members.marks[0]
    assert (max(sizes), sum(sizes)) == (MAX_FORWARD_ITEMS, 5 * MAX_ITEMS)
