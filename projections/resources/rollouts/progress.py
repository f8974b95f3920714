"""How far a rollout is, for people: its state, one sentence, and counts of DPUs."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Literal, NamedTuple

from projections.resources.kinds import short_name
from projections.resources.rollouts.advance import is_image_ready, is_in_force
from projections.resources.rollouts.index import SetIndex
from projections.resources.rollouts.rows import ON_DELETE, Rollout
from projections.resources.rollouts.status import Status
from projections.resources.rollouts.strategy import annotation_faults
from projections.resources.state import ResourcesState, object_id
from projections.sizes import scaled_max_unavailable

State = Literal["complete", "progressing", "baking", "paused", "held", "waiting"]
_NAMES_SHOWN = 3


class Progress(NamedTuple):
    """The rollout of a DPUSet. `message` is empty if it is complete."""

    key: str
    row: Rollout
    dpus: SetIndex
    state: State
    message: str

    @property
    def total(self) -> int:
        return len(self.dpus.members)

    @property
    def max_unavailable(self) -> int:
        return scaled_max_unavailable(self.row.max_unavailable, self.total)

    def of(self, *statuses: Status) -> int:
        """The number of DPUs with one of these statuses."""
        return sum(self.dpus.counts[status] for status in statuses)

    def names(self, status: Status) -> Sequence[str]:
        """The first DPUs with a status, by key."""
        found = (key for key, member in self.dpus.members.items() if member.status == status)
        return heapq.nsmallest(_NAMES_SHOWN, found)


def progress(state: ResourcesState, key: str) -> Progress | None:
    """The rollout of a DPUSet; None if it has none."""
    row = state.rollouts.rows.get(key)
    if row is None:
        return None
    index = state.rollout_index.of(key)
    found = Progress(key, row, index, "complete", "")
    return found._replace(state=_state(state, found), message=_message(state, found))


def fault_of_annotations(state: ResourcesState, key: str) -> str:
    """The first fault of the annotations of a DPUSet or DPUDeployment, which has no plan until they are mended."""
    row = state.objects.rows.get(key)
    return next(annotation_faults(row.annotations), "") if row is not None else ""


def _state(state: ResourcesState, found: Progress) -> State:
    row = found.row
    if not is_in_force(state, found.key, row):
        return "progressing"
    if found.of(Status.DONE) == found.total and not row.baked_ms:
        return "complete"
    if row.held:
        return "held"
    if row.paused_by or row.is_paused:
        return "paused"
    if found.dpus.outdated and row.strategy == ON_DELETE:
        return "waiting"
    return "baking" if row.baked_ms else "progressing"


def _message(state: ResourcesState, found: Progress) -> str:
    row, name = found.row, short_name(found.key)
    word = _state(state, found)
    if word == "complete":
        return ""
    if not is_in_force(state, found.key, row):
        fault = fault_of_annotations(state, row.deployment or found.key)
        if fault:
            return f"{name} is not rolled out: {fault}"
        return f"the plan of {name} is being derived from its changed objects"
    counts = f"{found.of(Status.DONE)} of {found.total} DPUs have the wanted image"
    if word == "held":
        ways = f"'dpuplane rollout resume {_argument(found.key)}' goes on, 'dpuplane rollout undo' goes back"
        return f"{name} is held in {_wave(row)}: {row.held}; {ways}"
    if word == "paused":
        by = f"paused by {row.paused_by}" if row.paused_by else "paused by its annotation dpuplane.io/rollout-paused"
        return f"{name} is {by}: {counts}"
    if word == "waiting":
        return f"{found.dpus.outdated} DPUs of {name} keep their image until somebody deletes them (strategy OnDelete)"
    if not is_image_ready(state, found.key, row) and found.dpus.outdated:
        return f"{name} waits for its image: {counts}"
    if word == "baking":
        return f"{name} bakes {_wave(row)}: {counts}"
    return f"{name} is in {_wave(row)}: {counts}{_under_way(found)}"


def _wave(row: Rollout) -> str:
    size = row.waves[min(row.wave, len(row.waves) - 1)]
    return f"wave {min(row.wave, len(row.waves) - 1) + 1} of {len(row.waves)} ({size})"


def _under_way(found: Progress) -> str:
    parts = []
    for word, status in (("being updated", Status.UPDATING), ("failed", Status.FAILED)):
        if count := found.of(status):
            names = ", ".join(object_id(key).name for key in found.names(status))
            parts.append(f"{count} {word} ({names}{', ...' if count > _NAMES_SHOWN else ''})")
    return "".join(f", {part}" for part in parts)


def _argument(key: str) -> str:
    at = object_id(key)
    return f"dpuset/{at.name} -n {at.namespace}"
