"""The identity of a log: record 0 of every deciding partition.

The first LogCreated of fleet sets the log's id, generation and partition count. The other partitions get a copy of it
before any other record. Two processes that start at once cannot create two logs: both append, both read back, and the
first record is valid for both. A partition that begins with any other record belongs to another log, or lost its first
records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from random import Random

from eventstore.avro.codec import decode, encode
from eventstore.errors import LogMismatch, LogUnavailable, Undecodable
from eventstore.ids import internal_envelope, uuid7
from eventstore.log import FLEET_0, Batch, EventLog, Partition, Record
from schemas.events import LogCreated

_READ_TIMEOUT_S = 10.0
FIRST_GENERATION = 1
"""The generation of a log that was not restored from another one."""

logger = logging.getLogger(__name__)


def check_origin(partition: Partition, record: Record, log_id: str) -> None:
    """Raise LogMismatch unless a partition begins with the LogCreated of this log."""
    if (found := _origin(partition, record).log_id) != log_id:
        raise LogMismatch(f"log: {partition} begins with log id {found!r}, but {FLEET_0} with {log_id!r}")


async def find_origin(log: EventLog) -> LogCreated | None:
    """The authoritative LogCreated, or None in an empty log. Raises LogUnavailable, LogMismatch."""
    if await log.end(FLEET_0) == 0:
        return None
    return await wait_for_origin(log)


async def wait_for_origin(log: EventLog, partitions: Iterable[Partition] = ()) -> LogCreated:
    """Wait for the LogCreated of a log that another process creates. Raises LogUnavailable at the time limit, and while
    one of `partitions` is empty: an event that precedes its LogCreated would make the log unusable for ever."""
    first = await read_first(log, {FLEET_0: 0})
    for partition in partitions:
        if await log.end(partition) == 0:
            raise LogUnavailable(f"log: {partition} has no first record yet: the creation of the log has not ended")
    return _checked(log, first[FLEET_0])


async def ensure_origin(log: EventLog, actor: str, now_ms: int, rng: Random) -> LogCreated:
    """The LogCreated of this log. In a new log it is appended first, as record 0 of every deciding partition.

    Raises LogUnavailable and AppendUnknown; a retry continues where the last attempt ended.
    """
    origin = await find_origin(log)
    while origin is None:
        said = internal_envelope("log", actor, now_ms)
        fresh = LogCreated(said, uuid7(now_ms, rng), FIRST_GENERATION, log.partition_count, parent="")
        await log.append(FLEET_0, b"log", encode(fresh))
        origin = await find_origin(log)
        logger.info("log created", extra={"log": origin and origin.log_id})
    for topic in log.topics.deciding:
        for partition in log.partitions(topic):
            if await log.end(partition) == 0:
                await log.append(partition, b"log", encode(origin))
    return origin


async def read_first(log: EventLog, positions: Mapping[Partition, int]) -> dict[Partition, Record]:
    """The first record at or after each position. Raises LogUnavailable if a partition has no such record within 10 s,
    and LogMismatch."""
    found: dict[Partition, Record] = {}
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S), aclosing(log.read(positions)) as batches:
            await _collect(batches, found, len(positions))
    except TimeoutError:
        missing = sorted(positions.keys() - found.keys())
        raise LogUnavailable(f"log: {missing[0]} returned no record within {_READ_TIMEOUT_S:g} s") from None
    return found


async def _collect(batches: AsyncGenerator[Batch, None], found: dict[Partition, Record], wanted: int) -> None:
    while len(found) < wanted:
        partition, records = await anext(batches)
        found.setdefault(partition, records[0])


def _checked(log: EventLog, record: Record) -> LogCreated:
    origin = _origin(FLEET_0, record)
    if origin.partition_count != log.partition_count:
        raise LogMismatch(
            f"partition count: this log was created with {origin.partition_count} partitions and now has "
            f"{log.partition_count}"
        )
    return origin


def _origin(partition: Partition, record: Record) -> LogCreated:
    try:
        event = decode(record.value)
    except Undecodable as error:
        raise LogMismatch(f"log: {partition} must begin with LogCreated: {error}") from error
    if not isinstance(event, LogCreated):
        raise LogMismatch(f"log: {partition} must begin with LogCreated, and begins with {type(event).__name__}")
    return event
