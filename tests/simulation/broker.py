"""The in-memory log below the faulty log. The clock of the record timestamps may differ per partition.

Leaders of partitions run on different machines, so a timestamp may be ahead of other partitions, and may go back.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from deploy.composition.topics import TOPICS
from eventstore.log import EventLog, Headers, Partition, Record
from tests.simulation.script import Director
from tests.support.faulty_log import FaultyLog, LogFaults
from tests.support.memory_log import Contents, MemoryLog
from tests.support.virtual_loop import current_loop


class Broker(MemoryLog):
    """Stores every record for ever, in `contents`."""

    def __init__(self, partition_count: int, stamp_ms: Callable[[Partition], int]) -> None:
        super().__init__(Contents(partition_count), lambda: 0)
        self.appended_s: dict[Partition, list[float]] = {}
        """The true append time of each record."""
        self._stamp_ms = stamp_ms

    async def append(
        self, partition: Partition, key: bytes, value: bytes, *, timeout_s: float = 5.0, headers: Headers = ()
    ) -> None:
        TOPICS.check_append(partition, key, value, self.partition_count, headers)
        self.appended_s.setdefault(partition, []).append(current_loop().time())
        self.contents.add(partition, self._stamp_ms(partition), key, value, headers)

    def records(self, partition: Partition) -> list[Record]:
        """All records of a partition, in append order."""
        return self.contents.records.get(partition, [])


class DirectedLog(FaultyLog):
    """A faulty log that asks the director for the fate of each append. An append is identified by its partition, its
    key and its number among the appends with both. A script without some commands therefore treats the other appends as
    before.
    """

    def __init__(
        self, inner: EventLog, rng: random.Random, faults: LogFaults, director: Director, *, seed: int
    ) -> None:
        super().__init__(inner, rng, faults, seed=seed)
        self.is_sound = False
        """Whether faults have ended."""
        self._director = director
        self._key = ""
        self._appends: Counter[str] = Counter()
        self._shown: dict[Partition, dict[int, Record]] = {}

    async def append(
        self, partition: Partition, key: bytes, value: bytes, *, timeout_s: float = 5.0, headers: Headers = ()
    ) -> None:
        self._key = f"{partition} {key.decode(errors='replace')}"
        self._appends[self._key] += 1
        await super().append(partition, key, value, timeout_s=timeout_s, headers=headers)

    def _draw(self) -> tuple[str, float]:
        if self.is_sound:
            return "", 0.0
        return self._director.fate(self._key, self._appends[self._key], self._drawn)

    def _drawn(self) -> tuple[str, float]:
        fate, delay_s = super()._draw()
        return ("", 0.0) if fate == "acknowledged" else (fate, delay_s)

    def _seen(self, partition: Partition, record: Record) -> Record:
        """The record as every reader sees it. No record is ever removed from this log."""
        shown = self._shown.setdefault(partition, {})
        if (seen := shown.get(record.offset)) is None:
            seen = shown[record.offset] = super()._seen(partition, record)
        return seen
