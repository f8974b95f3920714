"""Kafka clients with the settings that the plane's guarantees need, discarded after any error.

aiokafka's defaults acknowledge before the followers have a record, skip silently when an offset is out of range, and
commit offsets automatically. A client may also hang or misbehave after its first failure. This module therefore
creates every client, checks its effective settings, and never uses a client again after it failed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError

from eventstore.errors import FatalError, LogUnavailable
from eventstore.kafka.records import install_tolerant_reader
from eventstore.log import MAX_RECORD_BYTES

logger = logging.getLogger(__name__)

REQUEST_MS = 5_000
FETCH_REQUEST_MS = 3_000
"""Timeout of fetch requests. It is short, because a fetch can be repeated without risk."""
START_S_MIN = 1.0
START_S_MAX = 8.0
CLOSE_S = 10.0
"""Maximum time to close a failed client; its replacement runs by then."""
BATCH_BYTES = MAX_RECORD_BYTES + 4_096
"""Size of a produce batch: the largest possible record and Kafka's overhead."""
FETCH_PARTITION_BYTES = 1 << 20
FETCH_BYTES = 8 << 20

CLIENT: Mapping[str, Any] = {"request_timeout_ms": REQUEST_MS, "metadata_max_age_ms": 5_000, "retry_backoff_ms": 50}
PRODUCER: Mapping[str, Any] = {
    **CLIENT,
    "acks": "all",
    "enable_idempotence": False,
    "compression_type": None,
    "linger_ms": 0,
    "max_batch_size": BATCH_BYTES,
}
CONSUMER: Mapping[str, Any] = {
    **CLIENT,
    "request_timeout_ms": FETCH_REQUEST_MS,
    "group_id": None,
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "isolation_level": "read_uncommitted",
    "check_crcs": True,
    "fetch_max_wait_ms": 100,
    "max_partition_fetch_bytes": FETCH_PARTITION_BYTES,
    "fetch_max_bytes": FETCH_BYTES,
}


class KafkaClient(Protocol):
    """The common interface of aiokafka's clients."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


C = TypeVar("C", bound=KafkaClient)
Make = Callable[[list[str], Mapping[str, Any]], C]
"""Makes a client for these bootstrap servers, with the parameters that an Access returned."""


Access = Callable[[], Mapping[str, Any]]
"""How clients connect, in aiokafka's parameters (security_protocol, ssl_context, sasl_...). It is called for each new
client, so rotated certificates and passwords apply from the next client on.
"""


def plaintext() -> Mapping[str, Any]:
    """The Access of brokers without authentication."""
    return {}


def make_producer(servers: list[str], access: Mapping[str, Any]) -> AIOKafkaProducer:
    """Make a producer that waits for the acknowledgement of all in-sync replicas. Idempotence is off, because it could
    not guarantee that a record is in the log only once."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, **PRODUCER, **access)
    check_producer(producer)
    check_security(producer.client, access)
    return producer


def make_consumer(servers: list[str], access: Mapping[str, Any]) -> AIOKafkaConsumer:
    """Make a consumer without a group, commits or offset resets. It reads records of any writer, transactional ones
    included.
    """
    install_tolerant_reader()
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, **CONSUMER, **access)
    check_consumer(consumer)
    check_security(consumer._client, access)
    return consumer


def check_producer(producer: AIOKafkaProducer) -> None:
    """Raise FatalError unless the producer really runs with the required settings."""
    _require("acks", producer._sender._acks, -1)
    _require("enable_idempotence", producer._txn_manager is not None, False)
    _require("compression_type", producer._message_accumulator._compression_type, 0)
    _require("max_batch_size", producer._message_accumulator._batch_size, BATCH_BYTES)


def check_consumer(consumer: AIOKafkaConsumer) -> None:
    """Raise FatalError unless the consumer really runs with the required settings."""
    for setting in ("group_id", "enable_auto_commit", "auto_offset_reset", "isolation_level", "check_crcs"):
        _require(setting, getattr(consumer, f"_{setting}"), CONSUMER[setting])


def check_security(client: Any, access: Mapping[str, Any]) -> None:
    """Raise FatalError unless the client's connections are as protected as its Access requires."""
    _require("security_protocol", client._security_protocol, access.get("security_protocol", "PLAINTEXT"))
    if "ssl_context" in access:
        _require("ssl_context", client._ssl_context is access["ssl_context"], True)


def _require(setting: str, value: object, wanted: object) -> None:
    if value != wanted:
        raise FatalError(f"Kafka client setting {setting} is {value!r} and must be {wanted!r}")


class Clients:
    """Starts clients, and owns the tasks that close them."""

    def __init__(self, bootstrap: str, rng: random.Random, access: Access = plaintext) -> None:
        self._access = access
        self._servers = [server.strip() for server in bootstrap.split(",") if server.strip()]
        rng.shuffle(self._servers)
        self.rng = rng
        self._patience_s = START_S_MIN
        self._closing: set[asyncio.Task[None]] = set()
        self.is_closed = False

    @property
    def server_count(self) -> int:
        """Number of bootstrap servers."""
        return len(set(self._servers))

    async def started(self, make: Make[C]) -> C:
        """Start a new client. LogUnavailable if it does not reach the cluster in time.

        Each attempt begins with another server. The time limit is one second at first (START_S_MIN), so a silent server
        costs little time. Each failure doubles the limit, up to START_S_MAX, so a slow cluster gets enough time.
        """
        if self.is_closed:
            raise LogUnavailable("log: it was closed")
        servers = list(self._servers)
        access = self._access()
        client = make(servers, access)
        try:
            async with asyncio.timeout(self._patience_s):
                await client.start()
        except (KafkaError, OSError, TimeoutError) as error:
            self.discard(client)
            self._patience_s = min(2 * self._patience_s, START_S_MAX)
            if servers == self._servers:  # no concurrent attempt has moved on yet
                self._servers = [*servers[1:], servers[0]]
            why = await _refusal(servers[0], access) or _unmet(error, access)
            raise LogUnavailable(f"Kafka at {','.join(sorted(servers))}: {why}") from error
        except BaseException:
            self.discard(client)
            raise
        self._patience_s = START_S_MIN
        return client

    def discard(self, client: KafkaClient) -> None:
        """Close a client in the background, within CLOSE_S."""
        task = asyncio.create_task(_close(client))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self, within_s: float) -> None:
        """Start no more clients, and wait for those that are closing; clients that take too long are abandoned."""
        self.is_closed = True
        if self._closing:
            _, slow = await asyncio.wait(self._closing, timeout=within_s)
            for task in slow:
                task.cancel()
            await asyncio.gather(*slow, return_exceptions=True)

    async def pause(self) -> None:
        """Wait a random moment before the next attempt."""
        await asyncio.sleep(0.05 + 0.2 * self.rng.random())


class CachedClient(Generic[C]):
    """One client that several tasks share. It is made on demand, and made again after `discard`."""

    def __init__(self, clients: Clients, make: Make[C]) -> None:
        self._clients = clients
        self._make = make
        self._client: C | None = None
        self._starting = asyncio.Lock()

    async def get(self) -> C:
        async with self._starting:
            if self._client is None:
                self._client = await self._clients.started(self._make)
            return self._client

    def discard(self, client: C) -> None:
        """Stop using this client. The first task that finds it broken closes it."""
        if self._client is client:
            self._client = None
            self._clients.discard(client)

    def close(self) -> None:
        if self._client is not None:
            self.discard(self._client)


def reason(error: BaseException) -> str:
    """The text of an error of the client library; some of its messages are empty."""
    return str(error) or type(error).__name__


def _unmet(error: BaseException, access: Mapping[str, Any]) -> str:
    """Why no broker was reached. The library raises the same error if a broker speaks another protocol."""
    if not isinstance(error, OSError | TimeoutError | KafkaConnectionError):
        return reason(error)
    protocol = access.get("security_protocol", "PLAINTEXT")
    return f"no broker answers; check that brokers run at these addresses and accept {protocol} there"


async def _refusal(server: str, access: Mapping[str, Any]) -> str:
    """Why the connection to a broker with certificates or passwords fails: aiokafka's clients only log the reason."""
    if not access:
        return ""
    host, _, port = server.rpartition(":")
    try:
        async with asyncio.timeout(START_S_MIN):
            connection = await create_conn(host.strip("[]"), int(port), request_timeout_ms=REQUEST_MS, **access)
        connection.close()
    except TimeoutError:
        return ""
    except (KafkaError, OSError) as error:
        return f"{server}: {reason(error)}"
    return ""


async def _close(client: KafkaClient) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            await client.stop()
    except Exception as error:  # the client is not used any more; its rest is closed below
        logger.debug("discarded Kafka client not closed: %s", reason(error))
    finally:
        await _cut_off(client)


async def _cut_off(client: KafkaClient) -> None:
    """Close what a failed `stop` leaves open."""
    if isinstance(client, AIOKafkaProducer):
        await _cut_off_producer(client)
    else:
        await client._client.close()  # type: ignore[attr-defined]


async def _cut_off_producer(producer: AIOKafkaProducer) -> None:
    """End a producer whose batches would be retried or awaited for ever."""
    if producer._sender.sender_task is not None:
        producer._sender.sender_task.cancel()
    await producer.client.close()
    await asyncio.sleep(4 * CLIENT["retry_backoff_ms"] / 1_000)  # batches in flight return to the queue
    update = producer.client._md_update_fut
    if update is not None and not update.done():
        update.set_result(False)
    accumulator = producer._message_accumulator
    for batch in [batch for queue in accumulator._batches.values() for batch in queue]:
        accumulator._pending_batches.add(batch)  # the batch's callback removes it, so it must be in the set
        batch.failure(KafkaError("producer discarded"))
        batch._drain_waiter.exception()  # mark the exception as retrieved, or asyncio logs a warning
