"""The asynchronous client of a plane: commands, queries and pages, with retries at every server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from types import TracebackType
from typing import Any, NamedTuple, Self

import grpc
from google.protobuf.message import Message

from commands.client.channels import CertificateSource, Channels
from commands.client.errors import failure
from commands.client.retries import Retries
from eventstore.ids import uuid7
from schemas.api import dpuplane_pb2 as pb
from schemas.api.metadata import PRINCIPAL_KEY
from schemas.api.stubs import CommandsStub, QueriesStub, StreamsStub

PAGE = 1_000


class WatchedChanges(NamedTuple):
    """The changes of a list up to `position`, since the previous value of the watch."""

    changes: list[pb.Change]
    position: str


class PlaneClient:
    """A client of all servers of a plane. `rounds` is the maximum of attempts per server for one call."""

    def __init__(
        self,
        servers: Collection[str],
        *,
        timeout_s: float,
        now_ms: Callable[[], int],
        rng: random.Random,
        rounds: int = 1,
        principal: str = "",
        certificates: CertificateSource | None = None,
    ) -> None:
        self._retries = Retries([*servers], rounds=rounds, rng=rng)
        self._channels = Channels(grpc.aio, certificates)
        self._metadata = ((PRINCIPAL_KEY, principal),) if principal and certificates is None else ()
        self._timeout_s = timeout_s
        self._now_ms = now_ms
        self._rng = rng
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        for closing in self._closing:
            closing.cancel()
        for channel in self._channels.take():
            await channel.close(grace=None)

    @property
    def servers(self) -> list[str]:
        """The servers, beginning with the one that responded last."""
        return self._retries.servers

    async def command(self, method: str, request: Any) -> pb.CommandResult:
        """Send a command, and repeat the command under its id while no server responds or the outcome is unknown.
        Raises CallFailed."""
        request.command_id = request.command_id or uuid7(self._now_ms(), self._rng)
        answer: pb.CommandResult = await self._call(CommandsStub, method, request, _is_known)
        return answer

    async def query(self, method: str, request: Message) -> Any:
        """Call a method of Queries that responds with one message. Raises CallFailed."""
        return await self._call(QueriesStub, method, request, lambda _: True)

    async def pages(self, method: str, request: Any) -> AsyncIterator[Any]:
        """Every page of a list. Raises CallFailed."""
        request.page_size = request.page_size or PAGE
        while True:
            page = await self.query(method, request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def watch(self, request: pb.WatchRequest) -> AsyncGenerator[WatchedChanges, None]:
        """The changes of a list from `request.position` on, for ever; a lost stream is continued at any server.

        Raises PositionExpired if the stream cannot continue: then list again, and watch from the position of the list.
        Raises Unanswered if no server takes the stream.
        """
        while True:
            attempts = self._retries.begin()
            for server, pause_s in attempts:
                await asyncio.sleep(pause_s)
                stream = StreamsStub(self._channels[server]).Watch(request, metadata=self._metadata)
                changes: list[pb.Change] = []
                has_begun = False
                try:
                    async for response in stream:
                        changes += response.changes
                        if not response.position:
                            continue
                        request.position, has_begun = response.position, True
                        yield WatchedChanges(changes, response.position)
                        changes = []
                except grpc.aio.AioRpcError as error:
                    attempts.failed(failure(error, server))
                finally:
                    stream.cancel()
                if has_begun:
                    break
            else:
                raise attempts.last_failure()

    async def keep_session(
        self, request: pb.KeepSessionRequest, interval_s: Callable[[], float]
    ) -> AsyncGenerator[pb.KeepSessionResponse, None]:
        """Keep a session open for ever, with a message after each interval; after a lost stream, a new session begins
        at any server. Raises Rejected, and Unanswered if no server takes the stream."""
        while True:
            attempts = self._retries.begin()
            for server, pause_s in attempts:
                await asyncio.sleep(pause_s)
                request.session = uuid7(self._now_ms(), self._rng)
                stream = StreamsStub(self._channels[server]).KeepSession(metadata=self._metadata)
                has_begun = False
                try:
                    while True:
                        async with asyncio.timeout(self._timeout_s):
                            await stream.write(request)
                            response = await stream.read()
                        if not isinstance(response, pb.KeepSessionResponse):  # grpc.aio.EOF
                            break
                        has_begun = True
                        yield response
                        await asyncio.sleep(interval_s())
                except grpc.aio.AioRpcError as error:
                    attempts.failed(failure(error, server))
                except (TimeoutError, asyncio.InvalidStateError):
                    has_begun = True  # the stream is open and silent: begin again, with the first server
                finally:
                    stream.cancel()
                if has_begun:
                    break
            else:
                raise attempts.last_failure()

    async def _call(self, stub: Any, method: str, request: Message, is_final: Callable[[Any], bool]) -> Any:
        self._retire(self._channels.outdated())
        attempts, answer = self._retries.begin(), None
        for server, pause_s in attempts:
            await asyncio.sleep(pause_s)
            call = getattr(stub(self._channels[server]), method)
            try:
                answer = await call(request, timeout=self._timeout_s, metadata=self._metadata)
            except grpc.aio.AioRpcError as error:
                attempts.failed(failure(error, server))
                continue
            self._retries.succeeded(server)
            if is_final(answer):
                break
        if answer is None:
            raise attempts.last_failure()
        return answer

    def _retire(self, channels: Collection[Any]) -> None:
        """Close channels after their running calls."""
        for channel in channels:
            closing = asyncio.create_task(channel.close(self._timeout_s))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


def _is_known(answer: pb.CommandResult) -> bool:
    unknown = pb.OUTCOME_UNKNOWN
    return unknown not in (answer.outcome, *(item.outcome for item in answer.items))
