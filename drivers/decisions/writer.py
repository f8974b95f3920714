"""The decisions topic: every decision rendered as a record, for analysts. Nothing in the plane reads it to decide.

A replica folds at the pace of this writer: after each slice it waits until the topic has the decisions of the slice,
and it saves its state only then. So a restart from saved state misses no decision. After a restart, the replica repeats
the decisions since its last save. The writer finds those that are in the topic already, and does not write them again.

Any number of replicas may have a writer. The replica of rank 0 writes, and the others wait until its records appear. If
the records do not appear in time, or that replica is gone, the replica of the next rank writes. The key of a decision
is the position of its cause, and its bytes follow from the cause, so a duplicate is the same record, which compaction
removes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from random import Random

from drivers.decisions.buffer import DecisionBuffer
from drivers.decisions.written import AT_ONCE, Written, cause_of
from eventstore.avro.codec import encode
from eventstore.errors import FatalError, LogUnavailable, PlaneError
from eventstore.folding.decision_listener import DecidedRecord
from eventstore.folding.origin import read_first
from eventstore.log import DECISIONS, Partition, Record
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.log_follower import Backoff, follow
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import DECISION_WRITER
from projections.decisions.decided import decided, key_of

logger = logging.getLogger(__name__)


BATCH_BYTES = 1 << 20
"""Bytes of decided records at which a batch of appends is complete."""

SLICE_S = 0.003
"""Time of rendering after which other tasks get the event loop."""

TURN_MS = 10_000
"""Each rank waits this much longer than the rank before it. Dead replicas lose their rank after two seconds."""

CHECK_S = 0.5
"""Interval of checks of the rank while another replica is expected to write."""

APPEND_TIMEOUT_S = 5.0

SKEW_MS = 60_000
"""Allowance for differences between the brokers' clocks. Reading of the topic begins at the append time of the first
record whose decision may be missing, minus this allowance."""

RETENTION_MS = 30 * 86_400_000
"""The retention of the topic. Older decisions are not written, because they would expire at once."""


class DecisionWriter:
    """Writes the decisions in the buffer of a replica until `run` is cancelled.

    `written` counts acknowledged appends, `failures` appends that may not have landed.
    """

    def __init__(
        self,
        replica: Replica,
        buffer: DecisionBuffer,
        ranks: Ranks,
        *,
        now_ms: Callable[[], int],
        rng: Random,
    ) -> None:
        self.written = 0
        self.failures = 0
        self._replica = replica
        self._log = replica.log
        self._buffer = buffer
        self._ranks = ranks
        self._now_ms = now_ms
        self._rng = rng
        self._topic: defaultdict[Partition, Written] = defaultdict(Written)
        self._topic_read = asyncio.Event()
        self._caught_up = asyncio.Event()

    @property
    def lag(self) -> int:
        """Number of records that the replica has not folded yet."""
        return sum(status.lag for status in self._replica.partitions_status())

    async def run(self) -> None:
        await self._buffer.filled()
        starts, ends = await self._range_to_read()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_topic(starts, ends))
            tasks.create_task(self._write())

    # -- the content of the topic

    async def _range_to_read(self) -> tuple[Mapping[Partition, int], Mapping[Partition, int]]:
        """The offsets from which to read the topic, and the topic's present ends. Retries during an outage of the
        log."""
        backoff = Backoff(self._rng)
        while True:
            try:
                ends = {partition: await self._log.end(partition) for partition in self._log.partitions(DECISIONS)}
                return await self._starts(ends), ends
            except LogUnavailable as error:
                logger.warning("decisions topic not read, retrying: %s", error)
            await backoff.wait()

    async def _starts(self, ends: Mapping[Partition, int]) -> Mapping[Partition, int]:
        """The offsets from which to read the topic. Below them, the topic has no decision about a buffered record
        or about a record that this replica has not folded yet."""
        next_offsets = {status.partition: status.position for status in self._replica.partitions_status()}
        first = next(self._buffer.decisions()).at
        next_offsets[first.partition] = first.offset
        behind = {p: offset for p, offset in next_offsets.items() if offset < await self._log.end(p)}
        starts = dict(ends)
        for partition, record in (await read_first(self._log, behind)).items():
            topic = Partition(DECISIONS, partition.number)
            start = await self._log.position_at(topic, max(0, record.timestamp_ms - SKEW_MS))
            starts[topic] = min(starts[topic], start)
        return starts

    async def _follow_topic(self, starts: Mapping[Partition, int], ends: Mapping[Partition, int]) -> None:
        async def unchecked() -> None:
            """The check before each connection. It does nothing, because no decision depends on this topic."""

        unread = {partition for partition, end in ends.items() if starts[partition] < end}
        if not unread:
            self._caught_up.set()
        async with aclosing(follow(self._log, starts, self._rng, unchecked)) as batches:
            async for partition, records in batches:
                self._take_in(records)
                if records[-1].offset + 1 >= ends[partition]:
                    unread.discard(partition)
                if not unread:
                    self._caught_up.set()
                self._topic_read.set()
                await asyncio.sleep(0)

    def _take_in(self, records: Iterable[Record]) -> None:
        for record in records:
            if (cause := cause_of(record.key)) is not None:
                self._topic[cause[0]].add(cause[1])

    # -- writing

    async def _write(self) -> None:
        await self._caught_up.wait()
        while True:
            await self._buffer.filled()
            await self._write_buffer()
            self._buffer.empty()

    async def _write_buffer(self) -> None:
        """Write the decisions of a slice that the topic lacks, batch by batch."""
        batch: list[DecidedRecord] = []
        size, slices = 0, _Slices()
        for decision in self._buffer.decisions():
            await slices.pause_if_over()
            if self._is_missing(decision):
                batch.append(decision)
                size += len(decision.value)
            if len(batch) == AT_ONCE or size >= BATCH_BYTES:
                await self._write_batch(batch)
                batch, size = [], 0
        await self._write_batch(batch)

    async def _write_batch(self, batch: Sequence[DecidedRecord]) -> None:
        """Append these decisions. Returns when the topic has all of them, so that no later decision is appended
        earlier."""
        due = await self._due(batch)
        slices, values = _Slices(), {}
        for decision in due:
            values[decision.at.offset] = value_of(decision)
            await slices.pause_if_over()
        backoff = Backoff(self._rng)
        while due:
            appends = [self._append(decision, values[decision.at.offset]) for decision in due]
            results = await asyncio.gather(*appends, return_exceptions=True)
            failed = [each for each, result in zip(due, results, strict=True) if self._has_failed(each, result)]
            self.written += len(due) - len(failed)
            if failed:
                await backoff.wait()
            due = self._missing(failed)

    async def _due(self, batch: Sequence[DecidedRecord]) -> Sequence[DecidedRecord]:
        """Wait until it is our turn to write. Returns the decisions of the batch that the topic lacks at that time."""
        while due := self._missing(batch):
            rank = self._ranks.rank(DECISIONS, DECISION_WRITER)
            wait_ms = due[0].at.append_ms + rank * TURN_MS - self._now_ms()
            if not rank or wait_ms <= 0:
                return due
            self._topic_read.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(wait_ms / 1_000, CHECK_S)):
                    await self._topic_read.wait()
        return ()

    def _missing(self, decisions: Iterable[DecidedRecord]) -> list[DecidedRecord]:
        return [decision for decision in decisions if self._is_missing(decision)]

    def _is_missing(self, decision: DecidedRecord) -> bool:
        """Whether the topic lacks this decision, and would retain it."""
        partition, offset, append_ms, _ = decision.at
        return offset not in self._topic[partition] and append_ms >= self._now_ms() - RETENTION_MS

    def _append(self, decision: DecidedRecord, value: bytes) -> Awaitable[None]:
        topic = Partition(DECISIONS, decision.at.partition.number)
        return self._log.append(topic, key_of(decision.at).encode(), value, timeout_s=APPEND_TIMEOUT_S)

    def _has_failed(self, decision: DecidedRecord, result: BaseException | None) -> bool:
        """Whether an append must be repeated: its outcome is unknown. Raises errors that are fatal or not the log's."""
        if result is None:
            return False
        if isinstance(result, FatalError) or not isinstance(result, PlaneError):
            raise result
        self.failures += 1
        logger.warning(
            "append of a decision not confirmed, retrying", extra={"cause": key_of(decision.at), "reason": str(result)}
        )
        return True


class _Slices:
    """Gives the event loop to other tasks after each SLICE_S of work."""

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._until_s = self._clock() + SLICE_S

    async def pause_if_over(self) -> None:
        if self._clock() >= self._until_s:
            await asyncio.sleep(0)
            self._until_s = self._clock() + SLICE_S


def value_of(decision: DecidedRecord) -> bytes:
    """The value of the record of this decision."""
    event, change, outcome, at, version, _ = decision
    return encode(decided(event, change, outcome, at, version))
