"""The network document that the zone of a DPU lacks, and the reports on the document that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from projections.resources.derivation import Derivation
from projections.resources.network_documents.derive import node_of
from projections.resources.network_documents.document import NO_NETWORK, NetworkDocument
from projections.resources.network_documents.staged import SourceDocuments
from projections.resources.state import ResourcesState, object_id
from projections.zones.rows import DpuNetwork
from projections.zones.state import ZonesState


class NetworkSides(NamedTuple):
    """The states of both sides: `documents` by source, and `zones` gives the state of a zone's partition."""

    state: ResourcesState
    derivation: Derivation
    documents: Mapping[str, SourceDocuments]
    zones: Callable[[str], ZonesState]


class Standing(NamedTuple):
    """The document of a DPU, the zone that knows the DPU (empty if none does), and what the zone knows of it.
    `unreleased` says of objects whose present state the DPU gets in a later stage what they wait for."""

    document: NetworkDocument
    zone: str
    known: DpuNetwork | None
    unreleased: Mapping[str, str] = {}

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
    at, placement = object_id(key), sides.state.placements.rows.get(key)
    zone = placement.zone if placement is not None else ""
    zones = sides.zones(zone) if zone else None
    wanted = zones.wanted.rows.get(at.name) if zones is not None else None
    is_known = wanted is not None and wanted.object == key
    node, documents = node_of(sides.state, sides.derivation, key), sides.documents.get(at.source)
    unreleased: Mapping[str, str]
    if node is None or documents is None:
        document, unreleased = NO_NETWORK, {}
    else:
        document, _, unreleased = documents.of_node(sides.state.network_stage(at.source, zone, at.name), *node)
    if zones is None or not is_known:
        return Standing(document, "", None, unreleased)
    return Standing(document, zone, zones.networks.rows.get(at.name), unreleased)
