"""The plan of a change of objects, from the objects alone: their derivation is made anew, and updated with the change.

It takes as long as the plane has objects, so it is computed in slices, from a copy of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from projections.resources.derivation import Derivation
from projections.resources.live_derivation import SLICE_KEYS
from projections.resources.plan import PlannedObjects, Planning, PlanStep
from projections.resources.rollouts.plan_waves import PlanWaves
from projections.resources.state import Resource, ResourcesChange, ResourcesState, Rows

SLICE_STEPS = 500
"""Number of objects that are compared at once: about two milliseconds."""

_NOTHING_DECIDED = ResourcesChange()


class Forecast:
    """The steps that follow from changes of rows. Call `advance` until it returns True, then read `steps`."""

    def __init__(self, rows: Mapping[str, Resource], change: Rows, decided: ResourcesChange = _NOTHING_DECIDED) -> None:
        """`decided` are the rows of rollouts and allocations, and the observations of images. Wanted objects depend on
        them, too."""
        self._steps: list[PlanStep] = []
        self._work = self._planning(rows, change, decided) if change else iter(())

    def advance(self) -> bool:
        """Compute the next slice. Returns whether all of them are computed."""
        for _ in self._work:
            return False
        return True

    def steps(self) -> list[PlanStep]:
        """The steps, in order."""
        return self._steps

    def _planning(self, rows: Mapping[str, Resource], change: Rows, decided: ResourcesChange) -> Iterator[None]:
        state, derivation = ResourcesState(), Derivation()
        state.roll_out(decided)
        state.observe(decided.observed)
        pending = iter([*rows.items()])
        while some := dict(islice(pending, SLICE_KEYS)):
            state.apply(some)
            yield
            yield from derivation.updating(state, some, {})
        before = PlannedObjects(state, derivation)
        yield
        changed: dict[str, None] = {}
        state.apply(change)
        yield from derivation.updating(state, change, changed)
        after = PlannedObjects(state, derivation)
        yield
        planning = Planning(before, after, derivation)
        dpus = before.keys if planning.has_edits else ()
        keys = iter(sorted({*changed, *dpus, *before.others, *after.others}))
        while part := [*islice(keys, SLICE_STEPS)]:
            planning.compare(part)
            yield
        waves = PlanWaves(state, derivation, planning.steps())
        while not waves.advance():
            yield
        self._steps = waves.steps
