"""Any engine behind seeded faults: every failure that a real log may show, on purpose and often.

The fault of an append is drawn in the order of the appends: it lands twice; it lands, but its response is lost; it
lands after its caller got an unknown outcome; or it never lands. The faults of reads depend on offset and seed only,
so every reader and every reopened log sees the same gaps in offsets, and the same equal or backward timestamps.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

import xxhash

from eventstore.errors import AppendUnknown, LogMismatch, LogUnavailable, PlaneError
from eventstore.log import Batch, EventLog, Headers, Partition, Record
from eventstore.topics import TopicTable

_RUN = 8
"""One gap lies among this many records."""


@dataclass(frozen=True, slots=True)
class LogFaults:
    """Fault rates of a log. The four rates are probabilities per append; at most one fault applies to an append."""

    duplicate: float = 0.05
    """Landed and acknowledged, then landed again, immediately or late."""
    lost_answer: float = 0.03
    """Landed, and reported as unknown."""
    late: float = 0.03
    """Reported as unknown, then landed after a delay."""
    never: float = 0.02
    """Reported as unknown, and never landed."""
    delay_max_s: float = 2.0
    """Maximum delay of a record that lands late."""
    under_way_max: int = 1_000
    """Maximum of appends that are to land late; further ones never land."""
    gap: int = 2
    """Offsets skipped once in every 8 records, as transaction markers do."""
    equal_timestamps: float = 0.2
    """Share of records stamped down to the whole second."""
    backward_timestamps: float = 0.05
    """Share of records stamped earlier than they were appended."""
    backward_max_ms: int = 3_000
    """Maximum by which such a timestamp is earlier."""


@dataclass(slots=True)
class FaultCounts:
    """Counts of the injected faults, so that a run can check that the faults occurred."""

    acknowledged: int = 0
    duplicates: int = 0
    lost_answers: int = 0
    landed_late: int = 0
    never_landed: int = 0
    restamped: int = 0


class FaultyLog:
    """An EventLog over another log, and closes it. `faults` may be replaced at run time, to end the faults."""

    def __init__(self, inner: EventLog, rng: random.Random, faults: LogFaults, *, seed: int) -> None:
        self.faults = faults
        self.counts = FaultCounts()
        self.view = View(seed, faults)
        self.inner = inner
        self._rng = rng
        self._under_way: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def topics(self) -> TopicTable:
        return self.inner.topics

    @property
    def partition_count(self) -> int:
        return self.inner.partition_count

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        return self.inner.partitions(topic)

    async def append(
        self, partition: Partition, key: bytes, value: bytes, *, timeout_s: float = 5.0, headers: Headers = ()
    ) -> None:
        self.topics.check_append(partition, key, value, self.partition_count, headers)
        if self._closed:
            raise LogUnavailable("log: it was closed")
        fate, delay_s = self._draw()
        if fate == "never":
            self.counts.never_landed += 1
            raise AppendUnknown(f"append to {partition}: no response")
        if fate == "late":
            self._land_later(partition, key, value, headers, delay_s, is_duplicate=False)
            raise AppendUnknown(f"append to {partition}: no response")
        await self.inner.append(partition, key, value, timeout_s=timeout_s, headers=headers)
        if fate == "lost_answer":
            self.counts.lost_answers += 1
            raise AppendUnknown(f"append to {partition}: the response was lost")
        if fate == "duplicate":
            self._land_later(partition, key, value, headers, delay_s, is_duplicate=True)
        self.counts.acknowledged += 1

    async def read(self, positions: Mapping[Partition, int]) -> AsyncGenerator[Batch, None]:
        for partition, position in positions.items():
            end = await self.end(partition)
            if position > end:
                raise LogMismatch(f"position {position} of {partition} is beyond the end of the log, {end}")
        inner = {partition: self.view.inner(partition, position) for partition, position in positions.items()}
        async with aclosing(self.inner.read(inner)) as batches:
            async for partition, records in batches:
                yield partition, [self._seen(partition, record) for record in records]

    async def begin(self, partition: Partition) -> int:
        begin, end = await self.inner.begin(partition), await self.inner.end(partition)
        return self.view.outer(partition, begin) if begin < end else self.view.end(partition, end)

    async def end(self, partition: Partition) -> int:
        return self.view.end(partition, await self.inner.end(partition))

    async def position_at(self, partition: Partition, time_ms: int) -> int:
        """No timestamp is moved forward: a record with this timestamp or a later one was appended then or later."""
        start, end = await self.inner.position_at(partition, time_ms), await self.inner.end(partition)
        if start == end:
            return self.view.end(partition, end)
        async with aclosing(self.inner.read({partition: start})) as batches:
            async for _, records in batches:
                for record in records:
                    if self.view.timestamp_ms(partition, record) >= time_ms:
                        return self.view.outer(partition, record.offset)
                if records[-1].offset + 1 >= end:
                    break
        return self.view.end(partition, end)

    async def settle(self) -> None:
        """Wait until no append is under way: a record that has not landed by then never does."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def close(self) -> None:
        self._closed = True
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)
        await self.inner.close()

    def _draw(self) -> tuple[str, float]:
        faults, chance = self.faults, self._rng.random()
        delay_s = self._rng.choice((0.0, self._rng.uniform(0, faults.delay_max_s)))
        for fate in ("duplicate", "lost_answer", "late", "never"):
            chance -= getattr(faults, fate)
            if chance < 0:
                return fate, delay_s
        return "acknowledged", delay_s

    def _land_later(
        self, partition: Partition, key: bytes, value: bytes, headers: Headers, delay_s: float, *, is_duplicate: bool
    ) -> None:
        if len(self._under_way) >= self.faults.under_way_max:
            self.counts.never_landed += not is_duplicate
            return

        async def land() -> None:
            try:
                await asyncio.sleep(delay_s)
                await self.inner.append(partition, key, value, headers=headers)
            except (PlaneError, asyncio.CancelledError):
                self.counts.never_landed += not is_duplicate
            else:
                self.counts.duplicates += is_duplicate
                self.counts.landed_late += not is_duplicate

        task = asyncio.get_running_loop().create_task(land())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _seen(self, partition: Partition, record: Record) -> Record:
        timestamp_ms = self.view.timestamp_ms(partition, record)
        self.counts.restamped += timestamp_ms != record.timestamp_ms
        return record._replace(offset=self.view.outer(partition, record.offset), timestamp_ms=timestamp_ms)


class View:
    """How readers see the records of a dense log: a fixed monotone map of offsets, and a fixed change of timestamps."""

    def __init__(self, seed: int, faults: LogFaults) -> None:
        self._seed = seed
        self._faults = faults

    def outer(self, partition: Partition, inner: int) -> int:
        """The offset that readers see. The first record stays at 0: a log begins where it begins."""
        block, rank = divmod(inner, _RUN)
        skipped = self._faults.gap if rank >= self._cut(partition, block) else 0
        return block * (_RUN + self._faults.gap) + rank + skipped

    def inner(self, partition: Partition, outer: int) -> int:
        """The first record at this position or behind it."""
        block, rank = divmod(outer, _RUN + self._faults.gap)
        cut = self._cut(partition, block)
        return block * _RUN + (rank if rank < cut else max(cut, rank - self._faults.gap))

    def end(self, partition: Partition, inner_end: int) -> int:
        """One past the last record."""
        return self.outer(partition, inner_end - 1) + 1 if inner_end else 0

    def timestamp_ms(self, partition: Partition, record: Record) -> int:
        """The time that readers see: never later than the append."""
        faults, bits = self._faults, self._bits(partition, "time", record.offset)
        chance = bits / 2**32
        if chance < faults.backward_timestamps:
            return record.timestamp_ms - 1 - bits % faults.backward_max_ms
        if chance < faults.backward_timestamps + faults.equal_timestamps:
            return record.timestamp_ms - record.timestamp_ms % 1_000
        return record.timestamp_ms

    def _cut(self, partition: Partition, block: int) -> int:
        return 1 + self._bits(partition, "gap", block) % _RUN

    def _bits(self, partition: Partition, purpose: str, number: int) -> int:
        return xxhash.xxh32_intdigest(f"{self._seed}/{partition}/{purpose}/{number}".encode())
