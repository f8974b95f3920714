"""The network documents of a relay's zones, read from the folds of the relay's replica."""

from __future__ import annotations

from collections.abc import Sequence

from eventstore.log import ZONES
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.zones.rows import DpuNetwork
from schemas.events import NetworksReported

REPORT_S = 5.0


class ReplicaNetworks:
    """A NetworkSource over a replica that folds zones."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._states = FoldStates(replica)
        self._seen: tuple[int, ...] = ()

    @property
    def epoch(self) -> int:
        return self._replica.generation

    async def changed(self) -> None:
        partitions = self._replica.partitions(ZONES)

        def is_changed() -> bool:
            return self._revisions() != self._seen

        await self._replica.fold_waits.wait_for(is_changed, *partitions)
        self._seen = self._revisions()

    def since(self, zone: str, revision: int) -> tuple[int, Sequence[str] | None]:
        journal = self._states.zone(zone).network_journal
        return journal.revision, journal.since(revision)

    def wanted(self, zone: str, dpu: str) -> DpuNetwork | None:
        state = self._states.zone(zone)
        row = state.dpus.rows.get(dpu)
        return state.networks.rows.get(dpu) if row is not None and row.zone == zone else None

    def text(self, zone: str, digest: str) -> bytes:
        return self._states.zone(zone).network_texts.rows[digest].text.encode()

    async def report(self, event: NetworksReported) -> None:
        partition = self._replica.partition_for(ZONES, event.zone)
        await self._replica.append_event(partition, event.zone.encode(), event, timeout_s=REPORT_S)

    def _revisions(self) -> tuple[int, ...]:
        return tuple(self._states.zones_at(part).network_journal.revision for part in self._replica.partitions(ZONES))
