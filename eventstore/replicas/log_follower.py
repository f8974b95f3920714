"""Follows a log across its outages, and checks that it is still the same log.

An engine cannot detect everything: a partition that was truncated and refilled, or an edited record, looks like any
other. Whenever reading begins or resumes, and every minute, the first and the last folded record of each partition are
read back and compared. Records of `installs` expire, and a reader may lack them, so that topic is not checked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from random import Random

from eventstore.backoff import backoff_ceiling
from eventstore.errors import LogMismatch, LogUnavailable
from eventstore.folding.hashes import record_hash
from eventstore.folding.origin import read_first
from eventstore.folding.partition import FoldedPartition
from eventstore.log import Batch, EventLog, Partition

_BACKOFF_S = 0.1
_BACKOFF_MAX_S = 5.0

logger = logging.getLogger(__name__)


class Backoff:
    """Exponential backoff with full jitter, so that replicas do not retry at the same time."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._failures = 0

    async def wait(self) -> None:
        await asyncio.sleep(self._rng.uniform(0, backoff_ceiling(self._failures, _BACKOFF_S, _BACKOFF_MAX_S)))
        self._failures += 1

    def reset(self) -> None:
        """The attempt succeeded: start again with the shortest delay."""
        self._failures = 0


async def follow(
    log: EventLog, positions: Mapping[Partition, int], rng: Random, check: Callable[[], Awaitable[None]]
) -> AsyncGenerator[Batch, None]:
    """Read all records from these positions on, for ever; `check` runs before each connection. Raises LogMismatch."""
    wanted = dict(positions)
    backoff = Backoff(rng)
    while True:
        try:
            await check()
            async with aclosing(log.read(wanted)) as batches:
                async for partition, records in batches:
                    backoff.reset()
                    wanted[partition] = records[-1].offset + 1
                    yield partition, records
        except LogUnavailable as error:
            logger.warning("log read failed, retrying: %s", error)
        await backoff.wait()


async def check_same_log(log: EventLog, partitions: Iterable[FoldedPartition]) -> None:
    """Raise LogMismatch unless the log still has the first and last folded record of each partition."""
    deciding = [p for p in partitions if p.is_deciding and p.first]
    firsts = {p.partition: (0, p.first) for p in deciding}
    lasts = {p.partition: p.last() for p in deciding}
    for partition, (offset, _) in lasts.items():
        if (end := await log.end(partition)) <= offset:
            raise LogMismatch(f"log: {partition} ends at {end}, but was folded up to offset {offset}")
    for expected in (firsts, lasts):
        found = await read_first(log, {partition: offset for partition, (offset, _) in expected.items()})
        for partition, (offset, digest) in expected.items():
            record = found[partition]
            if record_hash(record) != digest:
                raise LogMismatch(
                    f"log: {partition} changed: the record at offset {offset} is not the one that was folded"
                )
