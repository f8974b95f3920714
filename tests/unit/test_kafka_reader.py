"""A reader of Kafka that begins again: what proves to it that the log is still the one that it has read."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from eventstore.errors import LogMismatch
from eventstore.kafka.clients import Clients
from eventstore.kafka.offsets import Offsets
from eventstore.kafka.reader import Reader
from eventstore.kafka.topics import Topics
from eventstore.log import DECISIONS, FLEET, Partition


class Consumer:
    """Has these offsets of a partition; the connection breaks when they are read."""

    def __init__(self, offsets: list[int]) -> None:
        self._offsets = offsets

    def assign(self, places: list[TopicPartition]) -> None:
        [self._place] = places

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._offsets = [each for each in self._offsets if each >= offset]

    async def getmany(self, **_: int) -> Mapping[TopicPartition, list[Any]]:
        if not self._offsets:
            raise KafkaError("broken")
        found, self._offsets = self._offsets, []
        return {
            self._place: [SimpleNamespace(offset=at, timestamp=at, key=b"k", value=b"v", headers=()) for at in found]
        }

    def last_poll_timestamp(self, place: TopicPartition) -> int:
        return 0

    async def stop(self) -> None:
        """Nothing is open."""

    @property
    def _client(self) -> Any:
        async def close() -> None:
            """Nothing is open."""

        return SimpleNamespace(close=close)


async def read(partition: Partition, *connections: list[int]) -> list[int]:
    """The offsets that are read, one connection after the other."""
    consumers = iter(connections)

    class Scripted(Clients):
        async def started(self, make: Any) -> Any:
            return Consumer(next(consumers))

        async def pause(self) -> None:
            """There is nobody to be gentle with."""

    class Known:
        async def begins(self, _: Any) -> dict[Partition, int]:
            return {partition: 0}

        async def ends(self, _: Any) -> dict[Partition, int]:
            return {partition: 100}

    topics = cast("Topics", SimpleNamespace(name=lambda topic: topic))
    reader = Reader(Scripted("", random.Random(1)), topics, cast("Offsets", Known()), {partition: 0})
    found: list[int] = []
    async with aclosing(reader.batches()) as batches:
        async for _, records in batches:
            found += [record.offset for record in records]
            if found[-1] == connections[-1][-1]:
                return found
    raise AssertionError("reading never ends by itself")


async def test_a_reader_goes_on_behind_the_record_that_it_has_read_last() -> None:
    assert await read(Partition(FLEET, 0), [0, 1], [0, 1, 2]) == [0, 1, 2]


async def test_a_record_that_is_gone_ends_a_reader() -> None:
    with pytest.raises(LogMismatch, match="the record at 1 is not the one"):
        await read(Partition(FLEET, 0), [0, 1], [0, 2])


async def test_a_decision_that_brokers_have_dropped_for_its_copy_ends_no_reader() -> None:
    assert await read(Partition(DECISIONS, 0), [0, 1], [0, 2, 3]) == [0, 1, 2, 3]
