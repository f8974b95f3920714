"""Questions about the folds that more than one caller asks: where a name is, whether fleet has heard."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from projections.fleet_state import FleetState
from projections.zone_state import ZoneState


def is_forwarded(zone: ZoneState, fleet: FleetState, partition_number: int, offset: int) -> bool:
    """Whether fleet has taken all that a zones partition accepted below `offset`, which the zone has folded."""
    mark = fleet.marks.get(partition_number, 0)
    if mark >= offset:
        return True
    waiting = zone.outgoing
    first = bisect_left(waiting, mark)
    return first == len(waiting) or waiting[first] >= offset


def zone_of_node(name: str, states: Iterable[ZoneState]) -> str | None:
    """The zone of a node's newest incarnation; None if it is nowhere."""
    found = (state.nodes.rows.get(name) for state in states)
    newest = max(filter(None, found), key=lambda node: (node.created_ms, node.uid), default=None)
    return newest.zone if newest is not None else None


def zones_of_dpu(name: str, states: Iterable[ZoneState]) -> list[str]:
    """The zones that have a DPU of this name, sorted: one partition has one at most."""
    found = (state.dpus.rows.get(name) for state in states)
    return sorted(dpu.zone for dpu in found if dpu is not None)
