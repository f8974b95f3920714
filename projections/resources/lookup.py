"""Reads of other objects while one object is derived, which then depends on every object that was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from projections.resources.clusters import selected_clusters
from projections.resources.operator_settings import OperatorSettings, settings_of
from projections.resources.specs import JSON
from projections.resources.state import ObjectId, Resource, ResourcesState


def collection(source: str, kind: str) -> str:
    """The key that stands for all observed objects of a kind."""
    return ObjectId(source, kind, "", "").key


class Lookup:
    """Objects as they are wanted, else as they are stated. `read` has the keys of the objects that were asked for.

    DPUClusters and the DPFOperatorConfig are not in it: a change of one concerns every object of the source.
    """

    def __init__(self, state: ResourcesState, effective: Callable[[str], Resource | None]) -> None:
        self.read: dict[str, None] = {}
        self._state = state
        self._effective = effective

    def row(self, key: str) -> Resource | None:
        """An object, unless it is being deleted."""
        self.read[key] = None
        return self._effective(key)

    def observed(self, key: str) -> JSON | None:
        """The last observation of the real thing behind an object; None if there is none."""
        self.read[key] = None
        seen = self._state.seen.get(key)
        return None if seen is None else seen.fields

    def observed_of_kind(self, source: str, kind: str) -> Iterable[tuple[str, str]]:
        """The observation of each object of a kind as JSON text, by key, sorted. Only some kinds are indexed."""
        self.read[collection(source, kind)] = None
        return self._state.seen_of_kind(source, kind)

    def clusters(self, source: str, selector: JSON | None = None) -> list[str] | str:
        """The keys of the DPUClusters with these labels, sorted; or the fault of the selector."""
        return selected_clusters(self._state, source, selector)

    def settings(self, source: str) -> OperatorSettings:
        """The settings of the installation."""
        return settings_of(self._state, source)
