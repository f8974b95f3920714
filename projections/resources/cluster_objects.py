"""The objects of all clusters, by the objects that they are made from.

Objects in DPU clusters have the cluster as their source. Those for the cluster of the hosts, such as Applications, have
the source of the object that they are made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping

from projections.resources import networks
from projections.resources.claims import Claims
from projections.resources.control_planes import kamaji
from projections.resources.host_index import Keys
from projections.resources.kinds import (
    DPF_OPERATOR_CONFIG,
    DPU_CLUSTER,
    DPU_SERVICE,
    DPU_SERVICE_CREDENTIAL_REQUEST,
)
from projections.resources.lookup import Lookup
from projections.resources.services import applications, credentials, pull_secrets
from projections.resources.state import Resource, ResourcesState, object_id
from projections.resources.wanted import Wanted

_OF_KIND: Mapping[str, Callable[[str, Resource, Lookup], list[Wanted] | str]] = {
    **dict.fromkeys(networks.KINDS, networks.objects_in_clusters),
    DPU_SERVICE: applications.of_service,
    DPU_CLUSTER: kamaji.of_cluster,
    DPF_OPERATOR_CONFIG: pull_secrets.of_operator_config,
    DPU_SERVICE_CREDENTIAL_REQUEST: credentials.of_request,
}

KINDS = frozenset(_OF_KIND)
"""The kinds that become objects in clusters."""

_CONCERN_ALL = (DPU_CLUSTER, DPF_OPERATOR_CONFIG)
"""A change of an object of these kinds concerns every object of its source."""


class ClusterObjects:
    """Wanted objects in clusters."""

    def __init__(self) -> None:
        self.claims = Claims()
        self.faults: dict[str, str] = {}
        """Why an object cannot be derived for clusters."""
        self._dependents: MutableMapping[str, Keys] = {}
        self._read: dict[str, Keys] = {}
        self._concerning_all: dict[str, tuple[Resource, bool]] = {}
        """The objects that concern every object of their source, and whether they are to be used."""

    def put(
        self, state: ResourcesState, key: str, row: Resource | None, effective: Callable[[str], Resource | None]
    ) -> Keys:
        """Derive the objects of one object again; None means that it has none. `effective` gives other objects.
        Returns the keys that changed."""
        self.faults.pop(key, None)
        lookup = Lookup(state, effective)
        found = [] if row is None else _OF_KIND[object_id(key).kind](key, row, lookup)
        self._depend(key, lookup.read)
        if isinstance(found, str):
            self.faults[key] = found
            found = []
        return self.claims.put(key, (row.created_ms if row is not None else 0, key), found)

    def changed_sources(self, by_kind: Mapping[str, Keys], state: ResourcesState) -> Keys:
        """The sources of which every object must be derived again. An object of which only the observation has changed,
        such as the number of nodes of a DPU cluster, concerns no other."""
        found: Keys = {}
        for key in (key for kind in _CONCERN_ALL for key in by_kind.get(kind, ())):
            row, earlier = state.objects.rows.get(key), self._concerning_all.pop(key, None)
            now = (row, state.serves(key)) if row is not None else None
            if now is not None:
                self._concerning_all[key] = now
            is_same = now is not None and earlier is not None and now[0] is earlier[0] and now[1] == earlier[1]
            if not is_same and now is not earlier:
                found[object_id(key).source] = None
        return found

    def dependents(self, keys: Iterable[str]) -> Keys:
        """The objects whose derivation has read one of these."""
        return {each: None for key in keys for each in self._dependents.get(key, ())}

    def _depend(self, key: str, read: Keys) -> None:
        for each in self._read.pop(key, ()):
            self._dependents[each].pop(key)
            if not self._dependents[each]:
                del self._dependents[each]
        for each in read:
            self._dependents.setdefault(each, {})[key] = None
        if read:
            self._read[key] = read
