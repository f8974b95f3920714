"""The plan of a change of objects, from the objects alone: both states are derived anew and nothing else is read.

It takes as long as the plane has objects, so it is computed in slices, from a copy of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from projections.resources.live_derivation import SLICE_KEYS, LiveDerivation
from projections.resources.plan import Step, plan
from projections.resources.state import Resource, ResourcesState, Rows


class Forecast:
    """The steps that follow from changes of rows. Call `advance` until it returns True, then read `steps`."""

    def __init__(self, rows: Mapping[str, Resource], change: Rows) -> None:
        self._is_empty = not change
        self._before = _Derived(rows)
        self._after = _Derived({**rows, **change})

    def advance(self) -> bool:
        """Compute the next slice. Returns whether all of them are computed."""
        return self._is_empty or (self._before.advance() and self._after.advance())

    def steps(self) -> list[Step]:
        """The steps, in order."""
        if self._is_empty:
            return []
        before, after = self._before, self._after
        return plan((before.state, before.live.derivation), (after.state, after.live.derivation))


class _Derived:
    """A state and its derivation, built from rows in slices."""

    def __init__(self, rows: Rows) -> None:
        self._rows = iter([(key, row) for key, row in rows.items() if row is not None])
        self.state = ResourcesState()
        self.live = LiveDerivation()

    def advance(self) -> bool:
        rows = dict(islice(self._rows, SLICE_KEYS))
        if rows:
            self.state.apply(rows)
            return False
        return self.live.advance(self.state)
