"""Queries the first and last offsets of Kafka's partitions, and the offset that belongs to a point in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from eventstore.errors import LogUnavailable
from eventstore.kafka.clients import CachedClient, Clients, make_consumer, reason
from eventstore.kafka.tail import records_end
from eventstore.kafka.topics import Topics
from eventstore.log import Partition

ANSWER_S = 10.0
"""Time limit of a query: a cluster can elect a leader in this time, and a client can detect that its leader is dead."""

Query = Callable[[AIOKafkaConsumer, Mapping[Partition, TopicPartition]], Awaitable[Mapping[TopicPartition, Any]]]


class OffsetLookup:
    """Queries the leaders of partitions. Each method raises LogUnavailable without an answer within ANSWER_S."""

    def __init__(self, clients: Clients, topics: Topics) -> None:
        self._clients = clients
        self._topics = topics
        self._consumer: CachedClient[AIOKafkaConsumer] = CachedClient(clients, make_consumer)
        self._looked_at: dict[TopicPartition, tuple[int, int]] = {}

    async def begins(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Offset of the first retained record, per partition."""
        return await self._ask(partitions, lambda consumer, wanted: consumer.beginning_offsets(list(wanted.values())))

    async def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset after the last one, per partition; the last offset may be that of a transaction marker."""
        return await self._ask(partitions, lambda consumer, wanted: consumer.end_offsets(list(wanted.values())))

    async def records_end(self, partition: Partition) -> int:
        """The offset after the last record."""
        return (await self._ask([partition], self._records_ends))[partition]  # type: ignore[no-any-return]

    async def first_at(self, partition: Partition, time_ms: int) -> int | None:
        """Offset of the first record at or after this time, or None."""
        since = max(0, time_ms)
        found = await self._ask(
            [partition], lambda consumer, wanted: consumer.offsets_for_times(dict.fromkeys(wanted.values(), since))
        )
        at = found[partition]
        return None if at is None else int(at.offset)

    def close(self) -> None:
        self._consumer.close()

    async def _records_ends(
        self, consumer: AIOKafkaConsumer, wanted: Mapping[Partition, TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """The offset after the last record, per partition. The brokers are queried again only for partitions with new
        offsets."""
        ends = await consumer.end_offsets(list(wanted.values()))
        for tp, end in ends.items():
            if self._looked_at.get(tp, (0, 0))[0] != end:
                self._looked_at[tp] = (end, await records_end(consumer, tp, end))
        return {tp: self._looked_at[tp][1] if end else 0 for tp, end in ends.items()}

    async def _ask(self, partitions: Iterable[Partition], query: Query) -> dict[Partition, Any]:
        wanted = {each: TopicPartition(self._topics.name(each.topic), each.number) for each in partitions}
        try:
            async with asyncio.timeout(ANSWER_S):
                while True:
                    try:
                        found = await self._ask_once(query, wanted)
                        return {partition: found[where] for partition, where in wanted.items()}
                    except LogUnavailable:
                        if self._clients.is_closed:
                            raise
                        await self._clients.pause()
        except TimeoutError:
            named = ", ".join(map(str, wanted))
            raise LogUnavailable(f"kafka: offsets of {named} not returned within {ANSWER_S} s") from None

    async def _ask_once(self, query: Query, wanted: Mapping[Partition, TopicPartition]) -> Mapping[TopicPartition, Any]:
        consumer = await self._consumer.get()
        try:
            return await query(consumer, wanted)
        except (KafkaError, OSError) as error:
            self._consumer.discard(consumer)
            raise LogUnavailable(reason(error)) from error
