"""The topics of a log, as a table: every rule that differs between topics is a field of `TopicSpec`.

deploy/composition/topics.py makes the table and gives it to the engines. All other modules read it from the log that
they are given, so a new topic is one more row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from eventstore.errors import AppendRefused
from eventstore.log import MAX_RECORD_BYTES, Headers, Partition, partition_of, size_of

_SEGMENT_MS_MIN = 10 * 60_000
_SEGMENTS = 30

Callers: TypeAlias = Literal["none", "independent", "together"]

FoldFactory: TypeAlias = Callable[[int], Any]
"""Makes the rules of a fold (folding/fold.py) for a log with this partition count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """The properties of one topic."""

    name: str
    """Short name, without the prefix of the plane."""
    is_keyed: bool = True
    """Whether the topic has the log's partition count, and a key chooses the partition. Otherwise the topic has one
    partition."""
    is_deciding: bool = False
    """Whether its fold decides: record 0 of each partition is LogCreated, and the records are retained for ever."""
    is_compacted: bool = False
    """Whether the topic is compacted: copies of a record have the same key, and brokers retain only one of them."""
    has_events: bool = True
    """Whether the records are events, which exports and backups contain."""
    retention_ms: int | None = None
    """How long records are retained; None for ever."""
    callers: Callers = "none"
    """The pattern of appends, by which an engine chooses whether an append batch lingers (linger.py). `none`: internal
    events and occasional commands; lingering would mostly be useless. `independent`: each caller waits for its append
    and then appends again; a batch lingers in an engine whose batches share a sync. `together`: several callers append
    at the same moment; a batch lingers in every engine."""
    folds: tuple[FoldFactory, ...] = ()
    """The rules of each fold version, in ascending order. An earlier version stays while there are logs that began with
    it."""
    readers: frozenset[str] = frozenset()
    """The roles that read the topic, and fold it if it has a fold."""
    writers: frozenset[str] = frozenset()
    """The roles that append to the topic."""

    @property
    def segment_ms(self) -> int | None:
        """Segment length. Only whole segments expire, so segments are shorter than the retention."""
        return None if self.retention_ms is None else max(_SEGMENT_MS_MIN, self.retention_ms // _SEGMENTS)


class TopicTable:
    """All topics of a log, by short name."""

    def __init__(self, specs: Iterable[TopicSpec]) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._partitions: dict[tuple[str, int], tuple[Partition, ...]] = {}
        self.names = tuple(self._specs)
        self.deciding = tuple(spec.name for spec in self if spec.is_deciding)
        self.folded = tuple(spec.name for spec in self if spec.folds)
        self.with_events = tuple(spec.name for spec in self if spec.has_events)

    def __iter__(self) -> Iterator[TopicSpec]:
        return iter(self._specs.values())

    def __getitem__(self, name: str) -> TopicSpec:
        return self._specs[name]

    def partitions(self, topic: str, partition_count: int) -> tuple[Partition, ...]:
        """All partitions of a topic in a log with this partition count. Empty if the topic is not in the table."""
        found = self._partitions.get((topic, partition_count))
        if found is None:
            spec = self._specs.get(topic)
            count = 0 if spec is None else partition_count if spec.is_keyed else 1
            found = tuple(Partition(topic, number) for number in range(count))
            if spec is not None:
                self._partitions[topic, partition_count] = found
        return found

    def all_partitions(self, partition_count: int) -> tuple[Partition, ...]:
        """The partitions of every topic."""
        return tuple(partition for name in self.names for partition in self.partitions(name, partition_count))

    def partition_for(self, topic: str, key: str, partition_count: int) -> Partition:
        """The partition of records with this key."""
        return Partition(topic, partition_of(key.encode(), partition_count) if self._specs[topic].is_keyed else 0)

    def check_append(
        self, partition: Partition, key: bytes, value: bytes, partition_count: int, headers: Headers = ()
    ) -> None:
        """Raise AppendRefused for a record that no engine takes: its partition does not exist, or it is over the size
        limit.
        """
        if partition not in self.partitions(partition.topic, partition_count):
            raise AppendRefused(f"partition: {partition} does not exist in a log of {partition_count} partitions")
        size = len(key) + len(value) + size_of(headers)
        if size > MAX_RECORD_BYTES:
            raise AppendRefused(f"record: {size} bytes for {partition} are more than the {MAX_RECORD_BYTES} allowed")
