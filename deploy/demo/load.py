"""The load of the demo: concurrent commands through the gRPC API, with every result counted.

A refusal stops the demo with the plane's sentence, since its fleet is valid. A command without a response is sent again
under the same id, as every client may do: it takes effect at most once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import grpc

from eventstore.errors import PermanentError
from eventstore.ids import uuid7
from schemas.api import dpuplane_pb2 as pb
from schemas.api.metadata import PRINCIPAL_KEY
from schemas.api.stubs import CommandsStub, QueriesStub

IN_FLIGHT = 200
"""Concurrent commands."""

CALL_TIMEOUT_S = 30.0
TRIES = 4
"""Attempts at one command: 120 s in all, the time within which an id may be repeated after its creation."""

_AGAIN = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)

Request = TypeVar("Request")


class DemoFailed(PermanentError):
    """The plane did not do what the demo requested."""


class DemoClient:
    """A client of the demo's plane."""

    def __init__(self, server: str, rng: random.Random) -> None:
        options = (("grpc.max_receive_message_length", 64 << 20),)
        self._rng = rng
        self._channel = grpc.aio.insecure_channel(server, options=options)
        self.commands: Any = CommandsStub(self._channel)
        self.queries: Any = QueriesStub(self._channel)

    async def close(self) -> None:
        await self._channel.close(grace=None)

    async def command(self, method: str, request: Any) -> pb.CommandResult:
        """Send a command until it is done, waiting or held; raises DemoFailed otherwise."""
        request.command_id = uuid7(time.time_ns() // 1_000_000, self._rng)
        said = ""
        for _ in range(TRIES):
            try:
                answer = await self._call(method, request)
            except grpc.aio.AioRpcError as error:
                said = f"{error.code().name.lower().replace('_', ' ')}, {error.details()}"
                if error.code() not in _AGAIN:
                    break
                continue
            first = answer.items[0] if answer.items else answer
            if pb.OUTCOME_UNKNOWN in (answer.outcome, first.outcome):
                said = first.reason
            elif answer.outcome == pb.OUTCOME_REFUSED or answer.items:
                raise DemoFailed(f"{method}: refused, {first.reason}")
            else:
                return answer
        raise DemoFailed(f"{method}: no response in {TRIES} tries of {CALL_TIMEOUT_S:g} s; the last error: {said}")

    async def _call(self, method: str, request: Any) -> pb.CommandResult:
        call = getattr(self.commands, method)
        answer: pb.CommandResult = await call(request, timeout=CALL_TIMEOUT_S, metadata=((PRINCIPAL_KEY, "demo"),))
        return answer


async def run_all(work: Callable[[Request], Awaitable[object]], requests: Iterable[Request]) -> None:
    """Run `work` for every request, IN_FLIGHT at once. The first failure cancels the rest and is raised."""
    waiting = iter(requests)

    async def worker() -> None:
        for request in waiting:
            await work(request)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.create_task(worker())
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
