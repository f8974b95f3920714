"""Kafka clients: the effective settings of the library are checked, and errors name the brokers."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from eventstore.errors import FatalError, LogUnavailable
from eventstore.kafka import admin as kafka_admin
from eventstore.kafka.admin import Admin, Metadata
from eventstore.kafka.clients import (
    CONSUMER,
    PRODUCER,
    Clients,
    check_consumer,
    check_producer,
    make_consumer,
    make_producer,
)
from eventstore.kafka.topics import Setting


async def test_an_error_names_the_brokers_that_do_not_answer() -> None:
    clients = Clients("127.0.0.1:1,127.0.0.1:2", random.Random(1))
    with pytest.raises(LogUnavailable) as caught:
        await clients.started(make_producer)
    await clients.close(1.0)
    assert str(caught.value) == (
        "Kafka at 127.0.0.1:1,127.0.0.1:2: no broker answers; check that brokers run "
        "at these addresses and accept PLAINTEXT there"
    )


class Moved:
    """A client of a cluster whose brokers have all moved. The first client knows only addresses that refuse it."""

    made = 0
    _security_protocol = "PLAINTEXT"

    def __init__(self, **_: object) -> None:
        Moved.made += 1
        self._number = Moved.made
        self.cluster = SimpleNamespace(brokers=lambda: [SimpleNamespace(nodeId=1), SimpleNamespace(nodeId=2)])

    async def bootstrap(self) -> None:
        """The bootstrap address is still valid."""

    async def ready(self, node: int) -> bool:
        return self._number > 1

    async def send(self, node: int, request: Any) -> Any:
        return SimpleNamespace(brokers=[1, 2])

    async def close(self) -> None:
        """No connection is open."""


async def test_brokers_that_have_moved_are_found_by_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Moved, "made", 0)
    monkeypatch.setattr(kafka_admin, "AIOKafkaClient", Moved)
    clients = Clients("127.0.0.1:1", random.Random(1))
    assert await Admin(clients).count_brokers() == 2
    assert Moved.made == 2
    await clients.close(1.0)


async def test_the_settings_of_the_plane_are_in_effect() -> None:
    await make_producer(["127.0.0.1:1"], {}).stop()
    await make_consumer(["127.0.0.1:1"], {}).stop()


@pytest.mark.parametrize(
    ("setting", "value"),
    [("acks", 1), ("acks", 0), ("enable_idempotence", True), ("max_batch_size", 16_384)],
)
async def test_a_producer_with_another_setting_is_refused(setting: str, value: object) -> None:
    producer = AIOKafkaProducer(**{**PRODUCER, setting: value})
    with pytest.raises(FatalError, match=setting):
        check_producer(producer)
    await producer.stop()


async def test_a_compressing_producer_is_refused() -> None:
    producer = AIOKafkaProducer(**{**PRODUCER, "compression_type": "gzip"})
    with pytest.raises(FatalError, match="compression_type"):
        check_producer(producer)
    await producer.stop()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("group_id", "group"),
        ("enable_auto_commit", True),
        ("auto_offset_reset", "latest"),
        ("isolation_level", "read_committed"),
        ("check_crcs", False),
    ],
)
async def test_a_consumer_with_another_setting_is_refused(setting: str, value: object) -> None:
    consumer = AIOKafkaConsumer(**{**CONSUMER, setting: value})
    with pytest.raises(FatalError, match=f"{setting}.*{value!r}"):
        check_consumer(consumer)
    await consumer.stop()


@pytest.mark.parametrize(
    ("found", "allowed"), [("10", True), ("11", True), ("-1", True), ("9", False), ("", False), ("many", False)]
)
def test_a_setting_with_a_lower_bound_allows_larger_and_unlimited_values(found: str, allowed: bool) -> None:
    assert Setting("retention.ms", "10", is_least=True).allows(found) is allowed


@pytest.mark.parametrize(("found", "allowed"), [("-1", True), ("10", False)])
def test_an_exact_setting_allows_one_value(found: str, allowed: bool) -> None:
    assert Setting("retention.ms", "-1").allows(found) is allowed


@pytest.mark.parametrize("spoken", [(0, 11), (13, 14)])
def test_brokers_that_do_not_report_topic_ids_are_refused(spoken: tuple[int, int]) -> None:
    with pytest.raises(
        FatalError, match=rf"Metadata versions {spoken[0]} to {spoken[1]}, and 12 is required \(Kafka 3\.1"
    ):
        Metadata(["zones"]).prepare({Metadata.API_KEY: spoken})


def test_brokers_that_report_topic_ids_are_accepted() -> None:
    assert Metadata(["zones"]).prepare({Metadata.API_KEY: (0, 13)}).API_VERSION == 12
