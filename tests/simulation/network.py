"""The network of a simulation: requests with latency, broken links, disconnected machines.

A request in flight is delivered even if its sender has died, and its response is then dropped. A process may die
without closing its links, like a machine that loses power.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from drivers.backends.bmc import Bmc, Reading, Task
from drivers.wire.links import LinkClosed
from eventstore.errors import AppendUnknown, LogUnavailable, PlaneError
from eventstore.log import Batch, EventLog, Headers, Partition
from eventstore.topics import TopicTable
from tests.support.virtual_loop import current_loop

T = TypeVar("T")

SLOW_SHARE = 0.02


@dataclass(slots=True)
class Wire:
    """The connection of one machine to the log; the nemesis changes its settings."""

    rng: random.Random
    is_cut: bool = False
    """The process of this wire has died."""
    is_isolated: bool = False
    """Requests and responses are lost."""
    answers_lost: bool = False
    """Requests arrive, responses are lost."""
    slow_s: float = 0.0
    """The maximum latency of a slow message."""

    def latency_s(self) -> float:
        """A random latency, mostly a few milliseconds."""
        if self.slow_s and self.rng.random() < SLOW_SHARE:
            return self.rng.uniform(0.0, self.slow_s)
        return self.rng.uniform(0.000_2, 0.005)


class WiredLog:
    """An EventLog as one process reaches it over its wire."""

    def __init__(self, log: EventLog, wire: Wire) -> None:
        self.wire = wire
        self._log = log

    @property
    def topics(self) -> TopicTable:
        return self._log.topics

    @property
    def partition_count(self) -> int:
        return self._log.partition_count

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        return self._log.partitions(topic)

    async def append(
        self, partition: Partition, key: bytes, value: bytes, *, timeout_s: float = 5.0, headers: Headers = ()
    ) -> None:
        self._check()
        self.topics.check_append(partition, key, value, self.partition_count, headers)
        loop, what = current_loop(), f"append to {partition}"
        append_inner = partial(self._log.append, partition, key, value, timeout_s=timeout_s, headers=headers)
        answer: asyncio.Future[None] = loop.create_future()
        loop.in_world(self._deliver(append_inner, answer, what), what)
        try:
            async with asyncio.timeout(timeout_s):
                await answer
        except TimeoutError:
            raise AppendUnknown(f"{what}: no answer within {timeout_s:g} s") from None

    async def _deliver(
        self, append_inner: Callable[[], Awaitable[None]], answer: asyncio.Future[None], what: str
    ) -> None:
        """Deliver a request and its response, even if its caller no longer waits."""
        failed: PlaneError | None = None
        try:
            await asyncio.sleep(self.wire.latency_s())
            if self.wire.is_isolated:
                raise AppendUnknown(f"{what}: the connection broke")
            await append_inner()
            await asyncio.sleep(self.wire.latency_s())
            if self.wire.is_isolated or self.wire.answers_lost:
                raise AppendUnknown(f"{what}: the connection broke")
        except PlaneError as error:
            failed = error
        if answer.done():
            return
        if failed is None:
            answer.set_result(None)
        else:
            answer.set_exception(failed)

    async def read(self, positions: Mapping[Partition, int]) -> AsyncGenerator[Batch, None]:
        self._check()
        async with aclosing(self._log.read(positions)) as batches:
            async for batch in batches:
                await asyncio.sleep(self.wire.latency_s())
                self._check()
                yield batch

    async def begin(self, partition: Partition) -> int:
        await self._round_trip()
        return await self._log.begin(partition)

    async def end(self, partition: Partition) -> int:
        await self._round_trip()
        return await self._log.end(partition)

    async def position_at(self, partition: Partition, time_ms: int) -> int:
        await self._round_trip()
        return await self._log.position_at(partition, time_ms)

    async def close(self) -> None:
        """Do nothing, because the log is shared."""

    async def _round_trip(self) -> None:
        self._check()
        await asyncio.sleep(self.wire.latency_s())
        self._check()

    def _check(self) -> None:
        if self.wire.is_cut or self.wire.is_isolated or self.wire.answers_lost:
            raise LogUnavailable("the connection to the log broke")


class WiredBmc:
    """A BMC as one process reaches it. A call in flight takes effect even if its caller dies."""

    def __init__(self, bmc: Bmc) -> None:
        self._bmc = bmc

    async def open(self, token: int) -> Reading:
        return await self._call(self._bmc.open(token))

    async def read(self, token: int) -> Reading:
        return await self._call(self._bmc.read(token))

    async def start(self, token: int, action: str, image: str, url: str = "") -> Task:
        return await self._call(self._bmc.start(token, action, image))

    async def cancel(self, token: int, task: str) -> None:
        await self._call(self._bmc.cancel(token, task))

    async def _call(self, call: Coroutine[Any, Any, T]) -> T:
        return await in_flight(call, "call to a BMC")


async def in_flight(call: Coroutine[Any, Any, T], name: str) -> T:
    """The result of a call that goes on even if its caller dies."""
    sent = current_loop().in_world(call, name)
    sent.add_done_callback(_retrieve_error)
    return await asyncio.shield(sent)


def _retrieve_error(done: asyncio.Task[Any]) -> None:
    """Retrieve the error of a call whose caller no longer waits, so that asyncio does not report it."""
    if not done.cancelled():
        done.exception()


class LinkEnd:
    """One end of an agent link. Messages arrive in order and delayed; the link is silent after a power loss of either
    machine.
    """

    def __init__(self, peer: str, rng: random.Random) -> None:
        self.peer = peer
        self.other: LinkEnd = self
        self.is_silent = False
        """Whether this end neither sends nor receives any more, without a notice to the other end."""
        self._rng = rng
        self._inbox: deque[bytes] = deque()
        self._in_flight_bytes = 0
        self._arrives_at = 0.0
        self._closed = False
        self._wake: asyncio.Future[None] | None = None

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def backlog(self) -> int:
        return self.other._in_flight_bytes

    def send(self, message: bytes) -> None:
        if self._closed:
            raise LinkClosed(f"the link to {self.peer} is closed")
        other = self.other
        other._in_flight_bytes += len(message)
        self._call_at_other_end(other._deliver_message, message)

    async def receive(self) -> bytes:
        while not self._inbox:
            if self._closed:
                raise LinkClosed(f"the link to {self.peer} is closed")
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        message = self._inbox.popleft()
        self._in_flight_bytes -= len(message)
        return message

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            self._inbox.clear()
            self._wake_receiver()
            self._call_at_other_end(self.other._close_by_peer)

    async def close(self) -> None:
        self.abort()

    def _call_at_other_end(self, callback: object, *args: object) -> None:
        """Call at the other end, after all earlier messages."""
        loop = current_loop()
        self._arrives_at = max(self._arrives_at, loop.time() + self._rng.uniform(0.000_1, 0.004))
        loop.call_at(self._arrives_at, callback, *args)  # type: ignore[arg-type]

    def _deliver_message(self, message: bytes) -> None:
        if not (self._closed or self.is_silent or self.other.is_silent):
            self._inbox.append(message)
            self._wake_receiver()

    def _close_by_peer(self) -> None:
        if not (self.is_silent or self.other.is_silent):
            self._closed = True
            self._wake_receiver()

    def _wake_receiver(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def link_pair(relay: str, agent: str, rng: random.Random) -> tuple[LinkEnd, LinkEnd]:
    """The two ends of a new link, of the relay and of the agent."""
    relays, agents = LinkEnd(agent, rng), LinkEnd(relay, rng)
    relays.other, agents.other = agents, relays
    return relays, agents
