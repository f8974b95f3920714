"""Each role with exactly the grants of `topics acls`: the plane works, and no other access is possible."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    KafkaError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)

from deploy.composition.roles import ALL_ROLES
from deploy.composition.topics import TOPICS
from deploy.kafka.acls import GRANTED_ROLES, arguments_of, grants_of
from deploy.kafka.security import KafkaSecurity
from eventstore.errors import LogUnavailable
from eventstore.kafka.log import KafkaLog
from tests.support.kubernetes.api_server import ApiServer
from tests.support.planes import Process, run, serving, started
from tests.support.secure_kafka import PREFIX, SecureKafka

pytestmark = pytest.mark.kafka

GRANTED = tuple(role for role in GRANTED_ROLES if role != ALL_ROLES)
DENIED = 29


@pytest.fixture(scope="module")
def granted(secure_kafka: SecureKafka) -> SecureKafka:
    """The broker, with a principal for every role."""
    every = [each for role in GRANTED for each in arguments_of(TOPICS, role, f"User:{role}", PREFIX)]
    asyncio.run(secure_kafka.grant(every))
    return secure_kafka


@asynccontextmanager
async def plane(kafka: SecureKafka, logs: Path, kubeconfig: Path) -> AsyncIterator[Process]:
    """Processes of every role and simulated DPUs. Yields the process with the API."""
    edge = ("--kubeconfig", str(kubeconfig))

    def role(name: str, *more: str) -> Any:
        return serving(*kafka.flags(name), "--role", name, "--name", name, *more, stderr=logs / name)

    async with role("api", "--partitions", "2") as api, role("relay") as relay, role("provisioner"), role("decisions"):
        simulate = ("simulator", "--relay", relay.address("agents"), "--dpus-per-zone", "1")
        async with (
            role("kubernetes", *edge),
            started(*simulate, "--server", api.address("api"), stderr=logs / "simulator"),
        ):
            yield api


@pytest.mark.timeout(300)
async def test_every_role_works_with_its_grants_and_can_do_nothing_else(
    granted: SecureKafka, tmp_path: Path, control_plane: ApiServer
) -> None:
    async with plane(granted, tmp_path, control_plane.kubeconfig()) as api:
        address = api.address("api")
        joined = await run("nodes", "join", "n1", "--zone", "rack-1", "--address", "10.0.0.1", server=address)
        assert joined.status == 0, joined
        waited = await _until_equal(granted, address)
        assert waited["devices_equal"] == 1
        for role in GRANTED:
            async with _Principal(granted.bootstrap, granted.access(role)) as principal:
                assert await principal.allowed() == _granted(role), role
                assert await principal.other_actions() == [], role
    for role in GRANTED:  # no role is ever refused an access that it needs
        said = (tmp_path / role).read_text() if role != "reader" else ""
        assert "uthorization" not in said, said


async def test_an_error_without_a_grant_names_the_topic(granted: SecureKafka) -> None:
    stranger = granted.access("stranger").options
    with pytest.raises(LogUnavailable, match=f"topic {PREFIX}.*denies access"):
        async with KafkaLog.open(
            TOPICS, granted.bootstrap, topic_prefix=PREFIX, rng=random.Random(1), create=False, access=stranger
        ):
            pass


async def _until_equal(kafka: SecureKafka, server: str) -> dict[str, Any]:
    """The result of `verify` as the reader role, after at least one DPU has its table."""
    for _ in range(30):
        ran = await run("verify", *kafka.flags("reader"), "--output", "json", server=server)
        if ran.status == 0 and ran.json()["devices_equal"]:
            return dict(ran.json())
    raise AssertionError(ran)


def _granted(role: str) -> set[tuple[str, str]]:
    """The grants of a role for topics: (Read or Write, topic)."""
    return {
        (operation, topic)
        for grant in grants_of(TOPICS, role)
        for operation in grant.operations
        for topic in grant.topics
        if operation in {"Read", "Write"}
    }


class _Principal:
    """A principal that tries every access with the client library alone."""

    def __init__(self, bootstrap: str, access: KafkaSecurity) -> None:
        self._options: dict[str, Any] = {"bootstrap_servers": bootstrap, **access.options()}

    async def __aenter__(self) -> _Principal:
        self._producer = AIOKafkaProducer(enable_idempotence=False, **self._options)
        self._admin = AIOKafkaAdminClient(**self._options)
        for client in (self._producer, self._admin):
            await client.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.stop()
        await self._admin.close()

    async def allowed(self) -> set[tuple[str, str]]:
        """The topics that can be read and written. The written record is one that every fold skips."""
        found = set()
        for topic in TOPICS.names:
            name = f"{PREFIX}.{topic}"
            if await self._may_read(name):
                found.add(("Read", topic))
            if await self._may_write(name):
                found.add(("Write", topic))
        return found

    async def _may_read(self, name: str) -> bool:
        """Whether a topic can be read. Each try has a new consumer, because a refused one repeats its first error."""
        place = TopicPartition(name, 0)
        async with AIOKafkaConsumer(auto_offset_reset="none", **self._options) as consumer:
            consumer.assign([place])
            consumer.seek(place, 1 << 40)
            try:
                await consumer.getmany(timeout_ms=10_000)
            except OffsetOutOfRangeError:
                return True
            except TopicAuthorizationFailedError:
                return False
        raise AssertionError(f"a read of {name} had neither a result nor an error")

    async def _may_write(self, name: str) -> bool:
        try:
            await self._producer.send_and_wait(name, b"", key=b"probe", partition=0)
        except TopicAuthorizationFailedError:
            return False
        return True

    async def other_actions(self) -> list[str]:
        """The administrative actions that were not refused."""
        name = f"{PREFIX}.zones"
        alter = ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "1"})
        actions = {
            "delete the topic": self._admin.delete_topics([name]),
            "alter its settings": self._admin.alter_configs([alter]),
            "delete records": self._admin.delete_records({TopicPartition(name, 0): RecordsToDelete(before_offset=1)}),
            "make another topic": self._admin.create_topics([NewTopic("elsewhere", 1, 1)]),
        }
        return [deed for deed, doing in actions.items() if not await _is_denied(doing)]


async def _is_denied(doing: Any) -> bool:
    try:
        answers = await doing
    except KafkaError as error:
        return error.errno in {DENIED, 31}
    return str(DENIED) in str(answers)
