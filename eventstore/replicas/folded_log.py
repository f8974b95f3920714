"""The log as folded so far: what queries read.

A replica goes on folding while it answers; a `FoldedLogAsOf` (recovery/fold_as_of) was folded up to a cut and stays
there. Queries read both through this class, so the code that answers about the present also answers about the past.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from eventstore.errors import PermanentError
from eventstore.folding.partition import FoldedPartition
from eventstore.log import Partition, partition_for, partitions_of
from eventstore.replicas.lineage import Lineage
from eventstore.replicas.status import PartitionStatus, status_of
from eventstore.replicas.wait_lists import Answer

_KEYS_REMEMBERED = 100_000


class FoldedLog:
    """Partitions of one log, as folded so far. Read them between awaits, and never change them from outside."""

    def __init__(self, name: str, partition_count: int) -> None:
        self.name = name
        self.log_id = ""
        self.generation = 0
        self.lineage = Lineage(0, ())
        self.ends_seen_ms = 0
        """When it was last asked, by our clock, where the partitions end: what their lags are of."""
        self._partition_count = partition_count
        self._partition_for = lru_cache(_KEYS_REMEMBERED)(partition_for)
        self._folded: dict[Partition, FoldedPartition] = {}
        self._ends: dict[Partition, int] = {}

    def state(self, partition: Partition) -> Any:
        """The state of a partition, up to `position(partition)`. Ask again after an await."""
        return self.folded(partition).state

    def position(self, partition: Partition) -> int:
        """The next offset to fold."""
        return self.folded(partition).position

    def end(self, partition: Partition) -> int:
        """Where the partition ended when that was last asked, at `ends_seen_ms`."""
        return self._ends[partition]

    def folded(self, partition: Partition) -> FoldedPartition:
        """All that is known of a partition. Raises PermanentError if it is not folded here."""
        found = self._folded.get(partition)
        if found is None:
            raise PermanentError(f"partition: {partition} is not folded by this replica")
        return found

    def is_folded(self, partition: Partition) -> bool:
        """Whether a partition is folded here."""
        return partition in self._folded

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        """The partitions of a topic."""
        return partitions_of(topic, self._partition_count)

    def partition_for(self, topic: str, key: str) -> Partition:
        """The partition that records with this key belong in. Every command asks, so the hash is computed once."""
        return self._partition_for(topic, key, self._partition_count)

    def partitions_status(self) -> list[PartitionStatus]:
        """How it stands with each partition."""
        return [status_of(folded, self._ends[partition]) for partition, folded in self._folded.items()]

    def supports(self) -> dict[str, list[int]]:
        """The fold versions that this binary has rules for, by topic."""
        return {partition.topic: sorted(folded.rules) for partition, folded in self._folded.items()}

    def outcomes(self, command_id: str) -> list[Answer]:
        """What each partition remembers of a command: one at most, unless an id was used for several partitions."""
        return [
            Answer(entry.outcome, partition, entry.offset)
            for partition, folded in self._folded.items()
            if (entry := folded.ledger.entries.get(command_id))
        ]
