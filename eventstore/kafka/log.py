"""The log that many processes share: Kafka topics. The plane relies only on their durability and order.

An acknowledged record is on at least two brokers. The plane does not assume that the record of a failed append is
absent, that a producer returns correct offsets, that a client works after a failure, or that topics stay the same. A
task checks every few seconds that the topics are still the same.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager

from eventstore.errors import FatalError, LogUnavailable, PlaneError
from eventstore.kafka.admin import Admin
from eventstore.kafka.appender import KafkaAppender
from eventstore.kafka.clients import Access, Clients, plaintext
from eventstore.kafka.offsets import OffsetLookup
from eventstore.kafka.reader import KafkaReader
from eventstore.kafka.topics import Topics
from eventstore.log import Batch, Headers, Partition
from eventstore.topics import TopicTable

logger = logging.getLogger(__name__)

WATCH_S = 4.0
CLOSE_S = 1.0


class KafkaLog:
    """An EventLog over a cluster's topics."""

    def __init__(self, clients: Clients, admin: Admin, topics: Topics, rng: random.Random) -> None:
        self._clients = clients
        self._admin = admin
        self._topics = topics
        self.topics = topics.table
        self._rng = rng
        self._offsets = OffsetLookup(clients, topics)
        self._readers: set[KafkaReader] = set()
        self._ended: PlaneError | None = None
        self._closed = False
        self.appender = KafkaAppender(clients, topics, self._end)
        self._watching = asyncio.create_task(self._watch())

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        topics: TopicTable,
        bootstrap: str,
        *,
        topic_prefix: str = "dpuplane",
        partition_count: int | None = None,
        rng: random.Random,
        create: bool = True,
        access: Access = plaintext,
    ) -> AsyncIterator[KafkaLog]:
        """Open the log in these topics; with `create`, missing topics are created.

        A new log gets `partition_count` partitions (12 if none is given). An existing one must have as many; without a
        count it keeps its own. Raises LogMismatch for topics with wrong settings, LogUnavailable without a cluster.
        """
        if sys.flags.optimize:
            raise FatalError("python: -O removes assertions that the Kafka client relies on; start Python without it")
        clients = Clients(bootstrap, rng, access)
        admin = Admin(clients)
        prepared = Topics(topics, admin, topic_prefix)
        try:
            await prepared.prepare(partition_count, create=create)
        except BaseException:
            admin.close()
            await clients.close(CLOSE_S)
            raise
        opened = cls(clients, admin, prepared, rng)
        try:
            await opened.appender.connect()
            yield opened
        finally:
            await opened.close()

    @property
    def partition_count(self) -> int:
        return self._topics.partition_count

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        return self.topics.partitions(topic, self.partition_count)

    async def append(
        self, partition: Partition, key: bytes, value: bytes, *, timeout_s: float = 5.0, headers: Headers = ()
    ) -> None:
        self.topics.check_append(partition, key, value, self.partition_count, headers)
        self._raise_if_ended()
        await self.appender.append(partition, key, value, timeout_s, headers)

    async def read(self, positions: Mapping[Partition, int]) -> AsyncGenerator[Batch, None]:
        self._raise_if_ended()
        reader = KafkaReader(self._clients, self._topics, self._offsets, positions)
        self._readers.add(reader)
        batches = reader.batches()
        try:
            async for batch in batches:
                yield batch
        finally:
            self._readers.discard(reader)
            await batches.aclose()

    async def begin(self, partition: Partition) -> int:
        self._raise_if_ended()
        return (await self._offsets.begins([partition]))[partition]

    async def end(self, partition: Partition) -> int:
        self._raise_if_ended()
        return await self._offsets.records_end(partition)

    async def position_at(self, partition: Partition, time_ms: int) -> int:
        self._raise_if_ended()
        end = await self.end(partition)  # queried first: records appended meanwhile are later
        first = await self._offsets.first_at(partition, time_ms)
        return end if first is None else min(first, end)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._end(LogUnavailable("log: it was closed"))
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        await self.appender.close()
        self._offsets.close()
        self._admin.close()
        await self._clients.close(CLOSE_S)

    def _end(self, why: PlaneError) -> None:
        self._ended = self._ended or why
        self.appender.end(self._ended)
        for reader in self._readers:
            reader.end(self._ended)

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise type(self._ended)(str(self._ended))

    async def _watch(self) -> None:
        """End the log when its topics are not the ones that it opened."""
        try:
            while True:
                await asyncio.sleep(WATCH_S * (0.75 + 0.5 * self._rng.random()))
                try:
                    await self._topics.check()
                except LogUnavailable as error:
                    logger.debug("topics not checked, retrying: %s", error)
        except PlaneError as error:
            logger.critical("log closed after a failed topic check", extra={"error": str(error)})
            self._end(error)
        except Exception as error:
            logger.exception("topic check stopped by an unhandled exception")
            self._end(FatalError(f"topic check: {type(error).__name__}: {error}"))
