"""Queries as of a point of the past: a request with `as_of` is answered from folds of the log up to that point.

`with_as_of` wraps a Queries service: a request without `as_of` goes to the live service. A separate process folds the
log up to a point and serves the same service over a socket; `AsOfQueries` is the client of that service.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeVar, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from commands.client.errors import fault_in
from commands.rpc.error_details import NotFound
from commands.rpc.middleware import Call, snake_case
from eventstore.errors import LogUnavailable, PermanentError
from eventstore.reasons import Fault, Reason
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import QueriesStub

QUERIES = pb.DESCRIPTOR.services_by_name["Queries"]
S = TypeVar("S")

_STUB: Callable[[grpc.aio.Channel], Any] = QueriesStub


class AsOfSource(Protocol):
    """Provides the Queries service as of points of the past."""

    async def at(self, text: str, *, timeout_s: float) -> Any:
        """The Queries service (methods in snake case, taking a request and a Call) at a position or time.

        Raises PermanentError if there is no such point, and LogUnavailable while the log is being folded up to it.
        """
        ...


class NoAsOfSource:
    """The source of a server that answers live queries only."""

    async def at(self, text: str, *, timeout_s: float) -> Any:
        raise PermanentError(
            "as_of: this server answers as of now only; start it with --as-of-servers 2, or omit as_of"
        )


def with_as_of(live: S, past: AsOfSource) -> S:
    """A Queries service that answers from `live`, or as of the point that a request names."""
    return cast(S, _AsOfRouter(live, past))


class _AsOfRouter:
    def __init__(self, live: object, past: AsOfSource) -> None:
        self._past = past
        self._methods: dict[str, Any] = {}
        for method in QUERIES.methods:
            name = snake_case(method.name)
            serve = getattr(live, name)
            if _accepts_as_of(method):
                serve = self._streaming(name, serve) if method.server_streaming else self._unary(name, serve)
            self._methods[name] = serve

    def __getattr__(self, name: str) -> Any:
        try:
            return self._methods[name]
        except KeyError:
            raise AttributeError(name) from None

    def _unary(self, name: str, live: Callable[[Any, Call], Awaitable[Message]]) -> Callable[..., Awaitable[Message]]:
        async def ask_past(request: Any, call: Call) -> Message:
            service, past_request, left = await self._route(request, call)
            answer: Message = await getattr(service, name)(past_request, left)
            return answer

        def ask(request: Any, call: Call) -> Awaitable[Message]:
            return ask_past(request, call) if request.as_of else live(request, call)

        return ask

    def _streaming(
        self, name: str, live: Callable[[Any, Call], AsyncIterator[Message]]
    ) -> Callable[..., AsyncIterator[Message]]:
        async def ask_past(request: Any, call: Call) -> AsyncIterator[Message]:
            service, past_request, left = await self._route(request, call)
            async for message in getattr(service, name)(past_request, left):
                yield message

        def ask(request: Any, call: Call) -> AsyncIterator[Message]:
            return ask_past(request, call) if request.as_of else live(request, call)

        return ask

    async def _route(self, request: Any, call: Call) -> tuple[Any, Message, Call]:
        """The service at the request's point in time, the request without `as_of`, and the call with its remaining
        time."""
        if request.min_position:
            raise PermanentError("min_position: must not be given together with as_of")
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + call.timeout_s
        service = await self._past.at(request.as_of, timeout_s=call.timeout_s)
        past_request = type(request)()
        past_request.CopyFrom(request)
        past_request.as_of = ""
        return service, past_request, call._replace(timeout_s=until_s - now_s())


class AsOfQueries:
    """The client of a Queries service on a channel. It raises the errors that the service raised."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        stub = _STUB(channel)
        self._methods: dict[str, Any] = {
            snake_case(method.name): _remote_method(getattr(stub, method.name), method) for method in QUERIES.methods
        }

    def __getattr__(self, name: str) -> Any:
        try:
            return self._methods[name]
        except KeyError:
            raise AttributeError(name) from None


def _remote_method(stub: Any, method: MethodDescriptor) -> Any:
    async def ask(request: Message, call: Call) -> Message:
        try:
            answer: Message = await stub(request, timeout=call.timeout_s)
        except grpc.aio.AioRpcError as error:
            raise _as_raised_remotely(error) from error
        return answer

    async def stream(request: Message, call: Call) -> AsyncIterator[Message]:
        try:
            async for message in stub(request, timeout=call.timeout_s):
                yield message
        except grpc.aio.AioRpcError as error:
            raise _as_raised_remotely(error) from error

    return stream if method.server_streaming else ask


def _as_raised_remotely(error: grpc.aio.AioRpcError) -> Exception:
    fault = fault_in(error)
    match error.code():
        case grpc.StatusCode.NOT_FOUND:
            return NotFound(fault)
        case grpc.StatusCode.INVALID_ARGUMENT:
            return PermanentError(fault)
        case code:
            reason = f"as_of: the as-of server did not respond ({fault or code.name}); try again"
            return LogUnavailable(Fault(reason, Reason.STILL_FOLDING))


def _accepts_as_of(method: MethodDescriptor) -> bool:
    return "as_of" in method.input_type.fields_by_name
