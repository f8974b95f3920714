"""Appends to Kafka over fake brokers that acknowledge, fail or hang."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaError

from deploy.composition.topics import TOPICS
from eventstore.errors import AppendUnknown, LogMismatch, LogUnavailable, PlaneError
from eventstore.kafka import appender as appending
from eventstore.kafka.appender import KafkaAppender
from eventstore.kafka.clients import Clients
from eventstore.kafka.topics import Topics
from eventstore.log import CLIQUES, FLEET_0, ZONES, Partition
from tests.support.virtual_loop import run_virtual

ZONES_0 = Partition(ZONES, 0)


class Builder:
    """The batch of a fake producer."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def append(self, *, timestamp: None, key: bytes, value: bytes, headers: Sequence[tuple[str, bytes]]) -> object:
        self.values.append(value)
        return object()


class Brokers:
    """Fake brokers. `batches` has all sent batches in order, and `closed` the numbers of closed producers. A batch with
    the value `fails` fails. No batch is acknowledged while `may_answer` is not set.
    """

    def __init__(self) -> None:
        self.batches: list[tuple[int, str, list[bytes]]] = []
        self.made = 0
        self.closed: list[int] = []
        self.fails = b""
        self.may_answer = asyncio.Event()
        self.may_answer.set()


class Producer:
    """A fake producer of these brokers."""

    def __init__(self, brokers: Brokers) -> None:
        brokers.made += 1
        self._number = brokers.made
        self._brokers = brokers

    def create_batch(self) -> Builder:
        return Builder()

    async def send_batch(self, builder: Builder, topic: str, *, partition: int) -> asyncio.Future[None]:
        self._brokers.batches.append((self._number, topic, builder.values))

        async def answered() -> None:
            await self._brokers.may_answer.wait()
            if self._brokers.fails in builder.values:
                raise KafkaError("no leader")

        return asyncio.ensure_future(answered())

    async def stop(self) -> None:
        self._brokers.closed.append(self._number)

    @property
    def _client(self) -> Any:
        async def close() -> None:
            """No connection is open."""

        return SimpleNamespace(close=close)


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@asynccontextmanager
async def appender_to(brokers: Brokers) -> AsyncIterator[KafkaAppender]:
    class FakeClients(Clients):
        async def started(self, make: Any) -> Any:
            return Producer(brokers)

    def fail(error: PlaneError) -> None:
        raise AssertionError(error)

    topics = cast("Topics", SimpleNamespace(table=TOPICS, name=lambda topic: topic))
    appender = KafkaAppender(FakeClients("", random.Random(1)), topics, fail)
    yield appender
    brokers.may_answer.set()
    appender.end(LogUnavailable("log: it was closed"))
    await appender.close()


@pytest.fixture
async def appender(brokers: Brokers) -> AsyncIterator[KafkaAppender]:
    async with appender_to(brokers) as appender:
        yield appender


async def queued(
    appender: KafkaAppender, *values: bytes, timeout_s: float = 60.0, to: Partition = ZONES_0
) -> list[asyncio.Task[None]]:
    """Start appends of these values to a partition. Returns once they wait in its queue."""
    tasks = [asyncio.create_task(appender.append(to, b"zone", value, timeout_s)) for value in values]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def test_appends_during_a_batch_form_the_next_batch(brokers: Brokers, appender: KafkaAppender) -> None:
    brokers.may_answer.clear()
    appends = await queued(appender, b"a")
    appends += await queued(appender, b"b", b"c")
    assert [values for _, _, values in brokers.batches] == [[b"a"]]
    brokers.may_answer.set()
    await asyncio.gather(*appends)
    assert [values for _, _, values in brokers.batches] == [[b"a"], [b"b", b"c"]]


def batches_of(partition: Partition) -> list[int]:
    """The batch sizes of ten concurrent appends, of twice ten appends 1 ms apart, and of two single appends."""

    async def scenario() -> list[int]:
        clock, brokers = asyncio.get_running_loop().time, Brokers()
        async with appender_to(brokers) as appender:
            await asyncio.gather(*[appender.append(partition, b"", b"v", 60.0) for _ in range(10)])
            for _ in range(2):
                appends = []
                for _ in range(10):
                    appends += await queued(appender, b"v", to=partition)
                    await asyncio.sleep(0.001)
                await asyncio.gather(*appends)
            await asyncio.sleep(2.0)
            await appender.append(partition, b"", b"last of them", 60.0)
            began_s = clock()
            await appender.append(partition, b"", b"alone", 60.0)
            assert clock() == began_s
        return [len(values) for _, _, values in brokers.batches]

    return run_virtual(scenario())


def test_claims_of_one_clique_share_batches() -> None:
    """Claims arrive a moment after each other. Without a linger, all would wait for the round trip of the first."""
    assert batches_of(Partition(CLIQUES, 0)) == [10, 10, 10, 1, 1]


def test_appends_to_zones_do_not_linger() -> None:
    assert batches_of(ZONES_0) == [10, *[1] * 22]


@pytest.mark.parametrize(("most", "waits"), [(5, False), (6, True)])
def test_a_full_kafka_batch_does_not_linger(monkeypatch: pytest.MonkeyPatch, most: int, waits: bool) -> None:
    monkeypatch.setattr(appending, "BATCH_RECORDS", most)

    async def scenario() -> float:
        clock, cliques = asyncio.get_running_loop().time, Partition(CLIQUES, 0)
        async with appender_to(Brokers()) as appender:
            for count in (10, 5):
                began_s = clock()
                await asyncio.gather(*[appender.append(cliques, b"", b"v", 60.0) for _ in range(count)])
        return clock() - began_s

    assert (run_virtual(scenario()) > 0.0) is waits


async def test_partitions_append_independently(brokers: Brokers, appender: KafkaAppender) -> None:
    brokers.may_answer.clear()
    appends = await queued(appender, b"a")
    appends.append(asyncio.create_task(appender.append(FLEET_0, b"", b"f", 60.0)))
    await queued(appender)
    assert [topic for _, topic, _ in brokers.batches] == ["zones", "fleet"]
    brokers.may_answer.set()
    await asyncio.gather(*appends)


async def test_a_producer_is_closed_after_its_first_failure(brokers: Brokers, appender: KafkaAppender) -> None:
    brokers.fails = b"fails"
    with pytest.raises(AppendUnknown, match=r"zones/0: .*no leader"):
        await appender.append(ZONES_0, b"zone", b"fails", 60.0)
    await appender.append(ZONES_0, b"zone", b"after", 60.0)
    assert [(number, values) for number, _, values in brokers.batches] == [(1, [b"fails"]), (2, [b"after"])]
    assert brokers.closed == [1]
    assert (appender.batches, appender.failed_batches) == (1, 1)


async def test_a_queued_append_that_is_cancelled_is_not_sent_and_frees_its_bytes(
    brokers: Brokers, appender: KafkaAppender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "QUEUED_BYTES", 1_000)
    brokers.may_answer.clear()
    appends = await queued(appender, b"under way")
    for _ in range(5):
        cancelled = await queued(appender, bytes(1_000))
        cancelled[0].cancel()
        brokers.may_answer.set()
        await asyncio.gather(*appends)
        await queued(appender)
        brokers.may_answer.clear()
        appends = await queued(appender, b"next")
    brokers.may_answer.set()
    async with asyncio.timeout(60):
        await asyncio.gather(*appends)
    assert [values for _, _, values in brokers.batches] == [[b"under way"], *[[b"next"]] * 5]


async def test_an_append_that_waits_for_queue_space_continues_when_there_is_some(
    brokers: Brokers, appender: KafkaAppender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "QUEUED_BYTES", 1_000)
    brokers.may_answer.clear()
    appends = await queued(appender, b"under way")
    appends += await queued(appender, bytes(1_000), b"waits")
    brokers.may_answer.set()
    async with asyncio.timeout(60):
        await asyncio.gather(*appends)
    assert [values for _, _, values in brokers.batches] == [[b"under way"], [bytes(1_000)], [b"waits"]]


async def test_the_end_of_the_appender_fails_every_waiting_append(
    brokers: Brokers, appender: KafkaAppender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers an append in flight, one in the queue, and one that waits for space in the queue."""
    monkeypatch.setattr(appending, "QUEUED_BYTES", 1_000)
    brokers.may_answer.clear()
    appends = await queued(appender, b"under way")
    appends += await queued(appender, bytes(1_000), b"waits for room")
    appender.end(LogMismatch("topic dpuplane.zones was deleted"))
    async with asyncio.timeout(60):
        ends = await asyncio.gather(*appends, return_exceptions=True)
    assert [type(end) for end in ends] == [LogMismatch] * 3
    with pytest.raises(LogMismatch, match="was deleted"):
        await appender.append(ZONES_0, b"zone", b"after", 60.0)
