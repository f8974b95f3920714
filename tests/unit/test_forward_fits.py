"""Fleet accepts the largest forward of a zone: otherwise the zone would be stuck for ever."""

from __future__ import annotations

from random import Random

from eventstore.folding.fold import RecordMetadata
from eventstore.ids import envelope, internal_envelope, uuid7
from eventstore.log import FLEET, ZONES, Partition
from projections.fleet.fold import FleetFold, FleetState
from projections.forwarding.zones_to_fleet import forward
from projections.zones.fold import ZonesFold, ZonesState
from schemas.events import MAX_FORWARD_ITEMS, MAX_ITEMS, NodesJoined, NodesSuperseded

NOW_MS = 1_700_000_000_000


def test_fleet_accepts_a_full_forward() -> None:
    zones = _joined(5)
    sizes = _forward_all(zones, FleetFold(1).initial_state(Partition(FLEET, 0)))
    assert (max(sizes), sum(sizes)) == (MAX_FORWARD_ITEMS, 5 * MAX_ITEMS)


def test_no_record_removes_more_nodes_of_a_zone_than_fit_in_a_forward() -> None:
    """Fleet never supersedes so many nodes at once, but a foreign client can append such a record to its topic."""
    zones, members = _joined(3), FleetFold(1).initial_state(Partition(FLEET, 0))
    _forward_all(zones, members)
    names = list(zones.nodes.rows)
    for count, code in ((MAX_FORWARD_ITEMS + 1, "refused"), (MAX_FORWARD_ITEMS, "done")):
        at, mark = RecordMetadata(Partition(ZONES, 0), 10 + count, NOW_MS, NOW_MS), zones.fleet_mark
        uids = [zones.nodes.rows[name].uid for name in names[:count]]
        event = NodesSuperseded(
            internal_envelope("z1", "?", NOW_MS),
            mark,
            mark + 1,
            ["z1"] * count,
            names[:count],
            [NOW_MS] * count,
            uids,
            at.offset,
        )
        decision = ZonesFold().decide(zones, event, at)
        assert decision.outcome.code == code, decision.outcome.reason
        ZonesFold().evolve(zones, decision.change, at)
        assert zones.fleet_mark == mark + 1, "a refused record must also advance the mark"
    assert _forward_all(zones, members) == [MAX_FORWARD_ITEMS]


def _joined(records: int) -> ZonesState:
    """A zones partition after this number of full records of joins."""
    zones = ZonesFold()
    state, rng = zones.initial_state(Partition(ZONES, 0)), Random(1)
    for number in range(records):
        at = RecordMetadata(Partition(ZONES, 0), number + 1, NOW_MS, NOW_MS)
        names = [f"n{number}-{i}" for i in range(MAX_ITEMS)]
        addresses = b"".join((0x0A000000 + number * MAX_ITEMS + i + 1).to_bytes(4, "big") for i in range(MAX_ITEMS))
        header = envelope("z1", "?test", uuid7(NOW_MS, rng))
        event = NodesJoined(header, "z1", names, [], [], addresses, b"", [], [])
        zones.evolve(state, zones.decide(state, event, at).change, at)
    return state


def _forward_all(zones: ZonesState, members: FleetState) -> list[int]:
    """Forward all missing nodes to fleet. Returns the number of nodes of each forward."""
    fleet = FleetFold(1)
    sizes: list[int] = []
    while (found := forward(zones, 0, members.marks.get(0, 0))) is not None:
        at = RecordMetadata(Partition(FLEET, 0), 1 + members.marks.get(0, 0), NOW_MS, NOW_MS)
        decision = fleet.decide(members, found, at)
        assert decision.outcome.code in ("done", "held"), decision.outcome.reason
        fleet.evolve(members, decision.change, at)
        sizes.append(len(found.names))
    return sizes
