"""The topics that hold the log: their names, the settings that the guarantees need, and a check that they stay so.

Missing topics are created. A topic is refused if one of its settings would lose, drop or rewrite records. The error has
the name of the setting and the required value. Once a log is open, a topic that was deleted, re-created or
repartitioned ends it, because positions in it are no longer valid.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from eventstore.errors import LogMismatch, LogMissing, LogUnavailable
from eventstore.kafka.admin import Admin, NewTopic, Topic
from eventstore.kafka.clients import BATCH_BYTES, Access, Clients, plaintext
from eventstore.log import DEFAULT_PARTITION_COUNT
from eventstore.topics import TopicSpec, TopicTable

logger = logging.getLogger(__name__)

T = TypeVar("T")

REPLICATION_FACTOR = 3
MIN_IN_SYNC_REPLICAS = 2
"""Replicas that have a record before it is acknowledged."""
_PREPARE_S = 30.0
_BROKERS_S = 15.0
_SOON_S = 0.05
_GONE_CHECKS = 3
_GONE_CHECK_S = 0.5


class Setting(NamedTuple):
    """A topic setting. Existing topics must have this value, or, with `is_least`, this value, a larger one or
    unlimited.
    """

    name: str
    value: str
    is_least: bool = False

    def allows(self, found: str) -> bool:
        if self.is_least and found.lstrip("-").isdigit():
            return int(found) >= int(self.value) or int(found) == -1
        return found == self.value


def settings_of(spec: TopicSpec, replicas: int) -> tuple[Setting, ...]:
    """The required settings of a topic with this many replicas. With `compression.type` set to `uncompressed`, brokers
    decompress the compressed batches of other writers. So no reader gets a batch that is small on the wire and huge in
    memory.
    """
    kept_ms = spec.retention_ms
    return (
        Setting("cleanup.policy", "compact,delete" if spec.is_compacted else "delete"),
        Setting("retention.ms", "-1") if kept_ms is None else Setting("retention.ms", str(kept_ms), is_least=True),
        Setting("retention.bytes", "-1"),
        Setting("min.insync.replicas", str(min(MIN_IN_SYNC_REPLICAS, replicas)), is_least=True),
        Setting("unclean.leader.election.enable", "false"),
        Setting("message.timestamp.type", "LogAppendTime"),
        Setting("compression.type", "uncompressed"),
        Setting("max.message.bytes", str(BATCH_BYTES), is_least=True),
    )


class Topics:
    """The topics of one log. `partition_count` and ids are those found by `prepare`."""

    def __init__(self, table: TopicTable, admin: Admin, prefix: str) -> None:
        self.table = table
        self._admin = admin
        self._prefix = prefix
        self._names = {topic: f"{prefix}.{topic}" for topic in table.names}
        self._keyed = next(self._names[spec.name] for spec in table if spec.is_keyed)
        self._ids: dict[str, bytes] = {}
        self.partition_count = 0

    def name(self, topic: str) -> str:
        """The name of one of our topics in the cluster."""
        return self._names[topic]

    async def prepare(self, partition_count: int | None, *, create: bool) -> None:
        """Create missing topics and check existing ones. LogMismatch names the fault.

        Without `create`, LogMissing names the missing topics. An existing log must have `partition_count`, if one is
        given.
        """
        try:
            async with asyncio.timeout(_PREPARE_S):
                found = await self._admin.topics(self._wanted())
                if create and len(found) < len(self._names):
                    found = await self._create(found, partition_count)
                self._take_up(found, partition_count)
                copies = min(REPLICATION_FACTOR, await self._admin.count_brokers())
                settings = await _retry_while_unavailable(lambda: self._admin.settings(self._wanted()))
                self._check_settings(found, copies, settings)
        except TimeoutError as error:
            raise LogUnavailable(f"topics {', '.join(self._wanted())} were not ready in {_PREPARE_S:.0f} s") from error

    async def check(self) -> None:
        """Raise LogMismatch unless the topics are still those that `prepare` found or created."""
        found = await self._admin.topics(self._wanted())
        for _ in range(_GONE_CHECKS):
            if len(found) == len(self._names):
                break
            await asyncio.sleep(_GONE_CHECK_S)  # a broker that has just restarted may not know all topics yet
            found = await self._admin.topics(self._wanted())
        for name, known in self._ids.items():
            if name not in found:
                raise LogMismatch(f"topic {name} was deleted")
            if found[name].id != known:
                raise LogMismatch(f"topic {name} was deleted and re-created: it is another log")
        self._check_partitions(found)

    def _take_up(self, found: Mapping[str, Topic], partition_count: int | None) -> None:
        missing = [name for name in self._wanted() if name not in found]
        if missing:
            raise LogMissing(
                f"topic {', '.join(missing)} is missing: start a process with role all or api, which creates it"
            )
        self.partition_count = len(found[self._keyed].leaders) if partition_count is None else partition_count
        self._check_partitions(found)
        self._ids = {name: topic.id for name, topic in found.items()}

    def _wanted(self) -> list[str]:
        return list(self._names.values())

    async def _create(self, found: Mapping[str, Topic], partition_count: int | None) -> dict[str, Topic]:
        copies = await replication_factor_of_new(self._admin)
        if partition_count is None:
            known = found.get(self._keyed)
            partition_count = len(known.leaders) if known else DEFAULT_PARTITION_COUNT
        missing = [
            new for new in new_topics(self.table, self._prefix, partition_count, copies) if new.name not in found
        ]
        await create_topics(self._admin, missing)
        return await wait_for_leaders(self._admin, self._wanted())

    def _check_partitions(self, found: Mapping[str, Topic]) -> None:
        for topic, name in self._names.items():
            wanted = len(self.table.partitions(topic, self.partition_count))
            if len(found[name].leaders) != wanted:
                raise LogMismatch(f"topic {name} has {len(found[name].leaders)} partitions and must have {wanted}")

    def _check_settings(
        self, found: Mapping[str, Topic], copies: int, effective: Mapping[str, Mapping[str, str]]
    ) -> None:
        for topic, name in self._names.items():
            replicas = found[name].replicas
            if replicas < min(MIN_IN_SYNC_REPLICAS, copies):
                raise LogMismatch(
                    f"topic {name}: replication factor {replicas} must be at least {MIN_IN_SYNC_REPLICAS}"
                )
            if replicas < copies:
                logger.warning(
                    "topic %s has %d replicas: %d are needed to survive the loss of a broker", name, replicas, copies
                )
            for setting in settings_of(self.table[topic], replicas):
                value = effective[name].get(setting.name, "")
                if not setting.allows(value):
                    least = "at least " if setting.is_least else ""
                    raise LogMismatch(f"topic {name}: {setting.name} is {value!r} and must be {least}{setting.value}")


def new_topics(table: TopicTable, prefix: str, partition_count: int, copies: int) -> list[NewTopic]:
    """The specification of every topic of a log under this prefix."""
    return [_new_topic(spec, f"{prefix}.{spec.name}", partition_count, copies) for spec in table]


async def replication_factor_of_new(admin: Admin) -> int:
    """The replication factor of new topics: one replica on every broker, up to REPLICATION_FACTOR.

    The function waits for named brokers that have not started yet. Otherwise a cluster that is just starting would
    create all topics on the first broker, and they would stay there. Raises LogUnavailable at the time limit.
    """
    wanted = min(REPLICATION_FACTOR, admin.server_count)
    there = 0
    try:
        async with asyncio.timeout(_BROKERS_S):
            while True:
                there = await _retry_while_unavailable(admin.count_brokers)
                if there >= wanted:
                    return min(REPLICATION_FACTOR, there)
                await asyncio.sleep(_SOON_S)
    except TimeoutError:
        raise LogUnavailable(
            f"kafka: {there} of {admin.server_count} named brokers are up, and topics are created"
            f" when {wanted} are; start the others, or name fewer"
        ) from None


async def create_topics(admin: Admin, topics: Sequence[NewTopic]) -> None:
    """Create topics. Returns when the cluster has created them."""
    await _retry_while_unavailable(lambda: admin.create(topics))


async def wait_for_leaders(admin: Admin, names: Sequence[str]) -> dict[str, Topic]:
    """Return all of these topics, once each partition has a leader."""
    while True:
        there = await admin.topics(names)
        if len(there) == len(names) and all(topic.has_all_leaders for topic in there.values()):
            return there
        await asyncio.sleep(_SOON_S)


def _new_topic(spec: TopicSpec, name: str, partition_count: int, copies: int) -> NewTopic:
    settings = {setting.name: setting.value for setting in settings_of(spec, copies)}
    if spec.segment_ms is not None:
        settings["segment.ms"] = str(spec.segment_ms)
    return NewTopic(name, partition_count if spec.is_keyed else 1, copies, settings)


async def _retry_while_unavailable(ask: Callable[[], Awaitable[T]]) -> T:
    """Repeat a query until it is answered: a broker may not know a new topic yet."""
    while True:
        try:
            return await ask()
        except LogUnavailable:
            await asyncio.sleep(_SOON_S)


async def count_brokers(bootstrap: str, rng: random.Random, access: Access = plaintext) -> int:
    """Number of brokers in the cluster at the moment. LogUnavailable if the cluster does not answer."""
    clients = Clients(bootstrap, rng, access)
    admin = Admin(clients)
    try:
        return await admin.count_brokers()
    finally:
        admin.close()
        await clients.close(within_s=1.0)
