"""A partition is folded up to its present end before something outside the log is changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from eventstore.log import FLEET_0, Partition
from eventstore.replicas.catch_up import END_S, FOLD_S, CatchUp
from eventstore.replicas.replica import Replica
from tests.support.memory_log import Contents, MemoryLog
from tests.support.replicas import running, toy_replica
from tests.support.toy_records import Issuer

pytestmark = pytest.mark.virtual_clock

LAG_S = 2.0


class CountingLog(MemoryLog):
    """A log that counts the questions for the end of the fleet partition."""

    def __init__(self, contents: Contents) -> None:
        super().__init__(contents)
        self.questions = 0

    async def end(self, partition: Partition) -> int:
        self.questions += partition == FLEET_0
        return await super().end(partition)


class Late:
    """A replica that reads the log LAG_S late, and the replica that appends to it."""

    def __init__(self, first: Replica, replica: Replica, log: CountingLog) -> None:
        self.replica, self.log = replica, log
        self.catch_up = CatchUp(replica, FLEET_0)
        self._first = first
        self._issuer = Issuer()

    async def append(self, name: str) -> int:
        """Append a record by the other replica. Returns the position after it."""
        await self._first.submit(FLEET_0, b"key", self._issuer.set(name), timeout_s=5.0)
        return self._first.position(FLEET_0)

    @property
    def position(self) -> int:
        return self.replica.position(FLEET_0)


@asynccontextmanager
async def late_replica() -> AsyncIterator[Late]:
    contents = Contents(4)
    log = CountingLog(contents)
    first, late = toy_replica(MemoryLog(contents), name="first"), toy_replica(log, name="late")
    async with running(first, late):
        log.failures.read_latency_s = LAG_S
        yield Late(first, late, log)


async def test_a_late_replica_has_every_record_that_was_in_the_log_at_the_call() -> None:
    async with late_replica() as late:
        end = await late.append("a")
        assert late.position < end
        assert await late.catch_up()
        assert late.position == end
        assert await late.catch_up(), "nothing is left to fold"


async def test_callers_share_a_question_that_begins_after_their_calls() -> None:
    """An answer from before a call may lack the record that the caller must not miss."""
    async with late_replica() as late:
        late.log.failures.end_latency_s = 0.5
        before = late.log.questions
        first = asyncio.create_task(late.catch_up())
        await asyncio.sleep(0.2)
        end = await late.append("a")
        others = [asyncio.create_task(late.catch_up()) for _ in range(10)]
        assert await others[0]
        assert late.position == end, "its question did not begin before its call"
        assert await asyncio.gather(first, *others) == [True] * 11
        assert late.log.questions == before + 2


@pytest.mark.parametrize("latency_s", [0.0, END_S + 1.0])
async def test_a_log_that_does_not_answer_in_time_is_reported_and_asked_again(latency_s: float) -> None:
    async with late_replica() as late:
        if latency_s:
            late.log.failures.end_latency_s = latency_s
        else:
            late.log.failures.lost_ends = 1
        assert not await late.catch_up()
        assert late.catch_up.failures == 1
        late.log.failures.end_latency_s = 0.0
        assert await late.catch_up()


async def test_an_end_that_is_not_folded_in_time_is_reported() -> None:
    async with late_replica() as late:
        late.log.failures.read_latency_s = FOLD_S + 5.0
        await late.append("a")
        await asyncio.sleep(LAG_S)  # a read that began before has its former latency
        end = await late.append("b")
        assert not await late.catch_up()
        assert late.position < end
        assert late.catch_up.failures == 1


async def test_a_caller_that_gives_up_leaves_the_question_to_the_next() -> None:
    async with late_replica() as late:
        late.log.failures.end_latency_s = 0.5
        first = asyncio.create_task(late.catch_up())
        second = asyncio.create_task(late.catch_up())
        await asyncio.sleep(0.1)
        first.cancel()
        assert await second
