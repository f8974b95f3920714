"""The load of the demo: concurrent commands through the gRPC API, with every result counted.

A refusal stops the demo with the plane's sentence: the fleet of the demo is valid, so the plane should refuse nothing.
A command without a response is sent again under the same id, as every client may do: it takes effect at most once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from commands.client.client import PlaneClient
from commands.client.errors import CallFailed
from eventstore.errors import PermanentError
from schemas.api import dpuplane_pb2 as pb

IN_FLIGHT = 200
"""Maximum number of concurrent commands."""

CALL_TIMEOUT_S = 30.0
TRIES = 4
"""Maximum number of attempts at one command. They take 120 s: an id may be repeated for 120 s after its creation."""

Request = TypeVar("Request")


class DemoFailed(PermanentError):
    """The plane did not do what the demo requested."""


class DemoClient(PlaneClient):
    """A client of the demo's plane."""

    def __init__(self, server: str, *, now_ms: Callable[[], int], rng: random.Random) -> None:
        super().__init__([server], timeout_s=CALL_TIMEOUT_S, now_ms=now_ms, rng=rng, rounds=TRIES, principal="demo")

    async def command(self, method: str, request: Any) -> pb.CommandResult:
        """Send a command until it is done, waiting or held. Raises DemoFailed otherwise."""
        try:
            answer = await super().command(method, request)
        except CallFailed as error:
            raise _no_response(method, f"{error.code.name.lower().replace('_', ' ')}, {error.details}") from error
        results: list[Any] = [answer, *answer.items]
        for each in results:
            if each.outcome == pb.OUTCOME_UNKNOWN:
                raise _no_response(method, each.reason)
            if each.outcome == pb.OUTCOME_REFUSED:
                raise DemoFailed(f"{method}: refused, {each.reason}")
        return answer


def _no_response(method: str, said: str) -> DemoFailed:
    return DemoFailed(f"{method}: no response in {TRIES} tries of {CALL_TIMEOUT_S:g} s; the last error: {said}")


async def run_all(work: Callable[[Request], Awaitable[object]], requests: Iterable[Request]) -> None:
    """Run `work` for every request, at most IN_FLIGHT at once. The first failure cancels the rest and is raised."""
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
