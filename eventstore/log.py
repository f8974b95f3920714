"""The contract of a log: partitions of records, appended at the end and read in order.

Engines: `embedded` (RocksDB, one process) and `kafka` (aiokafka). One contract suite (tests/contract) tests both
engines, and the logs that exist for tests only.

An append does not return an offset: a producer may get a wrong one, or none (KIP-98 duplicates, lost responses). To
find a record, read the log back and look for its command id.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from eventstore.topics import TopicTable

ZONES = "zones"
CLIQUES = "cliques"
FLEET = "fleet"
INSTALLS = "installs"
REPLICAS = "replicas"
DECISIONS = "decisions"
RESOURCES = "resources"

MAX_RECORD_BYTES = 1 << 20
"""Maximum size of key, value and headers of one record, on every engine alike."""


DEFAULT_PARTITION_COUNT = 12
"""Partition count of the keyed topics of a new log. It can never grow."""


class Partition(NamedTuple):
    """A partition by its topic's short name (without the plane's prefix) and number."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


FLEET_0 = Partition(FLEET, 0)
"""The partition that orders all decisions of the fleet."""


Headers = tuple[tuple[str, bytes], ...]
"""The headers of a record, by name. No decision depends on them; the running hash covers them, like all bytes that are
read.
"""


class Record(NamedTuple):
    """One record in the log. `timestamp_ms` is its append time."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes
    headers: Headers = ()


Batch = tuple[Partition, Sequence[Record]]


class EventLog(Protocol):
    """Append-only partitions. Every method may raise LogUnavailable; LogMismatch ends the process."""

    @property
    def topics(self) -> TopicTable:
        """All topics of the log."""
        ...

    @property
    def partition_count(self) -> int:
        """Partitions of each keyed topic; the other topics have 1."""
        ...

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        """All partitions of a topic, in order."""
        ...

    def append(
        self, partition: Partition, key: bytes, value: bytes, *, timeout_s: float = 5.0, headers: Headers = ()
    ) -> Awaitable[None]:
        """Append one record; it is durable when the returned awaitable completes.

        Awaiting it raises AppendUnknown if it may have landed (and may still land later), AppendRefused if it certainly
        did not.
        """
        ...

    def read(self, positions: Mapping[Partition, int]) -> AsyncGenerator[Batch, None]:
        """Read all records from these positions on, in order per partition, then records as they are appended, for
        ever.

        A position is the next offset to read; offsets may be sparse. Raises LogMismatch if a position lies outside the
        log, if the log was re-created, or if its partition count changed. Close the generator to stop.
        """
        ...

    async def begin(self, partition: Partition) -> int:
        """Offset of the first retained record."""
        ...

    async def end(self, partition: Partition) -> int:
        """The offset after the last record."""
        ...

    async def position_at(self, partition: Partition, time_ms: int) -> int:
        """Offset of the first record appended at `time_ms` or later; the end if there is none."""
        ...

    async def close(self) -> None:
        """Release all resources. Appends under way end as AppendUnknown."""
        ...


def size_of(headers: Headers) -> int:
    """Number of bytes that headers add to the size of a record."""
    return sum([len(name) + len(content) for name, content in headers]) if headers else 0


@lru_cache(4_096)
def partition_of(key: bytes, partition_count: int) -> int:
    """The partition number of a key: murmur2 as Kafka's default partitioner computes it, so any client agrees."""
    return (_murmur2(key) & 0x7FFFFFFF) % partition_count


def _murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bit, seed 0x9747b28c (org.apache.kafka.common.utils.Utils.murmur2)."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    if length & 3:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)
