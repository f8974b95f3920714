"""Status: this replica from its folds, the others from their beacons."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from eventstore.log import ZONES, Partition
from eventstore.replicas.beacons import Beacon
from eventstore.replicas.folded_log import FoldedLog
from eventstore.replicas.status import PartitionStatus, SourceStatus
from projections.rules.rule import Holdings
from schemas.api import dpuplane_pb2 as pb

DeviceSource: TypeAlias = Callable[[frozenset[str]], Awaitable[Holdings]]
"""Returns the tables of the connected DPUs of some zones (of all zones, if none are named)."""


class LogLocation(NamedTuple):
    """Where the log is, for tools that read it beside this process (`verify`, `replay`, `events`)."""

    engine: str
    data: str = ""
    bootstrap: tuple[str, ...] = ()
    topic_prefix: str = ""


class StatusReporter:
    """The content of `dpuplane status`. Listeners may still be adding their `addresses` while they start.

    `alive` returns the latest beacons. `stalled` returns the partitions that are not forwarded, with the reason.
    `dpus_ahead_of_log` returns the number of DPUs of our relay whose tables are newer than the (restored) log.
    `clock_faults` returns the clocks that are off. `revocations_fault` returns the reason why our revocation list could
    not be loaded. `sources` returns our edges for Kubernetes clusters.
    """

    def __init__(
        self,
        folds: FoldedLog,
        *,
        location: LogLocation,
        roles: Sequence[str],
        addresses: Mapping[str, str],
        version: str,
        alive: Callable[[], Sequence[Beacon]],
        stalled: Callable[[], Mapping[Partition, str]],
        dpus_ahead_of_log: Callable[[], int] = lambda: 0,
        clock_faults: Callable[[], Iterable[str]] = tuple,
        revocations_fault: Callable[[], str] = lambda: "",
        sources: Callable[[], Iterable[SourceStatus]] = tuple,
    ) -> None:
        self._clock_faults = clock_faults
        self._dpus_ahead_of_log = dpus_ahead_of_log
        self._revocations_fault = revocations_fault
        self._sources = sources
        self._folds = folds
        self._location = location
        self._roles = roles
        self._addresses = addresses
        self._version = version
        self._alive = alive
        self._stalled = stalled

    def status(self) -> pb.Status:
        """The status without the part from the fleet fold."""
        folds, where = self._folds, self._location
        replicas: list[pb.Replica] = [
            self._own(),
            *(_other(beacon) for beacon in self._alive() if beacon.replica != folds.name),
        ]
        replicas.sort(key=lambda found: found.name)
        return pb.Status(
            log_id=folds.log_id,
            generation=folds.generation,
            log=pb.LogLocation(
                engine=where.engine,
                data=where.data,
                bootstrap=where.bootstrap,
                topic_prefix=where.topic_prefix,
                partition_count=len(folds.partitions(ZONES)),
            ),
            replicas=replicas,
            halted=[
                pb.HaltedPartition(replica=found.name, partition=part.partition, reason=part.halted)
                for found in replicas
                for part in found.partitions
                if part.halted
            ],
            replica=folds.name,
            clock_faults=self._clock_faults(),
            stalled=[
                pb.StalledPartition(partition=str(part), reason=why) for part, why in sorted(self._stalled().items())
            ],
        )

    def _own(self) -> pb.Replica:
        return pb.Replica(
            name=self._folds.name,
            roles=self._roles,
            addresses=self._addresses,
            version=self._version,
            partitions=map(_partition, self._folds.partitions_status()),
            dpus_ahead_of_log=self._dpus_ahead_of_log(),
            revocations_fault=self._revocations_fault(),
            sources=map(_source, self._sources()),
            supports=_supports(self._folds.supports()),
        )


def _other(beacon: Beacon) -> pb.Replica:
    return pb.Replica(
        name=beacon.replica,
        roles=beacon.roles,
        addresses=beacon.addresses,
        version=beacon.version,
        partitions=map(_partition, beacon.partitions),
        dpus_ahead_of_log=beacon.dpus_ahead_of_log,
        revocations_fault=beacon.revocations_fault,
        sources=map(_source, beacon.sources),
        supports=_supports(beacon.supports),
    )


def _supports(found: Mapping[str, Sequence[int]]) -> dict[str, pb.FoldVersions]:
    return {topic: pb.FoldVersions(versions=versions) for topic, versions in found.items()}


def _source(status: SourceStatus) -> pb.SourceStatus:
    return pb.SourceStatus(
        source=status.source,
        watched=status.is_watched,
        nodes=status.nodes,
        refused=status.refused,
        retained=status.retained,
        fault=status.fault,
        ahead=status.ahead,
    )


def _partition(status: PartitionStatus) -> pb.PartitionStatus:
    return pb.PartitionStatus(
        partition=str(status.partition),
        position=status.position,
        lag_records=status.lag,
        fold_version=status.fold_version,
        digest=status.digest,
        digest_position=status.saved_position,
        running_hash=status.running,
        quarantined=status.quarantined,
        halted=status.halted,
    )
