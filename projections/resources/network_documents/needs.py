"""What the zone of a DPU lacks of its network document, and what was reported of the document there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from projections.resources.derivation import Derivation
from projections.resources.network_documents.derive import NetworkDocuments, node_of
from projections.resources.network_documents.document import NO_NETWORK, NetworkDocument
from projections.resources.state import ResourcesState, object_id
from projections.zones.rows import DpuNetwork
from projections.zones.state import ZonesState


class NetworkSides(NamedTuple):
    """The states of both sides: `documents` by source, and `zones` gives the state of a zone's partition."""

    state: ResourcesState
    derivation: Derivation
    documents: Mapping[str, NetworkDocuments]
    zones: Callable[[str], ZonesState]


class Standing(NamedTuple):
    """The document of a DPU, the zone that knows the DPU (empty if none does), and what the zone knows of it."""

    document: NetworkDocument
    zone: str
    known: DpuNetwork | None

    @property
    def is_lacking(self) -> bool:
        """Whether the zone must be told of the document. A DPU that never had a network is not told that it has
        none."""
        if not self.zone or not self.document.text:
            return False
        if self.known is None:
            return self.document.digest != NO_NETWORK.digest
        return self.known.digest != self.document.digest


def standing(sides: NetworkSides, key: str) -> Standing:
    """How it stands with the document of a wanted DPU. A DPU without a DPU cluster has no network."""
    at = object_id(key)
    node, documents = node_of(sides.state, sides.derivation, key), sides.documents.get(at.source)
    document = NO_NETWORK if node is None or documents is None else documents.of_node(*node)
    placement = sides.state.placements.rows.get(key)
    if placement is None:
        return Standing(document, "", None)
    zones = sides.zones(placement.zone)
    wanted = zones.wanted.rows.get(at.name)
    if wanted is None or wanted.object != key:
        return Standing(document, "", None)
    return Standing(document, placement.zone, zones.networks.rows.get(at.name))
