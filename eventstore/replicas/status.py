"""The state of a replica per partition, for status pages, beacons and verification."""

from __future__ import annotations

from typing import NamedTuple

from eventstore.folding.partition import FoldedPartition
from eventstore.log import Partition
from eventstore.state_store.store import digest_bytes


class PartitionStatus(NamedTuple):
    """`position` is the next offset to fold. `digest` is the digest of the rows at `saved_position`; the other values
    are at `position`. `marks` are earlier positions with their running hashes. `lag` counts records not folded yet.
    """

    partition: Partition
    position: int
    saved_position: int
    digest: str
    running: str
    marks: tuple[tuple[int, str], ...]
    fold_version: int
    halted: str
    quarantined: int
    time_ms: int
    lag: int


class SourceStatus(NamedTuple):
    """The edge of a replica for one Kubernetes cluster. `is_watched` is false while the Nodes cannot be listed and
    watched, for the reason `fault`. `retained` nodes stay although the cluster lists them no more. `ahead` objects have
    a later position than the log, so their status is not written."""

    source: str
    is_watched: bool
    nodes: int
    refused: int
    retained: int
    fault: str = ""
    ahead: int = 0


def status_of(folded: FoldedPartition, end: int) -> PartitionStatus:
    """The status of one partition, given the last known end of its log."""
    return PartitionStatus(
        partition=folded.partition,
        position=folded.position,
        saved_position=folded.saved_position,
        digest=digest_bytes(folded.digest).hex(),
        running=folded.running.hex(),
        marks=tuple((position, running.hex()) for position, running in folded.marks),
        fold_version=folded.version,
        halted=folded.halted,
        quarantined=folded.quarantined,
        time_ms=folded.time_ms,
        lag=max(0, end - folded.position),
    )
