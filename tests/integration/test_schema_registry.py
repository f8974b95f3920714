"""All topics are read from a real Kafka by Confluent's client and deserializer, given only two addresses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import DeserializingConsumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer

from deploy.composition.topics import TOPICS
from eventstore.avro.codec import encode
from eventstore.log import DECISIONS, Partition
from tests.support.kafka import KafkaUnderTest
from tests.support.planes import run, serving
from tests.support.samples import EVENT_TYPES, sample

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

TOPICS_IN_AVRO = (*TOPICS.folded, DECISIONS)
WITHIN_S = 60.0
DECIDED = 3
"""The least number of decisions: of a join, of its forward, and of a claim."""


def plain(event: Any) -> Any:
    """An event as plain Avro values."""
    return msgspec.to_builtins(event, builtin_types=(bytes,))


def consumed(bootstrap: str, registry: str, ends: Mapping[tuple[str, int], int]) -> dict[str, list[Any]]:
    """Every record before these ends, by topic, decoded by Confluent's client."""
    decode = AvroDeserializer(SchemaRegistryClient({"url": registry}))
    found: dict[str, list[Any]] = {topic: [] for topic, _ in ends}
    consumer = DeserializingConsumer(
        {"bootstrap.servers": bootstrap, "group.id": "analyst", "value.deserializer": decode}
    )
    consumer.assign([TopicPartition(topic, number, 0) for (topic, number), end in ends.items() if end])
    left, until_s = sum(ends.values()), time.monotonic() + WITHIN_S
    while left > 0 and time.monotonic() < until_s:
        message = consumer.poll(1.0)
        if message is not None and message.offset() < ends[message.topic(), message.partition()]:
            found[message.topic()].append(message.value())
            left -= 1
    consumer.close()
    assert not left, f"{left} records were not read"
    return found


async def test_confluent_s_client_reads_every_topic(kafka_log: KafkaUnderTest, tmp_path: Path) -> None:
    on = ("--kafka", kafka_log.bootstrap, "--topic-prefix", kafka_log.prefix, "--partitions", "3")
    async with (
        serving(*on, "--role", "api", stderr=tmp_path / "api") as api,
        serving(*on, "--role", "decisions", stderr=tmp_path / "decisions"),
    ):
        server = api.address("api")
        assert (await run("nodes", "join", "n1", "--zone", "z1", "--address", "10.0.0.1", server=server)).status == 0
        assert (await run("cliques", "claim", "training", "z1", "n1", server=server)).status == 0
        log = await kafka_log.open_kafka(3)
        for name in EVENT_TYPES:
            for topic in TOPICS_IN_AVRO:
                await log.append(Partition(topic, 0), b"sample", encode(sample(name)))
        async with asyncio.timeout(WITHIN_S):
            while sum([await log.end(part) for part in log.partitions(DECISIONS)]) < len(EVENT_TYPES) + DECIDED:
                await asyncio.sleep(0.2)
        partitions = [partition for topic in TOPICS_IN_AVRO for partition in log.partitions(topic)]
        ends = {(f"{kafka_log.prefix}.{part.topic}", part.number): await log.end(part) for part in partitions}
        found = await asyncio.to_thread(consumed, kafka_log.bootstrap, f"http://{api.address('http')}", ends)
    samples = {name: plain(sample(name)) for name in EVENT_TYPES}
    for topic in TOPICS_IN_AVRO:
        there = found[f"{kafka_log.prefix}.{topic}"]
        assert all(each in there for each in samples.values())
    joins = [each for each in found[f"{kafka_log.prefix}.zones"] if each.get("names") == ["n1"]]
    assert [join["zone"] for join in joins] == ["z1"]
    decided = {each["event"] for each in found[f"{kafka_log.prefix}.decisions"] if each.get("outcome") == "done"}
    assert {"NodesJoined", "IndicesClaimed"} <= decided
