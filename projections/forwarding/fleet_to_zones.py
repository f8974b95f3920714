"""Deliveries of fleet to a zones partition: the next entry of fleet's outbox for it, as a record.

A delivery is a function of fleet's state and of the partition's mark for fleet, the offset up to which it has accepted
fleet's deliveries. So two forwarders build the same record, and the partition takes the first.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter

from projections.fleet.state import FleetState
from schemas.events import Envelope, NodesSuperseded, ZoneLimitsSet

ACTOR = "fleet"


def next_record(state: FleetState, zone_partition: int, mark: int) -> NodesSuperseded | ZoneLimitsSet | None:
    """The next record for a zones partition whose mark for fleet is `mark`; None if its outbox has none."""
    queue = state.outbox_queues.get(zone_partition, [])
    place = bisect_left(queue, mark, key=attrgetter("offset"))
    if place == len(queue):
        return None
    entry = queue[place]
    envelope = Envelope("", entry.zones[0], ACTOR, entry.time_ms)
    if entry.limits is not None:
        installs, nodes, networks, keys, attempts = entry.limits
        end = entry.offset + 1
        return ZoneLimitsSet(
            envelope, mark, end, entry.zones[0], installs, nodes, list(networks), list(keys), [*attempts]
        )
    zones, names, created_ms, uids = entry.zones, entry.names, entry.created_ms, entry.uids
    return NodesSuperseded(envelope, mark, entry.offset + 1, zones, names, created_ms, uids, entry.mark)
