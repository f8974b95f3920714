"""Changes that a Kafka operator may make to the topics of a log without the plane's knowledge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.metadata import MetadataRequest

from deploy.composition.topics import TOPICS
from eventstore.kafka.topics import settings_of
from eventstore.log import Partition

NO_LEADER = -1


class Operator:
    """Changes topics under one prefix. A change is visible to every broker when the method returns."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix

    def topic(self, topic: str) -> str:
        """The name of the topic in the cluster."""
        return f"{self._prefix}.{topic}"

    async def create(
        self,
        partition_count: int,
        changed: Mapping[str, Mapping[str, str]] | None = None,
        *,
        copies: int | None = None,
    ) -> None:
        """Create every topic as the log would, except for the given settings by topic and the replication factor."""
        copies = copies or await self.copies()
        topics = [
            NewTopic(
                self.topic(topic),
                len(TOPICS.partitions(topic, partition_count)),
                copies,
                topic_configs=_settings(topic, copies) | dict((changed or {}).get(topic, {})),
            )
            for topic in TOPICS.names
        ]
        async with self._admin() as admin:
            answer = await admin.create_topics(topics)
        assert not any(code for _, code, *_ in answer.topic_errors), answer
        await self._until_known(len(TOPICS.names))

    async def delete(self) -> None:
        async with self._admin() as admin:
            await admin.delete_topics([self.topic(topic) for topic in TOPICS.names])
        await self._until_known(0)

    async def alter(self, topic: str, changed: Mapping[str, str]) -> None:
        """Set a topic's usual settings, with these overrides."""
        settings = _settings(topic, await self.copies()) | dict(changed)
        async with self._admin() as admin:
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, self.topic(topic), settings)])

    async def add_partitions(self, topic: str, count: int) -> None:
        async with self._admin() as admin:
            await admin.create_partitions({self.topic(topic): NewPartitions(count)})

    async def expire(self, partition: Partition, position: int) -> None:
        async with self._admin() as admin:
            await admin.delete_records({self._place(partition): RecordsToDelete(position)})

    async def truncate(self, partition: Partition, position: int, partition_count: int) -> None:
        """Replace the topics by new ones with the first records of this partition, timestamps included."""
        place = self._place(partition)
        async with AIOKafkaConsumer(bootstrap_servers=self._bootstrap) as consumer:
            consumer.assign([place])
            consumer.seek(place, 0)
            kept = []
            while (record := await consumer.getone()).offset < position:
                kept.append(record)
        await self.delete()
        await self.create(partition_count, {partition.topic: {"message.timestamp.type": "CreateTime"}})
        async with AIOKafkaProducer(bootstrap_servers=self._bootstrap, acks="all") as producer:
            for record in kept:
                await producer.send_and_wait(
                    place.topic, record.value, record.key, partition=place.partition, timestamp_ms=record.timestamp
                )
        await self.alter(partition.topic, {})

    async def leader(self, partition: Partition) -> int:
        """The broker that leads a partition; waits until one does."""
        async with self._client() as client, asyncio.timeout(90):
            await client.set_topics([self.topic(partition.topic)])
            while (leader := client.cluster.leader_for_partition(self._place(partition))) in (None, NO_LEADER):
                await asyncio.sleep(0.02)
                await client.force_metadata_update()
        return int(leader)

    async def copies(self) -> int:
        async with self._client() as client:
            return min(3, len(client.cluster.brokers()))

    def _place(self, partition: Partition) -> TopicPartition:
        return TopicPartition(self.topic(partition.topic), partition.number)

    async def _until_known(self, count: int) -> None:
        """Wait until every broker has metadata of so many of the topics."""
        request = MetadataRequest([self.topic(topic) for topic in TOPICS.names], False)
        async with self._client() as client, asyncio.timeout(90):
            for broker in client.cluster.brokers():
                while True:
                    answer = await client.send(broker.nodeId, request)
                    known = [topic for code, topic, _, partitions in answer.topics if code == 0 and partitions]
                    if len(known) == count:
                        break
                    await asyncio.sleep(0.02)

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[AIOKafkaClient]:
        client = AIOKafkaClient(bootstrap_servers=self._bootstrap)
        await client.bootstrap()
        try:
            yield client
        finally:
            await client.close()


def _settings(topic: str, copies: int) -> dict[str, str]:
    return {setting.name: setting.value for setting in settings_of(TOPICS[topic], copies)}
