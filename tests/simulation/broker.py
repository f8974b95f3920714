"""The log in memory on which `hostile` stands: stamps come from a clock that may differ per partition.

Leaders of partitions are different machines, so a stamp may be ahead of another partition's, and go back.
"""

from __future__ import annotations

from collections.abc import Callable

from eventstore.log import Headers, Partition, Record, check_append
from tests.simulation.loop import current_loop
from tests.support.memory_log import Contents, MemoryLog


class Broker(MemoryLog):
    """Keeps every record for ever, in `contents`."""

    def __init__(self, partition_count: int, stamp_ms: Callable[[Partition], int]) -> None:
        super().__init__(Contents(partition_count), lambda: 0)
        self.appended_s: dict[Partition, list[float]] = {}
        """When each record really was appended."""
        self._stamp_ms = stamp_ms

    async def append(
        self, partition: Partition, key: bytes, value: bytes, *, timeout_s: float = 5.0, headers: Headers = ()
    ) -> None:
        check_append(partition, key, value, self.partition_count, headers)
        self.appended_s.setdefault(partition, []).append(current_loop().time())
        self.contents.add(partition, self._stamp_ms(partition), key, value, headers)

    def records(self, partition: Partition) -> list[Record]:
        """All records of a partition, as they were appended."""
        return self.contents.records.get(partition, [])
