"""Finds the last record of a Kafka partition. Offsets after it may be transaction markers, which are not records.

Any Kafka client with write permission can write in a transaction, and the marker at its end takes an offset that no
reader gets. The end offset of a partition therefore does not tell how far it can be read: a reader that waits for that
offset would wait for the next record, which may never come. This module reads the last batches to find the last
record.
"""

from __future__ import annotations

from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import LeaderNotAvailableError, OffsetOutOfRangeError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.memory_records import MemoryRecords

from eventstore.kafka.clients import FETCH_PARTITION_BYTES

_READ_UNCOMMITTED = 0
_LOOKED_BACK_MAX = 4_096
"""Maximum number of offsets by which one step of the search goes back, while it finds only transaction markers."""


class BatchSpan(NamedTuple):
    """The offsets of a batch, and whether it is a marker."""

    first: int
    end: int
    is_marker: bool


async def records_end(consumer: AIOKafkaConsumer, tp: TopicPartition, end: int) -> int:
    """The offset after the last record of a partition with this end offset; the begin offset if it has no record.
    Raises KafkaError."""
    try:
        [*_, last] = await _spans(consumer, tp, end - 1, end)
    except OffsetOutOfRangeError:  # all records have expired
        return end
    if not last.is_marker:
        return min(last.end, end)
    begin: int = (await consumer.beginning_offsets([tp]))[tp]
    found, back = end - 1, 1
    while found > begin:
        start = max(begin, found - back)
        spans = await _spans(consumer, tp, start, found)
        if records := [span for span in spans if not span.is_marker]:
            return min(records[-1].end, end)
        found, back = start, min(2 * back, _LOOKED_BACK_MAX)
    return begin


async def _spans(consumer: AIOKafkaConsumer, tp: TopicPartition, start: int, end: int) -> list[BatchSpan]:
    """The batches from the one with offset `start`, up to the last that begins before `end`."""
    spans: list[BatchSpan] = []
    while start < end:
        fetched = await _fetched(consumer, tp, start)
        if not fetched:  # a new leader does not know the high watermark yet
            raise LeaderNotAvailableError(tp)
        spans += [span for span in fetched if span.first < end]
        start = fetched[-1].end
    return spans


async def _fetched(consumer: AIOKafkaConsumer, tp: TopicPartition, offset: int) -> list[BatchSpan]:
    """Fetch the batches from the one with this offset on."""
    client = consumer._client
    leader = client.cluster.leader_for_partition(tp)
    if leader is None or leader == -1:
        raise LeaderNotAvailableError(tp)
    wanted = [(tp.topic, [(tp.partition, offset, FETCH_PARTITION_BYTES)])]
    request = FetchRequest(0, 0, FETCH_PARTITION_BYTES, _READ_UNCOMMITTED, wanted)
    answer = await client.send(leader, request)
    [(_, [(_, code, _, *_, packed)])] = answer.topics
    if code:
        raise for_code(code)(tp)
    batches, spans = MemoryRecords(packed), []
    while batches.has_next():
        batch = batches.next_batch()
        spans.append(BatchSpan(batch.base_offset, batch.next_offset, bool(batch.is_control_batch)))
    return spans
