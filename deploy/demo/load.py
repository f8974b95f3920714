"""The load of the demo: commands through the gRPC API, so many at once, each answer counted.

Whatever is refused or stays unknown stops the demo with the plane's own sentence: its fleet is made to be accepted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import grpc

from eventstore.errors import PermanentError
from schemas.api import dpuplane_pb2 as pb
from schemas.api.metadata import PRINCIPAL_KEY
from schemas.api.stubs import CommandsStub, QueriesStub

IN_FLIGHT = 200
"""Commands under way at once."""

CALL_TIMEOUT_S = 30.0

Request = TypeVar("Request")


class DemoFailed(PermanentError):
    """The plane did not do what the demo asked of it."""


class Api:
    """A client of the demo's own plane."""

    def __init__(self, server: str) -> None:
        options = (("grpc.max_receive_message_length", 64 << 20),)
        self._channel = grpc.aio.insecure_channel(server, options=options)
        self.commands: Any = CommandsStub(self._channel)
        self.queries: Any = QueriesStub(self._channel)

    async def close(self) -> None:
        await self._channel.close(grace=None)

    async def command(self, method: str, request: object) -> pb.Answer:
        """Done, waiting or held; raises DemoFailed otherwise."""
        call = getattr(self.commands, method)
        answer: pb.Answer = await call(request, timeout=CALL_TIMEOUT_S, metadata=((PRINCIPAL_KEY, "demo"),))
        if answer.outcome in (pb.Answer.refused, pb.Answer.unknown) or answer.items:
            first = answer.items[0].reason if answer.items else answer.reason
            raise DemoFailed(f"{method}: {pb.Answer.Outcome.Name(answer.outcome)}, {first}")
        return answer


async def run_all(work: Callable[[Request], Awaitable[object]], requests: Iterable[Request]) -> None:
    """Do `work` for every request, IN_FLIGHT at once; the first failure ends it."""
    waiting = iter(requests)

    async def worker() -> None:
        for request in waiting:
            await work(request)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(IN_FLIGHT):
            tasks.create_task(worker())
