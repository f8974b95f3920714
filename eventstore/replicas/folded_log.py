"""The log as folded so far: what queries read.

A replica continues to fold while it answers; a `FoldedLogAsOf` (recovery/fold_as_of) was folded up to a cut and does
not advance. Queries read both through this class, so the code that answers about the present also answers about the
past.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from eventstore.errors import PermanentError
from eventstore.folding.partition import FoldedPartition
from eventstore.log import Partition
from eventstore.replicas.lineage import Lineage
from eventstore.replicas.status import PartitionStatus, status_of
from eventstore.replicas.wait_lists import Answer
from eventstore.topics import TopicTable

_KEYS_REMEMBERED = 100_000


class FoldedLog:
    """Partitions of one log, as folded so far. Read them between awaits, and never change them from outside."""

    def __init__(self, name: str, topics: TopicTable, partition_count: int) -> None:
        self.name = name
        self.topics = topics
        self.log_id = ""
        self.generation = 0
        self.lineage = Lineage(0, ())
        self.ends_seen_ms = 0
        """Time of the last query for the ends of the partitions, by our clock. Lags are relative to these ends."""
        self._partition_count = partition_count
        self._partition_for = lru_cache(_KEYS_REMEMBERED)(topics.partition_for)
        self._folded: dict[Partition, FoldedPartition] = {}
        self._ends: dict[Partition, int] = {}

    def state(self, partition: Partition) -> Any:
        """The state of a partition at `position(partition)`. Fetch it again after an await."""
        return self.folded(partition).state

    def position(self, partition: Partition) -> int:
        """The next offset to fold."""
        return self.folded(partition).position

    def end(self, partition: Partition) -> int:
        """The end of the partition at `ends_seen_ms`."""
        return self._ends[partition]

    def folded(self, partition: Partition) -> FoldedPartition:
        """The folded partition with its metadata. Raises PermanentError if it is not folded here."""
        found = self._folded.get(partition)
        if found is None:
            raise PermanentError(f"partition: {partition} is not folded by this replica")
        return found

    def is_folded(self, partition: Partition) -> bool:
        """Whether a partition is folded here."""
        return partition in self._folded

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        """The partitions of a topic."""
        return self.topics.partitions(topic, self._partition_count)

    def partition_for(self, topic: str, key: str) -> Partition:
        """The partition of records with this key. The hash is cached, because every command needs it."""
        return self._partition_for(topic, key, self._partition_count)

    def partitions_status(self) -> list[PartitionStatus]:
        """The status of each partition."""
        return [status_of(folded, self._ends[partition]) for partition, folded in self._folded.items()]

    def supports(self) -> dict[str, list[int]]:
        """The fold versions whose rules this binary has, by topic."""
        return {partition.topic: sorted(folded.versions) for partition, folded in self._folded.items()}

    def outcomes(self, command_id: str) -> list[Answer]:
        """The remembered outcome of a command in each partition: at most one, unless the id was used for several
        partitions.
        """
        return [
            Answer(entry.outcome, partition, entry.offset)
            for partition, folded in self._folded.items()
            if (entry := folded.ledger.entries.get(command_id))
        ]
