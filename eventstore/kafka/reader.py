"""Reads from Kafka, from given positions on: one consumer, replaced when it fails or falls silent.

The reader keeps the positions itself: after an error a consumer may have skipped records that it had fetched. A new
consumer starts at the last returned record and must find exactly that record there. So a log that lost its end, or was
re-created, is detected before one of its records is folded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from eventstore.errors import LogMismatch, LogUnavailable, PlaneError
from eventstore.kafka.clients import Clients, make_consumer, reason
from eventstore.kafka.offsets import OffsetLookup
from eventstore.kafka.topics import Topics
from eventstore.log import Batch, Partition, Record

logger = logging.getLogger(__name__)

POLL_MS = 250
SLICE_RECORDS = 1_000
"""Records that are converted at a time, which takes less than 5 ms of the event loop."""
FETCH_TIMEOUT_S_MIN = 3.0
FETCH_TIMEOUT_S_MAX = 60.0
"""Time without a fetch response after which a consumer is replaced: it may hang on a frozen broker. A broker answers a
fetch every 0.1 s. The time grows while a replacement does not help: the partition may have no leader.
"""


class _FetchTimeout(Exception):
    """No response to a fetch from a partition."""


class KafkaReader:
    """One read of some partitions, across consumers that are replaced when they fail."""

    def __init__(
        self, clients: Clients, topics: Topics, offsets: OffsetLookup, positions: Mapping[Partition, int]
    ) -> None:
        self._clients = clients
        self._offsets = offsets
        self._compacted = frozenset(spec.name for spec in topics.table if spec.is_compacted)
        self._partitions = {
            TopicPartition(topics.name(partition.topic), partition.number): partition for partition in positions
        }
        self._positions = dict(positions)
        self._last: dict[Partition, Record] = {}
        self._unproven: dict[Partition, Record] = {}
        self._is_in_range = False
        self._fetch_timeout_s = FETCH_TIMEOUT_S_MIN
        self._ended: PlaneError | None = None
        self._consumer: AIOKafkaConsumer | None = None

    def end(self, why: PlaneError) -> None:
        """End the read with this error at its next step. It opens no connection after this."""
        self._ended = why
        self._discard_consumer()

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Read every record from the positions on. Raises LogMismatch if the positions do not match the log."""
        while True:
            try:
                consumer = self._consumer = await self._open()
                activity = _FetchActivity(consumer, self._partitions)
                while True:
                    self._raise_if_ended()
                    fetched = await consumer.getmany(timeout_ms=POLL_MS, max_records=SLICE_RECORDS)
                    for tp, found in fetched.items():
                        partition = self._partitions[tp]
                        records = self._take(partition, found)
                        if records:
                            yield partition, records
                    self._check_activity(activity, fetched)
                    await asyncio.sleep(0)  # fetched records return without waiting: yield the event loop
            except (KafkaError, OSError, LogUnavailable, _FetchTimeout) as error:
                self._raise_if_ended()
                self._is_in_range = self._is_in_range and not isinstance(error, OffsetOutOfRangeError)
                logger.warning(
                    "fetch failed, reading again: %s", reason(error), extra={"partitions": len(self._partitions)}
                )
            finally:
                self._discard_consumer()
            await self._clients.pause()

    async def _open(self) -> AIOKafkaConsumer:
        """Open a consumer at the stored positions. Where the last record read is known, the consumer starts at that
        record, to check that the log still has it."""
        self._unproven = dict(self._last)
        if not self._is_in_range:
            await self._check_range()
        consumer = await self._clients.started(make_consumer)
        consumer.assign(list(self._partitions))
        for tp, partition in self._partitions.items():
            proof = self._unproven.get(partition)
            consumer.seek(tp, self._positions[partition] if proof is None else proof.offset)
        return consumer

    async def _check_range(self) -> None:
        """Raise LogMismatch unless our positions lie in the log. Earlier records may have expired."""
        begins = await self._offsets.begins(self._positions)
        ends = await self._offsets.ends(self._positions)
        for partition, position in self._positions.items():
            begin, end = begins[partition], ends[partition]
            if not begin <= position <= end:
                raise LogMismatch(
                    f"{partition}: position {position} lies outside the log, which holds {begin} to {end}"
                )
            if partition in self._unproven and self._unproven[partition].offset < begin:
                del self._unproven[partition]
        self._is_in_range = True

    def _take(self, partition: Partition, found: Sequence[ConsumerRecord]) -> list[Record]:
        records = [_record(each) for each in found]
        proof = self._unproven.pop(partition, None)
        # a compacted topic may have lost the record to compare with
        is_compacted = partition.topic in self._compacted and records[0].offset > (proof.offset if proof else 0)
        if proof is not None and not is_compacted:
            if records[0] != proof:
                raise LogMismatch(f"{partition}: the record at offset {proof.offset} changed since it was read")
            del records[0]
        if records:
            if records[0].offset < self._positions[partition]:
                raise LogMismatch(
                    f"{partition}: offset {records[0].offset} was fetched where {self._positions[partition]} "
                    "was expected"
                )
            self._last[partition] = records[-1]
            self._positions[partition] = records[-1].offset + 1
        return records

    def _check_activity(
        self, activity: _FetchActivity, fetched: Mapping[TopicPartition, Sequence[ConsumerRecord]]
    ) -> None:
        has_more = sum(map(len, fetched.values())) >= SLICE_RECORDS
        silent_s = activity.silence(fetched, has_more=has_more)
        if silent_s > self._fetch_timeout_s:
            self._fetch_timeout_s = min(2 * self._fetch_timeout_s, FETCH_TIMEOUT_S_MAX)
            raise _FetchTimeout(f"no fetch response for a partition in {silent_s:.1f} s")
        if activity.is_complete:
            self._fetch_timeout_s = FETCH_TIMEOUT_S_MIN

    def _discard_consumer(self) -> None:
        if self._consumer is not None:
            self._clients.discard(self._consumer)
            self._consumer = None

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise type(self._ended)(str(self._ended))


class _FetchActivity:
    """Times of a consumer's last fetch response per partition, empty responses included."""

    def __init__(self, consumer: AIOKafkaConsumer, tps: Collection[TopicPartition]) -> None:
        self._consumer = consumer
        self._now = asyncio.get_running_loop().time
        self._polled: dict[TopicPartition, int | None] = dict.fromkeys(tps)
        self._fetched_at = dict.fromkeys(tps, self._now())
        self._asked_at = self._now()

    @property
    def is_complete(self) -> bool:
        """Whether every partition has had a fetch response."""
        return None not in self._polled.values()

    def silence(self, fetched: Collection[TopicPartition], *, has_more: bool) -> float:
        """Seconds since the last fetch response of the most silent partition. Call it after every poll.

        Silence does not count while the consumer has undelivered records (`has_more`): it fetches no more of a
        partition until these are delivered.
        """
        now = self._now()
        was_away = now - self._asked_at > 4 * POLL_MS / 1_000  # the reader was busy elsewhere and did not poll
        self._asked_at = now
        for tp, polled in self._polled.items():
            newly = self._consumer.last_poll_timestamp(tp)
            if was_away or has_more or newly != polled or tp in fetched:
                self._polled[tp] = newly
                self._fetched_at[tp] = now
        return now - min(self._fetched_at.values(), default=now)


def _record(found: ConsumerRecord) -> Record:
    headers = tuple((name, value or b"") for name, value in found.headers) if found.headers else ()
    return Record(found.offset, found.timestamp, found.key or b"", found.value or b"", headers)
