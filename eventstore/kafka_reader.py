"""Reads from Kafka, from positions on, for ever: a consumer of its own that is replaced when it breaks or stands still.

Where to go on is ours to know and not the consumer's: after an error it may have skipped what it had fetched. A new one
starts at the last record that was handed out, and must find exactly that record there: so a log that lost its end, or
was made again, is noticed before anything of it is taken for a continuation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from eventstore.errors import LogMismatch, LogUnavailable, PlaneError
from eventstore.kafka_clients import Clients, make_consumer, reason
from eventstore.kafka_offsets import Offsets
from eventstore.kafka_topics import Topics
from eventstore.log import Batch, Partition, Record

log = logging.getLogger(__name__)

POLL_MS = 250
"""How soon a reader notices that its log was closed."""
SLICE_RECORDS = 1_000
"""Records made in one go: what they cost keeps the loop for less than 5 ms."""


class _StandsStill(Exception):
    """There is more in the log, and the consumer does not bring it."""


class Reader:
    """One reading of some partitions. `consumers_made` counts how often it had to begin again, and once."""

    def __init__(self, clients: Clients, topics: Topics, offsets: Offsets, positions: Mapping[Partition, int]) -> None:
        self._clients = clients
        self._topics = topics
        self._offsets = offsets
        self._partitions = {
            TopicPartition(topics.name(partition.topic), partition.number): partition for partition in positions
        }
        self._positions = dict(positions)
        self._last: dict[Partition, Record] = {}
        self._unproven: dict[Partition, Record] = {}
        self._owed: dict[Partition, int] = {}
        self._stands_still = False
        self._ended: PlaneError | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self.consumers_made = 0

    @property
    def partitions(self) -> Sequence[Partition]:
        return tuple(self._positions)

    def end(self, why: PlaneError) -> None:
        """Let the reading end with this error, at its next step. It holds no connection from now on."""
        self._ended = why
        if self._consumer is not None:
            self._clients.discard(self._consumer)
            self._consumer = None

    def notice_ends(self, ends: Mapping[Partition, int]) -> None:
        """Learn where the partitions end. What lay before the last such end should have come by now, or begun to."""
        for partition, position in self._positions.items():
            if self._owed.get(partition) == position:
                self._stands_still = True
            self._owed.pop(partition, None)
            if position < ends.get(partition, 0):
                self._owed[partition] = position

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Every record from the positions on; raises LogMismatch when they do not fit the log."""
        while True:
            try:
                consumer = await self._open()
            except LogUnavailable as error:
                log.debug("cannot read: %s", error)
                self._raise_if_ended()
                await self._clients.pause()
                continue
            try:
                self._consumer = consumer
                while True:
                    self._raise_if_ended()
                    fetched = await consumer.getmany(timeout_ms=POLL_MS, max_records=SLICE_RECORDS)
                    for where, found in fetched.items():
                        partition = self._partitions[where]
                        records = self._take(partition, found)
                        if records:
                            yield partition, records
                    if self._stands_still:
                        raise _StandsStill("records are there, and do not come")
                    await asyncio.sleep(0)  # what is already fetched comes without waiting: let others run
            except (KafkaError, OSError, _StandsStill) as error:
                log.warning("reading starts again", extra={"error": reason(error), "partitions": len(self._positions)})
            finally:
                if self._consumer is not None:
                    self._clients.discard(self._consumer)
                    self._consumer = None
            await self._clients.pause()

    async def _open(self) -> AIOKafkaConsumer:
        """A consumer at our positions, or at the record before, where there is one to prove itself by."""
        begins = await self._offsets.begins(self.partitions)
        ends = await self._offsets.ends(self.partitions)
        for partition, position in self._positions.items():
            if not begins[partition] <= position <= ends[partition]:
                raise LogMismatch(
                    f"{partition}: position {position} lies outside the log, "
                    f"which has {begins[partition]} to {ends[partition]}"
                )
        self._unproven = {
            partition: record for partition, record in self._last.items() if record.offset >= begins[partition]
        }
        self._owed.clear()
        self._stands_still = False
        consumer = await self._clients.started(make_consumer)
        self.consumers_made += 1
        consumer.assign(list(self._partitions))
        for where, partition in self._partitions.items():
            proof = self._unproven.get(partition)
            consumer.seek(where, self._positions[partition] if proof is None else proof.offset)
        return consumer

    def _take(self, partition: Partition, found: Sequence[ConsumerRecord]) -> list[Record]:
        records = [_record(each) for each in found]
        proof = self._unproven.pop(partition, None)
        if proof is not None:
            if records[0] != proof:
                raise LogMismatch(f"{partition}: the record at {proof.offset} is not the one that was read before")
            del records[0]
        if records:
            if records[0].offset < self._positions[partition]:
                raise LogMismatch(f"{partition}: offset {records[0].offset} came after {self._positions[partition]}")
            self._last[partition] = records[-1]
            self._positions[partition] = records[-1].offset + 1
        return records

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise type(self._ended)(str(self._ended))


def _record(found: ConsumerRecord) -> Record:
    headers = tuple((name, value or b"") for name, value in found.headers)
    return Record(found.offset, found.timestamp, found.key or b"", found.value or b"", headers)
