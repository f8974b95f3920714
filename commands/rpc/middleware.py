"""The middleware around every RPC: it authenticates, authorizes, limits, sets the deadline, maps errors and counts.

Handlers are built from the service descriptors instead of the generated `add_..._to_server`. So a request that is not
valid protobuf is refused like any other invalid request, and a unary call passes no interceptor (one grpc.aio
interceptor costs about a tenth of a call).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from commands.rpc import authorization
from commands.rpc.access import AccessControl
from commands.rpc.error_details import PermissionDenied, fault_of, metadata_of, status_of
from commands.rpc.limits import Admission, LimitExceeded, Limits
from commands.rpc.metrics import MethodMetrics, RpcMetrics
from eventstore.errors import PermanentError, TransientError
from eventstore.reasons import Fault, Reason
from projections import field_checks
from projections.fleet.withdrawals.principals import Principal
from schemas.api.metadata import ANSWERED_KEY, PRINCIPAL_KEY

_ANSWERED = ((ANSWERED_KEY, "yes"),)
_LOOPBACK = ("ipv4:127.", "ipv6:[::1]", "ipv6:%5B::1%5D", "unix:")
_ANSWER_MARGIN_S = 0.1
"""Time subtracted from a caller's deadline (at most a tenth of it), so that an `unknown` result still reaches the
caller.
"""

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
Answer: TypeAlias = Callable[[Any, Context], Awaitable[Message]]


class Call(NamedTuple):
    """The principal of a call, and the time until its deadline."""

    principal: str
    timeout_s: float


class Tracing(Protocol):
    """Traces calls whose client asks for a trace."""

    def call(self, method: str, metadata: Any) -> AbstractContextManager[None]:
        """The context of a call; events appended inside belong to its trace."""
        ...


class UndecodableRequest(NamedTuple):
    """The placeholder for a request that could not be decoded."""

    size: int
    kind: str

    @property
    def fault(self) -> Fault:
        return Fault(f"request: {self.size} bytes are not a valid {self.kind}", Reason.DECODING_FAILED)


class RpcMiddleware:
    """Turns methods that take (request, Call) into gRPC handlers. `metrics` counts their calls."""

    def __init__(
        self, limits: Limits, admission: Admission, access: AccessControl | None = None, tracing: Tracing | None = None
    ) -> None:
        self.metrics = RpcMetrics(asyncio.get_running_loop().time)
        self._limits = limits
        self._admission = admission
        self._access = access
        self._tracing = tracing

    def handlers(self, service: ServiceDescriptor, servicer: object) -> grpc.GenericRpcHandler[Any, Any]:
        """Handlers of every method of a service. The servicer has a method of the same name in snake case for each."""
        methods = {
            method.name: self._handler(method, getattr(servicer, snake_case(method.name))) for method in service.methods
        }
        return grpc.method_handlers_generic_handler(service.full_name, methods)

    def _handler(self, method: MethodDescriptor, serve: Callable[..., Any]) -> grpc.RpcMethodHandler[Any, Any]:
        name = f"{method.containing_service.name}.{method.name}"
        counts = self.metrics.add_method(method)
        decode, encode = _decoder(method), GetMessageClass(method.output_type).SerializeToString
        if method.server_streaming:
            streamed = self._streaming(name, counts, serve)
            if method.client_streaming:
                return grpc.stream_stream_rpc_method_handler(streamed, decode, encode)
            return grpc.unary_stream_rpc_method_handler(streamed, decode, encode)
        answer = self._traced(name, self._unary(name, counts, serve))
        if method.client_streaming:
            return grpc.stream_unary_rpc_method_handler(answer, decode, encode)
        return grpc.unary_unary_rpc_method_handler(answer, decode, encode)

    def _traced(self, method: str, answer: Answer) -> Answer:
        tracing = self._tracing
        if tracing is None:
            return answer

        async def traced(request: Any, context: Context) -> Message:
            with tracing.call(method, context.invocation_metadata() or ()):
                return await answer(request, context)

        return traced

    def _unary(self, method: str, counts: MethodMetrics, serve: Callable[[Any, Call], Awaitable[Message]]) -> Answer:
        async def answer(request: Any, context: Context) -> Message:
            revision = self._revision
            with counts.call() as ended:
                try:
                    call, proved = self._call(context)
                    with self._admission.admit(call.principal):
                        found = await serve(self._permitted(method, request, proved, context, counts), call)
                        self._check_revoked(revision, context)
                except (PermanentError, TransientError, LimitExceeded, TimeoutError) as error:
                    ended.code = status_of(error)
                    await self._abort(error, context)
                ended.code = grpc.StatusCode.OK
            counts.sent_messages += 1
            self.metrics.record_result(counts.method, found)
            return found

        return answer

    def _streaming(
        self, method: str, counts: MethodMetrics, serve: Callable[[Any, Call], AsyncIterator[Message]]
    ) -> Callable[[Any, Context], AsyncIterator[Message]]:
        async def answer(request: Any, context: Context) -> AsyncIterator[Message]:
            revision = self._revision
            with counts.call() as ended:
                try:
                    call, proved = self._call(context)
                    with self._admission.admit_stream(call.principal):
                        async for message in serve(self._permitted(method, request, proved, context, counts), call):
                            self._check_revoked(revision, context)
                            counts.sent_messages += 1
                            yield message
                except (PermanentError, TransientError, LimitExceeded, TimeoutError) as error:
                    ended.code = status_of(error)
                    await self._abort(error, context)
                ended.code = grpc.StatusCode.OK

        return answer

    @property
    def _revision(self) -> int:
        return 0 if self._access is None else self._access.revision

    def _check_revoked(self, revision: int, context: Context) -> None:
        """Raises Unauthenticated if the certificate of a call was revoked since it began."""
        if self._access is not None and self._access.revision != revision:
            self._access.authenticate(context.auth_context, context.peer)

    async def _abort(self, error: Exception, context: Context) -> NoReturn:
        status, fault = status_of(error), fault_of(error)
        self.metrics.refusals[fault.reason] += 1
        await context.abort(status, str(fault), (*_ANSWERED, metadata_of(status, fault)))

    def _permitted(
        self, method: str, request: Any, proved: Principal | None, context: Context, counts: MethodMetrics
    ) -> Any:
        """The request or the stream of requests, if it was decoded and the principal may send it."""
        is_stream = isinstance(request, AsyncIterator)
        counts.received_messages += not is_stream
        request = _well_formed(request)
        access = self._access
        if access is None or proved is None:
            return _received(request, counts) if is_stream else request
        names_nodes = authorization.names_nodes(method)
        if not (is_stream and names_nodes) and (fault := access.denial_reason(method, proved, request)):
            raise PermissionDenied(fault)
        if not is_stream:
            return request

        def check(message: Any) -> None:
            access.authenticate(context.auth_context, context.peer)  # a stream may outlive its certificate
            if names_nodes and (fault := access.denial_reason(method, proved, _well_formed(message))):
                raise PermissionDenied(fault)

        return _received(request, counts, check)

    def _call(self, context: Context) -> tuple[Call, Principal | None]:
        """The call with its principal, which the certificate proves if the listener requires certificates."""
        remaining_s = context.time_remaining()
        if remaining_s is None:
            timeout_s = self._limits.deadline_s_default
        else:
            timeout_s = min(remaining_s - min(_ANSWER_MARGIN_S, remaining_s / 10), self._limits.deadline_s_max)
        metadata = context.invocation_metadata() or ()
        if self._access is None:
            return Call(principal_of(metadata, context.peer), timeout_s), None
        principal = self._access.authenticate(context.auth_context, context.peer)
        if any(key == PRINCIPAL_KEY for key, _ in metadata):
            raise PermissionDenied(f"{PRINCIPAL_KEY}: must not be given: the certificate names the caller, {principal}")
        return Call(str(principal), timeout_s), principal


def principal_of(metadata: Any, peer: Callable[[], str]) -> str:
    """The principal of a call; `?` marks an unauthenticated one. Raises PermissionDenied or PermanentError."""
    for key, value in metadata:
        if key == PRINCIPAL_KEY:
            if not peer().startswith(_LOOPBACK):
                raise PermissionDenied(
                    f"{PRINCIPAL_KEY}: {field_checks.quoted(str(value))} may be given on the loopback interface only"
                )
            fault = field_checks.check_clique(PRINCIPAL_KEY, str(value))
            if fault is not None:
                raise PermanentError(fault)
            return f"?{value}"
    return "?anonymous"


def snake_case(name: str) -> str:
    """The servicer's name of a method."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def _decoder(method: MethodDescriptor) -> Callable[[bytes], Message | UndecodableRequest]:
    parse = GetMessageClass(method.input_type).FromString
    kind = method.input_type.name

    def decode(raw: bytes) -> Message | UndecodableRequest:
        try:
            return parse(raw)
        except DecodeError:
            return UndecodableRequest(len(raw), kind)

    return decode


async def _received(
    requests: AsyncIterator[Any], counts: MethodMetrics, check: Callable[[Any], None] = lambda _: None
) -> AsyncIterator[Any]:
    """Yield the requests of a stream. Each request is checked when it arrives, because the stream may last for days."""
    async for request in requests:
        check(request)
        counts.received_messages += 1
        yield request


def _well_formed(request: Any) -> Any:
    if type(request) is UndecodableRequest:
        raise PermanentError(request.fault)
    return request
