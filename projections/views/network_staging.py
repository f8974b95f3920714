"""How far the DPUs of a staged change of networks are.

The change concerns the DPUs whose network documents it changes. A DPU gets a stage once a relay has reported it, and
counts from then on, also if no relay reports it any more: the change may be what cut it off. An
interface without a port does not count as a failure: chains are often made before the pods that bring their ports.
"""

from __future__ import annotations

from collections.abc import Callable

from pyroaring import BitMap

from projections.fleet.state import FleetState
from projections.installs.rows import InstallsState
from projections.resources.network_documents.derive import node_of
from projections.resources.network_documents.document import NO_NETWORK, NetworkDocument
from projections.resources.network_documents.needs import NetworkSides
from projections.resources.network_stages.rows import StagedNetworks, stage_key
from projections.resources.state import object_id
from projections.views.stage_progress import StagedDpu, StageProgress
from projections.views.staging import reached_ordinals
from projections.zones.rows import DpuNetwork


class NetworkStageProgress(StageProgress):
    """The progress of the staged change of the networks of a source. Add all DPUs of the source, then read."""

    def __init__(
        self,
        fleet: FleetState,
        sides: NetworkSides,
        source: str,
        row: StagedNetworks,
        installs: Callable[[str], InstallsState],
        *,
        epoch: int,
        now_ms: int,
    ) -> None:
        super().__init__(fleet, row, source, sides.state.named_network_dpus(source), now_ms=now_ms)
        self._sides, self._source, self._row = sides, source, row
        self._installs, self._epoch = installs, epoch
        self._reported: dict[str, BitMap] = {}

    def add_dpu(self, key: str) -> None:
        """Count a wanted DPU of the source, if the change concerns it and its zone knows it."""
        sides, row, name = self._sides, self._row, object_id(key).name
        node, placement = node_of(sides.state, sides.derivation, key), sides.state.placements.rows.get(key)
        if node is None or placement is None:
            return
        zone, zones = placement.zone, sides.zones(placement.zone)
        before, after = sides.documents[self._source].of_change(*node)
        wanted, dpu = zones.wanted.rows.get(name), zones.dpus.rows.get(name)
        if before.digest == after.digest or dpu is None or wanted is None or wanted.object != key:
            return
        self.total += 1
        named, known = (
            sides.state.staged_network_dpus.rows.get(stage_key(self._source, zone)),
            zones.networks.rows.get(name),
        )
        is_named = named is not None and name in named.stages
        had_one = known is not None and known.applied > 0
        if not is_named and not (row.is_everywhere and had_one) and dpu.ordinal not in self._reported_in(zone):
            self.unreported += 1
            return
        counted = StagedDpu(zone, dpu.ordinal, name, sides.state.network_stage(self._source, zone, name))
        if not is_named:
            self.add_unnamed(counted)
        is_released = bool(counted.stage) or row.is_everywhere
        if is_released or row.undone_by:
            document = after if is_released and row.is_open else before
            is_reached, reason = _outcome(document, known)
            self.count(counted, is_reached=is_reached, reason=reason, missing="its network document")

    def _reported_in(self, zone: str) -> BitMap:
        """The DPUs of a zone that relays have reported, by ordinal."""
        found = self._reported.get(zone)
        if found is None:
            installs = self._installs(zone)
            row = installs.zones.rows.get(zone)
            is_present = row is not None and row.epoch == self._epoch
            found = self._reported[zone] = reached_ordinals(zone, installs, 0) if is_present else BitMap()
        return found


def _outcome(document: NetworkDocument, known: DpuNetwork | None) -> tuple[bool, str]:
    """Whether a DPU has a document, and why it failed; empty if it did not."""
    if not document.text:
        return False, next((fault for faults in document.faults.values() for fault in faults), "it has no document")
    if known is None:
        return document.digest == NO_NETWORK.digest, ""
    if known.digest != document.digest:
        return False, ""
    is_applied = known.applied == known.version
    return is_applied, "" if is_applied else known.refusal
