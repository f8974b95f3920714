"""A real Kafka cluster for tests marked `kafka`: three local brokers, or an external cluster.

`KAFKA_BOOTSTRAP_SERVERS` names an external cluster; tests that kill brokers (fixture `kafka_brokers`) are then skipped.
Each test creates its topics under a prefix of its own and removes them afterwards.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from deploy.composition.topics import TOPICS
from deploy.kafka.jars import cache_folder
from eventstore.kafka.admin import Admin, Topic
from eventstore.kafka.clients import Clients
from eventstore.kafka.log import KafkaLog
from eventstore.log import EventLog, Partition
from tests.contract.engine import LogUnderTest
from tests.support.kafka_operator import Operator
from tests.support.struck_brokers import StruckBrokers

EXTERNAL = "KAFKA_BOOTSTRAP_SERVERS"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if EXTERNAL not in os.environ:
        return
    killing = [item for item in items if "kafka_brokers" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=killing)
    items[:] = [item for item in items if item not in killing]


@pytest.fixture(scope="session")
def own_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StruckBrokers]:
    """Three brokers for the whole session; use `kafka_cluster` or `kafka_brokers`."""
    brokers = StruckBrokers(tmp_path_factory.mktemp("kafka"), cache_folder(os.environ))
    with asyncio.Runner() as runner:
        try:
            runner.run(brokers.start())
            yield brokers
        finally:
            runner.run(brokers.stop())


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> str:
    """Addresses of a cluster: `HOST:PORT,...`."""
    if external := os.environ.get(EXTERNAL):
        return external
    brokers: StruckBrokers = request.getfixturevalue("own_brokers")
    return brokers.bootstrap


@pytest.fixture
async def kafka_brokers(own_brokers: StruckBrokers) -> AsyncIterator[StruckBrokers]:
    """StruckBrokers that a test may kill and pause. They are restored after the test."""
    yield own_brokers
    await own_brokers.heal()


@pytest.fixture
async def kafka_log(kafka_cluster: str) -> AsyncIterator[KafkaUnderTest]:
    """A log under the test's own prefix, not opened yet."""
    log = KafkaUnderTest(kafka_cluster)
    yield log
    await log.aclose()


class KafkaUnderTest(LogUnderTest):
    """One topic prefix in a cluster, opened and damaged as a test asks."""

    patience_s = 90.0

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.prefix = f"test-{random.SystemRandom().getrandbits(64):016x}"
        self.operator = Operator(bootstrap, self.prefix)
        self._open = AsyncExitStack()

    async def open_kafka(self, partition_count: int | None = None, *, create: bool = True) -> KafkaLog:
        """Open the log, with its own partition count unless another is given."""
        log = KafkaLog.open(
            TOPICS,
            self.bootstrap,
            topic_prefix=self.prefix,
            partition_count=self.partition_count if partition_count is None else partition_count,
            rng=random.Random(7),
            create=create,
        )
        return await self._open.enter_async_context(log)

    async def open(self, *, partition_count: int | None = None) -> EventLog:
        return await self.open_kafka(partition_count)

    async def described(self) -> dict[str, Topic]:
        """The existing topics, as the cluster describes them."""
        clients = Clients(self.bootstrap, random.Random(7))
        admin = Admin(clients)
        try:
            return await admin.topics([self.operator.topic(topic) for topic in TOPICS.names])
        finally:
            admin.close()
            await clients.close(within_s=1.0)

    async def truncate(self, partition: Partition, position: int) -> None:
        await self.operator.truncate(partition, position, self.partition_count)

    async def recreate(self) -> None:
        await self.operator.delete()
        await self.operator.create(self.partition_count)

    async def expire(self, log: EventLog, partition: Partition, position: int) -> None:
        await self.operator.expire(partition, position)

    async def aclose(self) -> None:
        await self._open.aclose()
        await self.operator.delete()
