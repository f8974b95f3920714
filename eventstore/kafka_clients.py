"""Kafka clients as we use them: made with the settings that keep our promises, and thrown away after any error.

aiokafka's defaults acknowledge before the followers have a record, jump silently when an offset is out of range, and
commit progress by themselves; and a client that failed once may hang or misbehave for ever after. So every client is
made here, what it really runs with is checked once it exists, and none is used again after it failed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from eventstore.errors import FatalError, LogUnavailable
from eventstore.log import MAX_RECORD_BYTES

log = logging.getLogger(__name__)

REQUEST_MS = 5_000
START_S = 3.0
CLOSE_S = 10.0
"""What a client that failed may take to close; another is in its place by then."""
BATCH_BYTES = MAX_RECORD_BYTES + 4_096
"""One produce batch, with the largest record there may be and everything that Kafka puts around it."""
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
    "group_id": None,
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "isolation_level": "read_uncommitted",
    "check_crcs": True,
    "fetch_max_wait_ms": 100,
    "max_partition_fetch_bytes": FETCH_PARTITION_BYTES,
    "fetch_max_bytes": FETCH_BYTES,
}


class Client(Protocol):
    """What all clients of aiokafka have in common."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


C = TypeVar("C", bound=Client)


def make_producer(servers: list[str]) -> AIOKafkaProducer:
    """A producer that acknowledges what is safe, and that promises nothing it cannot keep (no idempotence)."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, **PRODUCER)
    check_producer(producer)
    return producer


def make_consumer(servers: list[str]) -> AIOKafkaConsumer:
    """A consumer that belongs to no group, commits nothing and never jumps."""
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, **CONSUMER)
    check_consumer(consumer)
    return consumer


def check_producer(producer: AIOKafkaProducer) -> None:
    """FatalError unless it runs with what we asked for, whatever the library made of it."""
    _require("acks", producer._sender._acks, -1)
    _require("enable_idempotence", producer._txn_manager is not None, False)
    _require("compression_type", producer._message_accumulator._compression_type, 0)
    _require("max_batch_size", producer._message_accumulator._batch_size, BATCH_BYTES)


def check_consumer(consumer: AIOKafkaConsumer) -> None:
    """FatalError unless it runs with what we asked for, whatever the library made of it."""
    for setting in ("group_id", "enable_auto_commit", "auto_offset_reset", "isolation_level", "check_crcs"):
        _require(setting, getattr(consumer, f"_{setting}"), CONSUMER[setting])


def _require(setting: str, value: object, wanted: object) -> None:
    if value != wanted:
        raise FatalError(f"Kafka client setting {setting} is in effect {value!r}, and has to be {wanted!r}")


class Clients:
    """Starts clients, and owns the tasks that close them."""

    def __init__(self, bootstrap: str, rng: random.Random) -> None:
        self._servers = [server.strip() for server in bootstrap.split(",") if server.strip()]
        self._rng = rng
        self._closing: set[asyncio.Task[None]] = set()
        self.is_closed = False

    async def started(self, make: Callable[[list[str]], C]) -> C:
        """A new client that has met the cluster. LogUnavailable if it has not within START_S.

        The servers are tried in another order each time: one that is there and says nothing costs one attempt.
        """
        if self.is_closed:
            raise LogUnavailable("the log is closed")
        client = make(self._rng.sample(self._servers, len(self._servers)))
        try:
            async with asyncio.timeout(START_S):
                await client.start()
        except (KafkaError, OSError, TimeoutError) as error:
            self.discard(client)
            raise LogUnavailable(f"Kafka at {','.join(self._servers)}: {reason(error)}") from error
        except BaseException:
            self.discard(client)
            raise
        return client

    def discard(self, client: Client) -> None:
        """Close a client that is not used any more, in the background and within CLOSE_S."""
        task = asyncio.create_task(_close(client))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self, within_s: float) -> None:
        """Start nothing more, and wait for what is being closed; what takes longer is left behind."""
        self.is_closed = True
        if self._closing:
            _, slow = await asyncio.wait(self._closing, timeout=within_s)
            for task in slow:
                task.cancel()
            await asyncio.gather(*slow, return_exceptions=True)

    async def pause(self) -> None:
        """Wait a moment before the next attempt, each process another one."""
        await asyncio.sleep(0.05 + 0.2 * self._rng.random())


class Kept(Generic[C]):
    """One client that several tasks share, made when it is needed and made anew after it was discarded."""

    def __init__(self, clients: Clients, make: Callable[[list[str]], C]) -> None:
        self._clients = clients
        self._make = make
        self._client: C | None = None
        self._starting = asyncio.Lock()
        self.made = 0

    async def get(self) -> C:
        async with self._starting:
            if self._client is None:
                self._client = await self._clients.started(self._make)
                self.made += 1
            return self._client

    def discard(self, client: C) -> None:
        """Never hand out this client again. The first of those who find it broken closes it."""
        if self._client is client:
            self._client = None
            self._clients.discard(client)

    def close(self) -> None:
        if self._client is not None:
            self.discard(self._client)


def reason(error: BaseException) -> str:
    """An error of the client library in words: some of its messages are empty."""
    return str(error) or type(error).__name__


async def _close(client: Client) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            await client.stop()
    except (KafkaError, OSError, TimeoutError) as error:
        log.debug("a discarded client did not close: %s", reason(error))
