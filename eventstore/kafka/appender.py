"""Appends to Kafka: one sender per partition with one batch in flight. Later appends form the next batch.

In a topic whose callers append together, such as the members of a clique, the sender lingers for appends that come a
moment after the first. Otherwise the first would be sent alone, and the others would wait for its round trip. Batches
of other topics do not linger: for callers that append independently, such as joining nodes, lingering made each append
several times slower.

The appender builds the batches itself, so it knows of each record whether it was handed to the client. A record that
was not handed over can wait for a new producer, or be withdrawn when its caller gives up. A record that was handed over
is certainly in the log only if the brokers acknowledge it. After any other result, even a refusal, its outcome is
unknown, because the library retries internally and an earlier attempt may have landed; the producer is discarded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from eventstore.errors import AppendUnknown, FatalError, LogMismatch, LogUnavailable, PlaneError
from eventstore.kafka.clients import BATCH_BYTES, CachedClient, Clients, make_producer, reason
from eventstore.kafka.topics import Topics
from eventstore.linger import Linger
from eventstore.log import Headers, Partition, size_of

logger = logging.getLogger(__name__)

ACKNOWLEDGED_S = 5.0
"""Maximum time to an acknowledgement. After it the batch has failed and its producer is discarded."""
QUEUED_BYTES = 32 << 20
RECORD_BYTES = 64
"""Maximum overhead of Kafka per record and per header. It adds to the queue size, so QUEUED_BYTES also bounds the
number of empty records.
"""
BATCH_FILL_BYTES = BATCH_BYTES - 1_024
BATCH_RECORDS = 2_000
"""Maximum number of records in a batch: packing them and waking their callers takes a few milliseconds."""


class Pending(NamedTuple):
    """A queued record and the future that its caller awaits."""

    key: bytes
    value: bytes
    acknowledged: asyncio.Future[None]
    headers: Headers = ()

    @property
    def cost(self) -> int:
        return len(self.key) + len(self.value) + size_of(self.headers) + RECORD_BYTES * (1 + len(self.headers))


class _PartitionSender:
    """The queued records of one partition, and the task that sends them."""

    def __init__(self) -> None:
        self.queue: deque[Pending] = deque()
        self.work = asyncio.Event()
        self.linger = Linger()
        self.task: asyncio.Task[None] | None = None


class KafkaAppender:
    """Appends records; `batches` and `failed_batches` count sent batches."""

    def __init__(self, clients: Clients, topics: Topics, fail: Callable[[PlaneError], None]) -> None:
        self._clients = clients
        self._topics = topics
        self._fail = fail
        self._producer: CachedClient[AIOKafkaProducer] = CachedClient(clients, make_producer)
        self._senders: dict[Partition, _PartitionSender] = {}
        self._queued_bytes = 0
        self._queue_space = asyncio.Event()
        self._queue_space.set()
        self._ended: PlaneError | None = None
        self.batches = 0
        self.failed_batches = 0

    async def connect(self) -> None:
        """Start the first producer now. LogUnavailable if the cluster does not answer."""
        await self._producer.get()

    async def append(
        self, partition: Partition, key: bytes, value: bytes, timeout_s: float, headers: Headers = ()
    ) -> None:
        """Return when the brokers have acknowledged the record. AppendUnknown at the time limit."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._queue_space.is_set():
                    await self._queue_space.wait()
                if self._ended is not None:
                    raise _ending(self._ended)
                pending = Pending(key, value, asyncio.get_running_loop().create_future(), headers)
                self._enqueue(partition, pending)
                await pending.acknowledged
        except TimeoutError:
            raise AppendUnknown(f"append to {partition}: not acknowledged within {timeout_s} s") from None

    def end(self, why: PlaneError) -> None:
        """Accept no more records. Queued and sent ones end as unknown, or with the LogMismatch that ended the log."""
        self._ended = why
        self._queue_space.set()
        for sender in self._senders.values():
            if sender.task is not None:
                sender.task.cancel()
            _answer(sender.queue, _ending(why))
            sender.queue.clear()

    async def close(self) -> None:
        """Wait for the tasks of all partitions, after `end`."""
        await asyncio.gather(*(sender.task for sender in self._senders.values() if sender.task), return_exceptions=True)
        self._producer.close()

    def _enqueue(self, partition: Partition, pending: Pending) -> None:
        sender = self._senders.get(partition)
        if sender is None:
            sender = self._senders[partition] = _PartitionSender()
            sender.task = asyncio.create_task(self._guard(partition, sender))
        sender.queue.append(pending)
        sender.work.set()
        sender.linger.join(len(sender.queue), is_full=len(sender.queue) >= BATCH_RECORDS)
        self._queued_bytes += pending.cost
        if self._queued_bytes >= QUEUED_BYTES:
            self._queue_space.clear()

    async def _guard(self, partition: Partition, sender: _PartitionSender) -> None:
        """Run the task of a partition. Its failure ends the log with an error for every caller, so none hangs."""
        try:
            await self._run(partition, sender)
        except PlaneError as error:
            self._fail(error)
        except Exception as error:
            logger.exception("append task stopped by an unhandled exception", extra={"partition": str(partition)})
            self._fail(FatalError(f"append to {partition}: {type(error).__name__}: {error}"))

    async def _run(self, partition: Partition, sender: _PartitionSender) -> None:
        comes_together = self._topics.table[partition.topic].callers == "together"
        while True:
            await sender.work.wait()
            if comes_together:
                await sender.linger.wait(len(sender.queue), is_full=len(sender.queue) >= BATCH_RECORDS)
            producer = await self._connected()
            batch = self._take(sender)
            if batch:
                await self._send(producer, partition, batch)
            if comes_together:
                sender.linger.observe(len(batch) + len(sender.queue), asyncio.get_running_loop().time())
            # The callers whose append just ended run before the next batch is taken, and append to it.
            await asyncio.sleep(0)

    async def _connected(self) -> AIOKafkaProducer:
        while True:
            try:
                return await self._producer.get()
            except LogUnavailable as error:
                logger.debug("producer not started, retrying: %s", error)
                await self._clients.pause()

    def _take(self, sender: _PartitionSender) -> list[Pending]:
        batch: list[Pending] = []
        size = 0
        while sender.queue and len(batch) < BATCH_RECORDS and size + sender.queue[0].cost <= BATCH_FILL_BYTES:
            pending = sender.queue.popleft()
            self._queued_bytes -= pending.cost
            if not pending.acknowledged.done():
                batch.append(pending)
                size += pending.cost
        if not sender.queue:
            sender.work.clear()
        if self._queued_bytes < QUEUED_BYTES:
            self._queue_space.set()
        return batch

    async def _send(self, producer: AIOKafkaProducer, partition: Partition, batch: list[Pending]) -> None:
        builder = producer.create_batch()
        for pending in batch:
            added = builder.append(timestamp=None, key=pending.key, value=pending.value, headers=list(pending.headers))
            assert added is not None, "a batch was larger than we reckoned"
        try:
            async with asyncio.timeout(ACKNOWLEDGED_S):
                topic = self._topics.name(partition.topic)
                sent = await producer.send_batch(builder, topic, partition=partition.number)
                sent.add_done_callback(_retrieve_exception)
                await asyncio.wait({sent})  # asyncio.wait does not cancel `sent`: its callback runs after a timeout too
                sent.result()
        except (KafkaError, TimeoutError, OSError) as error:
            self._failed(producer, partition, batch, error)
        except BaseException as error:
            _answer(batch, _ending(self._ended or AppendUnknown(f"append to {partition}: {error!r}")))
            raise
        else:
            self.batches += 1
            _answer(batch, None)

    def _failed(self, producer: AIOKafkaProducer, partition: Partition, batch: list[Pending], error: Exception) -> None:
        why = "not acknowledged in time" if isinstance(error, TimeoutError) else reason(error)
        logger.warning(
            "Kafka append not acknowledged, its outcome is unknown",
            extra={"partition": str(partition), "records": len(batch), "error": why},
        )
        self.failed_batches += 1
        self._producer.discard(producer)
        _answer(batch, AppendUnknown(f"append to {partition}: {why}"))


def _retrieve_exception(sent: asyncio.Future[object]) -> None:
    if not sent.cancelled():
        sent.exception()


def _ending(why: PlaneError) -> PlaneError:
    return LogMismatch(str(why)) if isinstance(why, LogMismatch) else AppendUnknown(str(why))


def _answer(batch: Iterable[Pending], error: PlaneError | None) -> None:
    for pending in batch:
        if pending.acknowledged.done():
            continue
        if error is None:
            pending.acknowledged.set_result(None)
        else:
            pending.acknowledged.set_exception(type(error)(str(error)))
