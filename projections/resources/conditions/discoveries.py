"""The condition of a DPUDiscovery."""

from __future__ import annotations

from projections.resources.blame import Blame
from projections.resources.conditions.condition import READY, Condition, condition
from projections.resources.conditions.world import World
from projections.resources.discovery import search_of
from projections.resources.kinds import short_name


def of_discovery(key: str, world: World) -> tuple[Condition, ...]:
    """A DPUDiscovery: its last search could use each DPU that answered."""
    row, seen = world.stated(key), world.observed.get(key)
    if row is None:
        return ()
    fault = search_of(row)
    if isinstance(fault, str):
        text = f"{short_name(key)} is not searched for, because its spec has a fault: {fault}"
        return (condition(READY, [Blame(key, text)], "Error"),)
    if seen is None:
        return (condition(READY, [Blame(key, f"{short_name(key)} has not been searched for yet", is_unknown=True)]),)
    blames = () if seen.is_ready else (Blame(key, f"{short_name(key)} is not ready: {seen.message}"),)
    return (condition(READY, blames, "Error" if blames and seen.phase == "Scanned" else "Pending"),)
