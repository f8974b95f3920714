"""The objects of all DPU clusters, by the objects that they are made from."""

from __future__ import annotations

from projections.resources.claims import Claims
from projections.resources.networks import objects_in_clusters
from projections.resources.state import Resource, ResourcesState


class ClusterObjects:
    """Wanted objects in DPU clusters. The source of each is its cluster."""

    def __init__(self) -> None:
        self.claims = Claims()
        self.faults: dict[str, str] = {}
        """Why an object cannot be derived for DPU clusters."""

    def put(self, state: ResourcesState, key: str, row: Resource | None) -> dict[str, None]:
        """Derive the objects of one object again; None means that it has none. Returns the keys that changed."""
        self.faults.pop(key, None)
        if row is None:
            return self.claims.put(key, (0, key), ())
        found = objects_in_clusters(state, key, row)
        if isinstance(found, str):
            self.faults[key] = found
            found = []
        return self.claims.put(key, (row.created_ms, key), found)
