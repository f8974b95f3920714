"""The client of the plane's API: each call goes to the first server that responds.

The client, not the server, creates the id of a command. If a server does not respond, the client sends the same
command under the same id to the next server. The command takes effect at most once, whatever the outcome of the first
call was.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import click
import grpc
from google.protobuf.message import Message

from commands.client.channels import CertificateSource, Channels
from commands.client.errors import CallFailed, NotFound, Rejected, StillFolding, failure
from commands.client.retries import Retries
from deploy.cli.shared.errors import NotFoundError, Refused, StillFoldingError, Unreachable, retry_advice
from deploy.cli.shared.results import merged_position
from deploy.cli.shared.rpc_errors import no_answer_message, not_sent_message
from eventstore.ids import part_id, uuid7
from schemas.api.metadata import PRINCIPAL_KEY
from schemas.api.stubs import CommandsStub, QueriesStub, StreamsStub

_COMMANDS: Callable[[grpc.Channel], Any] = CommandsStub
_QUERIES: Callable[[grpc.Channel], Any] = QueriesStub
_STREAMS: Callable[[grpc.Channel], Any] = StreamsStub
_IN_FLIGHT = 64
_FOLDING_MS_MAX = 900_000
_FOLDING_PAUSE_S = 0.5


class OpenStream:
    """A stream of the API that has begun. Raises RpcError if its first message does not come in time."""

    def __init__(self, call: Any, timeout_s: float) -> None:
        self._call = call
        late = threading.Timer(timeout_s, call.cancel)
        late.daemon = True
        late.start()
        try:
            self._first = next(call, None)
        finally:
            late.cancel()

    def next(self) -> Any:
        """The next message, None at the end; waits for it. Raises RpcError."""
        first, self._first = self._first, None
        return first if first is not None else next(self._call, None)

    def cancel(self) -> None:
        self._call.cancel()


class Client:
    """Calls the first of the servers that responds, and stays with it."""

    def __init__(
        self,
        *,
        servers: Sequence[str],
        principal: str,
        timeout_s: float,
        command_id: str,
        now_ms: Callable[[], int],
        rng: random.Random,
        min_position: str = "",
        certificates: CertificateSource | None = None,
    ) -> None:
        self._retries = Retries(servers, rounds=1, rng=rng)
        self._metadata = [(PRINCIPAL_KEY, principal)] if principal else []
        self._timeout_s = timeout_s
        self._min_position = min_position
        self._seen: list[str] = []
        self.as_of = ""
        """The position or time in the past for which servers answer queries; empty for the present."""
        self.sent_command_ids: dict[str, None] = {}
        """Ids of the commands that were sent and may have taken effect."""
        self._command_id = command_id
        self._made = 0
        self._now_ms = now_ms
        self._rng = rng
        self._channels = Channels(grpc, certificates)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for channel in self._channels.take():
            channel.close()

    @property
    def server(self) -> str:
        """The server that responds, or the first to try."""
        return self._retries.servers[0]

    @property
    def command_id(self) -> str:
        """The id that all commands of this client share; empty if each command gets an id of its own."""
        return self._command_id

    def next_command_id(self) -> str:
        """The given id, then ids derived from it, so that a command of several parts can be repeated under one id."""
        if not self._command_id:
            return uuid7(self._now_ms(), self._rng)
        number, self._made = self._made, self._made + 1
        return part_id(self._command_id, number) if number else self._command_id

    def use_one_command_id(self) -> str:
        """Send all later commands as parts of one command; returns its id, which is the given one or a new one."""
        self._command_id = self._command_id or uuid7(self._now_ms(), self._rng)
        return self._command_id

    def command(self, method: str, request: Message) -> Any:
        """Call a method of Commands that takes one request; its command id is filled in."""
        if not request.command_id:  # type: ignore[attr-defined]
            request.command_id = self.next_command_id()  # type: ignore[attr-defined]
        self._record_sent(request)
        try:
            return self._call_first_available(lambda channel: getattr(_COMMANDS(channel), method), request)
        except KeyboardInterrupt:
            command_id: str = request.command_id  # type: ignore[attr-defined]
            click.echo(f"interrupted; the command may still take effect: {retry_advice(command_id)}", err=True)
            raise

    def send(self, method: str, request: Message) -> Any:
        """Call a method of Commands that appends nothing to the log, and so has no command id."""
        return self._call_first_available(lambda channel: getattr(_COMMANDS(channel), method), request)

    def pipelined(self, method: str, requests: Iterable[Message]) -> Iterator[Any]:
        """Like `command` for many concurrent requests; results in the order of the requests."""
        waiting: deque[tuple[Message, Any]] = deque()
        for request in requests:
            request.command_id = self.next_command_id()  # type: ignore[attr-defined]
            self._record_sent(request)
            call = getattr(_COMMANDS(self._channels[self.server]), method)
            waiting.append((request, call.future(request, timeout=self._timeout_s, metadata=self._metadata)))
            if len(waiting) == _IN_FLIGHT:
                yield self._answered(method, *waiting.popleft())
        while waiting:
            yield self._answered(method, *waiting.popleft())

    def _answered(self, method: str, request: Message, call: Any) -> Any:
        try:
            return call.result()
        except grpc.RpcError as error:
            found = failure(error, self.server)
            if not found.is_retriable:
                raise self._failure(found) from error
            return self.command(method, request)

    def query(self, method: str, request: Message) -> Any:
        """Call a method of Queries; the minimum position and the point of the past are filled in."""
        if self._min_position and "min_position" in request.DESCRIPTOR.fields_by_name:
            request.min_position = self._min_position  # type: ignore[attr-defined]
        if self.as_of:
            request.as_of = self.as_of  # type: ignore[attr-defined]
        until_ms = self._now_ms() + _FOLDING_MS_MAX
        while True:
            try:
                answer = self._call_first_available(lambda channel: getattr(_QUERIES(channel), method), request)
                last = answer[-1] if isinstance(answer, list) and answer else answer
                self._seen.append(getattr(last, "position", ""))
                return answer
            except StillFoldingError as folding:
                if self._now_ms() >= until_ms:
                    raise
                click.echo(folding.message, err=True)
                time.sleep(_FOLDING_PAUSE_S)

    def open_stream(self, method: str, request: Message) -> OpenStream:
        """Open a stream of Streams, which has no deadline after its first message."""

        def bind(channel: grpc.Channel) -> Callable[..., OpenStream]:
            def opened(request: Message, *, timeout: float, metadata: Any) -> OpenStream:
                return OpenStream(getattr(_STREAMS(channel), method)(request, metadata=metadata), timeout)

            return opened

        stream: OpenStream = self._call_first_available(bind, request)
        return stream

    def error_of(self, error: grpc.RpcError) -> NotFoundError | Refused | Unreachable:
        """The exception of the command line for the error of a stream."""
        return self._failure(failure(error, self.server))

    def advance_min_position(self) -> None:
        """Require every later response, from any server, to be at least as new as all responses so far."""
        self._min_position = merged_position([self._min_position, *self._seen])
        self._seen.clear()

    def raise_min_position(self, position: str) -> None:
        """Require later responses to be at least as new as this position."""
        self._min_position = merged_position([self._min_position, position])

    def stream(self, method: str, requests: Iterator[Message], timeout_s: float) -> Any:
        """Call a client-streaming method of Commands, on one server only: a stream cannot be sent again."""
        try:
            return getattr(_COMMANDS(self._channels[self.server]), method)(
                map(self._record_sent, requests), timeout=timeout_s, metadata=self._metadata
            )
        except grpc.RpcError as error:
            raise self._failure(failure(error, self.server)) from error

    def _record_sent(self, request: Message) -> Message:
        """Remember the id of a sent command; a dry run is not remembered."""
        command_id: str = request.command_id  # type: ignore[attr-defined]
        if not getattr(request, "dry_run", False):
            self.sent_command_ids[command_id] = None
        return request

    def _call_first_available(self, bind: Callable[[grpc.Channel], Callable[..., Any]], request: Message) -> Any:
        attempts, tried = self._retries.begin(), []
        for server, _ in attempts:
            tried.append(server)
            try:
                call = bind(self._channels[server])(request, timeout=self._timeout_s, metadata=self._metadata)
                answer = list(call) if isinstance(call, Iterator) else call
            except grpc.RpcError as error:
                try:
                    attempts.failed(failure(error, server))
                except CallFailed as found:
                    raise self._failure(found) from error
                continue
            self._retries.succeeded(server)
            return answer
        last = attempts.last_failure()
        last.server = ", ".join(tried)
        raise self._failure(last, command_id=getattr(request, "command_id", ""))

    def _failure(self, found: CallFailed, command_id: str = "") -> NotFoundError | Refused | Unreachable:
        """The exception of the command line for a failed call."""
        match found:
            case NotFound():
                return NotFoundError(found.details, found.reason)
            case StillFolding():
                return StillFoldingError(found.details)
            case Rejected():
                return Refused(found.details)
        if found.is_from_plane:
            advice = retry_advice(command_id) or "try again, or wait longer with --timeout"
            return Unreachable(f"{found.details}; {advice}")
        is_secure = self._channels.is_secure
        if not found.was_sent:
            self.sent_command_ids.pop(command_id, None)
            return Unreachable(not_sent_message(found, is_secure=is_secure))
        return Unreachable(no_answer_message(found, retry_advice(command_id) or "try again", is_secure=is_secure))
