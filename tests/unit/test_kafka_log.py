"""Checks of a Kafka log against its cluster: topics must be unchanged, and positions are found by time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition

from deploy.composition.topics import TOPICS
from eventstore.errors import LogMismatch, LogUnavailable
from eventstore.kafka import offsets as kafka_offsets
from eventstore.kafka.admin import Admin, Topic
from eventstore.kafka.clients import CachedClient, Clients
from eventstore.kafka.log import WATCH_S, KafkaLog
from eventstore.kafka.offsets import OffsetLookup
from eventstore.kafka.topics import Topics
from eventstore.log import FLEET_0, Partition
from tests.support.virtual_loop import run_virtual


class Cluster:
    """An Admin of a cluster with the plane's topics. `before_answer` runs before each answer, and may raise."""

    def __init__(self) -> None:
        self.found = {
            f"dpuplane.{spec.name}": Topic(
                f"dpuplane.{spec.name}",
                spec.name.encode(),
                3,
                dict.fromkeys(range(4 if spec.is_keyed else 1), 1),
            )
            for spec in TOPICS
        }
        self.before_answer: Callable[[], None] = lambda: None

    async def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        self.before_answer()
        return {name: topic for name, topic in self.found.items() if name in names}

    async def count_brokers(self) -> int:
        return 3

    def close(self) -> None:
        """No connection is open."""


def topics_of(cluster: Cluster) -> Topics:
    """The topics of the cluster in their present state."""
    topics = Topics(TOPICS, cast("Admin", cluster), "dpuplane")
    topics._take_up(cluster.found, None)
    return topics


def log_of(cluster: Cluster) -> KafkaLog:
    rng = random.Random(1)
    return KafkaLog(Clients("127.0.0.1:1", rng), cast("Admin", cluster), topics_of(cluster), rng)


# -- the topics


async def test_unchanged_topics_pass_the_check() -> None:
    cluster = Cluster()
    await topics_of(cluster).check()


@pytest.mark.parametrize("topic", ["zones", "installs", "replicas"])
async def test_a_recreated_topic_is_a_mismatch_whatever_it_contains(topic: str) -> None:
    cluster = Cluster()
    topics, name = topics_of(cluster), f"dpuplane.{topic}"
    cluster.found[name] = cluster.found[name]._replace(id=b"another")
    with pytest.raises(LogMismatch, match=f"{name} was deleted and re-created"):
        await topics.check()


async def test_a_topic_with_more_partitions_is_a_mismatch() -> None:
    cluster = Cluster()
    topics = topics_of(cluster)
    cluster.found["dpuplane.cliques"] = cluster.found["dpuplane.cliques"]._replace(leaders=dict.fromkeys(range(5), 1))
    with pytest.raises(LogMismatch, match=r"dpuplane\.cliques has 5 partitions and must have 4"):
        await topics.check()


def test_a_broker_that_does_not_know_a_topic_yet_is_asked_again() -> None:
    async def run(answers_without_topic: int) -> None:
        cluster = Cluster()
        topics, asked = topics_of(cluster), 0
        fleet = cluster.found.pop("dpuplane.fleet")

        def show_topic_later() -> None:
            nonlocal asked
            asked += 1
            if asked > answers_without_topic:
                cluster.found["dpuplane.fleet"] = fleet

        cluster.before_answer = show_topic_later
        await topics.check()

    run_virtual(run(3))
    with pytest.raises(LogMismatch, match=r"dpuplane\.fleet was deleted"):
        run_virtual(run(10))


@pytest.mark.virtual_clock
async def test_a_log_is_checked_again_after_outages() -> None:
    cluster = Cluster()

    def fail() -> None:
        raise LogUnavailable("no broker answers")

    log, cluster.before_answer = log_of(cluster), fail
    await asyncio.sleep(10 * WATCH_S)
    log._raise_if_ended()
    cluster.before_answer = lambda: None
    cluster.found["dpuplane.fleet"] = cluster.found["dpuplane.fleet"]._replace(id=b"another")
    await asyncio.sleep(2 * WATCH_S)
    with pytest.raises(LogMismatch, match=r"dpuplane\.fleet was deleted and re-created"):
        await log.end(FLEET_0)
    await log.close()


# -- offsets


async def test_a_record_appended_during_a_lookup_by_time_lies_after_the_position() -> None:
    class Growing:
        """A lookup during which another record is appended with each answer."""

        end = 7

        async def records_end(self, partition: Partition) -> int:
            self.end += 1
            return self.end - 1

        async def first_at(self, partition: Partition, time_ms: int) -> int | None:
            self.end += 1
            return None if time_ms > 1_000 else self.end - 1

        def close(self) -> None:
            """No connection is open."""

    log = log_of(Cluster())
    log._offsets = cast("OffsetLookup", Growing())
    assert await log.position_at(FLEET_0, 2_000) == 7, "the end of the partition before the lookup"
    assert await log.position_at(FLEET_0, 500) == 9
    await log.close()


async def test_the_end_is_fetched_once_after_each_append(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replica asks for every end once per second, and a lookup costs a fetch."""
    fetched: list[int] = []

    async def records_end(consumer: Any, place: TopicPartition, end: int) -> int:
        fetched.append(end)
        return end - 1

    class FakeClients(Clients):
        async def started(self, make: Any) -> Any:
            async def end_offsets(places: list[TopicPartition]) -> dict[TopicPartition, int]:
                return dict.fromkeys(places, ends[0])

            return SimpleNamespace(end_offsets=end_offsets, stop=stop, _client=SimpleNamespace(close=stop))

    async def stop() -> None:
        """No connection is open."""

    monkeypatch.setattr(kafka_offsets, "records_end", records_end)
    clients, ends = FakeClients("", random.Random(1)), [0]
    offsets = OffsetLookup(clients, topics_of(Cluster()))
    assert [await offsets.records_end(FLEET_0) for ends[0] in (0, 5, 5, 8, 8)] == [0, 4, 4, 7, 7]
    assert fetched[-2:] == [5, 8]
    assert len(fetched) <= 3
    offsets.close()
    await clients.close(1.0)


# -- shared clients


async def test_a_client_discarded_twice_does_not_discard_its_successor() -> None:
    class FakeClients(Clients):
        async def started(self, make: Any) -> Any:
            made.append(SimpleNamespace(stop=stop, _client=SimpleNamespace(close=stop)))
            return made[-1]

    async def stop() -> None:
        """No connection is open."""

    made: list[Any] = []
    clients = FakeClients("", random.Random(1))
    cached: CachedClient[Any] = CachedClient(clients, lambda servers, access: None)
    broken = await cached.get()
    cached.discard(broken)
    sound = await cached.get()
    cached.discard(broken)
    assert await cached.get() is sound is made[1]
    cached.close()
    await clients.close(1.0)
