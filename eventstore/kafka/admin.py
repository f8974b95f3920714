"""Queries the cluster about topics: which exist, with their ids, partitions, replicas and settings.

A topic that was deleted and re-created has its old name and a new id. aiokafka has no request that returns topic ids,
so this module implements a later version of Metadata itself (version 12, since Kafka 3.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from random import Random
from typing import Any, NamedTuple

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, TopicAuthorizationFailedError, for_code
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.admin import AlterConfigsRequest, CreateTopicsRequest, DescribeConfigsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from eventstore.errors import FatalError, LogUnavailable
from eventstore.kafka.clients import CLIENT, REQUEST_MS, CachedClient, Clients, check_security, reason

_ATTEMPTS = 3
_TOPIC_RESOURCE = 2
_NO_ID = bytes(16)
_METADATA = 12


class _Uuid(AbstractType[bytes]):  # type: ignore[misc]
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


class _MetadataResponse(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = _METADATA
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString()),
                ("port", Int32),
                ("rack", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString()),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("in_sync", CompactArray(Int32)),
                        ("offline", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _MetadataStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = _METADATA
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("name", CompactString()), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class Metadata(Request[_MetadataStruct]):  # type: ignore[misc]
    """Metadata request for topics by these names."""

    API_KEY = 3

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def prepare(self, versions: dict[int, tuple[int, int]]) -> _MetadataStruct:
        """Raises FatalError if the broker does not support the one version that returns topic ids."""
        oldest, newest = versions.get(self.API_KEY, (_METADATA, _METADATA))
        if not oldest <= _METADATA <= newest:
            raise FatalError(
                f"kafka: brokers support Metadata versions {oldest} to {newest}, and {_METADATA} is required "
                "(Kafka 3.1 or later)"
            )
        struct: _MetadataStruct = super().prepare(versions)
        return struct

    def build(self, request_struct_class: type[_MetadataStruct]) -> _MetadataStruct:
        return request_struct_class([(_NO_ID, name, {}) for name in self._names], False, False, {})


class Topic(NamedTuple):
    """A topic as described by the cluster."""

    name: str
    id: bytes
    replicas: int
    """Number of replicas of the partition with the fewest replicas."""
    leaders: Mapping[int, int]
    """Leading broker of each partition, -1 for none."""

    @property
    def has_all_leaders(self) -> bool:
        return -1 not in self.leaders.values()


class NewTopic(NamedTuple):
    """The specification of a topic to create."""

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]


class _Connection:
    """A connection to the cluster, for requests that any broker can answer."""

    def __init__(self, servers: list[str], access: Mapping[str, Any], rng: Random) -> None:
        self._rng = rng
        self._client = AIOKafkaClient(bootstrap_servers=servers, **CLIENT, **access)
        check_security(self._client, access)

    async def start(self) -> None:
        await self._client.bootstrap()

    async def stop(self) -> None:
        await self._client.close()

    async def ask(self, request: Request[Any]) -> Any:
        """Send a request to the brokers in turn and return the first answer: the cluster may still list a broker that
        is down.
        """
        brokers = [broker.nodeId for broker in self._client.cluster.brokers()]
        for node in self._rng.sample(brokers, len(brokers)):
            if await self._client.ready(node):
                return await self._client.send(node, request)
        raise LogUnavailable("kafka: no broker of the cluster accepts connections")


class Admin:
    """Requests to the cluster. Each method raises LogUnavailable if the cluster does not answer in time."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._connection: CachedClient[_Connection] = CachedClient(
            clients, lambda servers, access: _Connection(servers, access, clients.rng)
        )

    @property
    def server_count(self) -> int:
        """Number of bootstrap servers."""
        return self._clients.server_count

    async def count_brokers(self) -> int:
        """Number of brokers at the moment."""
        return len((await self._ask(Metadata([]))).brokers)

    async def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """The topics with these names that exist, by name."""
        answer = await self._ask(Metadata(names))
        found: dict[str, Topic] = {}
        for error, name, topic_id, _, partitions, *_ in answer.topics:
            if error == TopicAuthorizationFailedError.errno:
                raise LogUnavailable(
                    f"topic {name}: Kafka denies access; `dpuplane topics acls` prints the required ACLs"
                )
            if error == 0 and partitions:
                replicas = min(len(each[4]) for each in partitions)
                found[name] = Topic(name, topic_id, replicas, {each[1]: each[2] for each in partitions})
        return found

    async def create(self, topics: Sequence[NewTopic]) -> None:
        """Create topics; topics that another process created meanwhile stay unchanged. FatalError if they cannot be
        created.
        """
        wanted: list[tuple[str, int, int, list[int], list[tuple[str, str]]]] = [
            (each.name, each.partitions, each.replicas, [], list(each.settings.items())) for each in topics
        ]
        answer = await self._ask(CreateTopicsRequest(wanted, REQUEST_MS, False))
        for name, code, message, *_ in answer.topic_errors:
            error = for_code(code)
            if code in (0, TopicAlreadyExistsError.errno):
                continue
            if error.retriable:
                raise LogUnavailable(f"topic {name} was not created: {message or error.__name__}")
            raise FatalError(f"topic {name} cannot be created: {message or error.__name__}")

    async def alter(self, topics: Sequence[NewTopic]) -> None:
        """Set exactly these settings of topics. LogUnavailable if the cluster refuses."""
        wanted = [(_TOPIC_RESOURCE, each.name, list(each.settings.items())) for each in topics]
        answer = await self._ask(AlterConfigsRequest(wanted, False))
        for code, message, _, name in answer.resources:
            if code:
                raise LogUnavailable(f"settings of topic {name} are unavailable: {message or for_code(code).__name__}")

    async def settings(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """The effective settings of each topic, whatever level they were set at."""
        answer = await self._ask(DescribeConfigsRequest([(_TOPIC_RESOURCE, name, None) for name in names], False))
        found: dict[str, dict[str, str]] = {}
        for code, message, _, name, entries in answer.resources:
            if code:
                raise LogUnavailable(f"settings of topic {name} are unavailable: {message or for_code(code).__name__}")
            found[name] = {entry[0]: entry[1] for entry in entries}
        return found

    def close(self) -> None:
        self._connection.close()

    async def _ask(self, request: Request[Any]) -> Any:
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._ask_once(request)
            except LogUnavailable:
                await self._clients.pause()  # one broker of several may be down
        return await self._ask_once(request)

    async def _ask_once(self, request: Request[Any]) -> Any:
        connection = await self._connection.get()
        try:
            return await connection.ask(request)
        except LogUnavailable:  # all brokers known to the client are down
            self._connection.discard(connection)
            raise
        except (KafkaError, OSError, TimeoutError) as error:
            self._connection.discard(connection)
            raise LogUnavailable(f"Kafka: {reason(error)}") from error
