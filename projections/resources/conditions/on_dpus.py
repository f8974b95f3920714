"""The condition that every DPU has applied its network document, as far as it concerns an object."""

from __future__ import annotations

from collections.abc import Iterator

from projections.resources.blame import Blame
from projections.resources.conditions.world import World
from projections.resources.kinds import short_name


def unready_on_dpus(key: str, world: World) -> Iterator[Blame]:
    """The blame on a chain or interface that is not ready on each of its DPUs. One that is on no DPU has none."""
    seen = world.observed.get(key)
    if seen is not None and not seen.is_ready:
        yield Blame(key, f"{short_name(key)} is {seen.message}")
