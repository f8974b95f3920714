"""The DPUs of a DPUSet, grouped by what is observed of them.

Conditions of DPUs of one DPUSet differ only by the observation of each and, while there is none, by whether the DPU has
a DPU cluster. So the conditions of one DPU are those of its group. A DPUSet may have all DPUs of a fleet: each is read
once, and only some of them are named.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from projections.resources.blame import Blame
from projections.resources.conditions.condition import BLAMES_MAX
from projections.resources.conditions.world import World

NOT_PROVISIONED = "has not been provisioned yet"

_DELETING = (False, "Deleting", False)


class DpuGroup(NamedTuple):
    """DPUs with the same observation. Without one, `phase` is empty, and `is_allocated` tells whether they have a DPU
    cluster."""

    is_ready: bool
    phase: str
    is_allocated: bool
    keys: Sequence[str]

    def first(self, count: int) -> list[str]:
        """The first keys in order."""
        return heapq.nsmallest(count, self.keys)


def groups(key: str, world: World) -> list[DpuGroup]:
    """The DPUs of a DPUSet. Failed ones come first, then those in other phases, and ready ones last."""
    observed, rows, allocations = world.observed, world.state.objects.rows, world.state.allocations.rows
    found: dict[tuple[bool, str, bool], list[str]] = {}
    for dpu in world.derivation.dpus.wanted_by(key):
        row, seen = rows.get(dpu), observed.get(dpu)
        if row is not None and row.deleted_ms:
            group = _DELETING
        else:
            group = (False, "", dpu in allocations) if seen is None else (seen.is_ready, seen.phase or "Unknown", False)
        found.setdefault(group, []).append(dpu)
    ordered = sorted(found, key=lambda group: (group[0], not group[1], group[1] != "Error", *group[1:]))
    return [DpuGroup(*group, found[group]) for group in ordered]


def unready(key: str, world: World) -> tuple[list[Blame], int]:
    """The blames on the first DPUs of a DPUSet that are not ready, and the number of the others."""
    waiting = [group for group in groups(key, world) if not group.is_ready]
    blames = [*_first_blames(waiting, world)]
    return blames, sum(len(group.keys) for group in waiting) - len(blames)


def _first_blames(waiting: Sequence[DpuGroup], world: World) -> Iterator[Blame]:
    room = BLAMES_MAX
    for group in waiting:
        for dpu in group.first(room):
            blame = world.unready(dpu, NOT_PROVISIONED)
            if blame is not None:
                yield blame
                room -= 1
