"""The maintenances of a partition, kept up to date with its objects, and which of them have a place.

Thousands of steps wait for a place at the same time, and each asks again after every change. The places of a source are
therefore computed once for each change of its maintenances or of the limit.

A place is kept: maintenances are in the order of their arrival in the log. Times of creation are whole seconds, in
which dozens are created, so by time and name a late arrival would come before one whose host is drained already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from projections.resources.host_effects import Maintenance, admitted, maintenance_of
from projections.resources.kinds import DPF_OPERATOR_CONFIG, DPU_NODE_MAINTENANCE
from projections.resources.state import ResourcesState, object_id
from projections.resources.step_facts import limits_of

_NEVER = -1


class MaintenanceIndex:
    """The maintenances of one state. Each read costs as much as has changed since the last one."""

    def __init__(self) -> None:
        self._found: dict[str, Maintenance] = {}
        """By key, in the order of arrival."""
        self._revision = _NEVER
        self._places: dict[str, frozenset[str]] = {}
        """The keys of the maintenances of each source that have a place."""

    def all(self, state: ResourcesState) -> Mapping[str, Maintenance]:
        """All maintenances by key."""
        self._update(state)
        return self._found

    def knows(self, state: ResourcesState, wanted: Maintenance) -> bool:
        """Whether the state has this maintenance, and no other one of its name."""
        self._update(state)
        known = self._found.get(wanted.at.key)
        return known is not None and known.uid == wanted.uid

    def has_place(self, state: ResourcesState, wanted: Maintenance) -> bool:
        """Whether a maintenance is known here, and is among the first of its source."""
        if not self.knows(state, wanted):
            return False
        source = wanted.at.source
        if source not in self._places:
            own = [each for each in self._found.values() if each.at.source == source]
            self._places[source] = admitted(own, limits_of(state, source).hosts_max)
        return wanted.at.key in self._places[source]

    def _update(self, state: ResourcesState) -> None:
        if state.journal.revision == self._revision:
            return
        keys: Iterable[str] | None = state.journal.since(self._revision)
        self._revision = state.journal.revision
        if keys is None:
            self._places.clear()
            keys = [*self._found, *_all_keys(state)]
        new: list[Maintenance] = []
        for key in keys:
            kind = object_id(key).kind
            if kind == DPF_OPERATOR_CONFIG:
                self._places.clear()
            elif kind == DPU_NODE_MAINTENANCE:
                new.extend(self._read(state, key))
        for each in sorted(new, key=lambda one: (one.created_ms, int(one.version), one.at.key)):
            self._found[each.at.key] = each

    def _read(self, state: ResourcesState, key: str) -> Iterator[Maintenance]:
        """Read a row again. Yields its maintenance if it is new."""
        row = state.objects.rows.get(key)
        found = None if row is None else maintenance_of(object_id(key), row)
        known = self._found.get(key)
        if found == known:
            return
        self._places.pop(object_id(key).source, None)
        if found is not None and known is not None and known.uid == found.uid:
            self._found[key] = found
            return
        self._found.pop(key, None)
        if found is not None:
            yield found


def _all_keys(state: ResourcesState) -> Iterator[str]:
    for kind, keys in state.by_kind.items():
        if kind.endswith(f"/{DPU_NODE_MAINTENANCE}"):
            yield from keys
