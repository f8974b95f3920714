"""Errors of calls as exceptions, with the reporter of the error, and whether the request was ever sent.

A request without a connection took no effect, so its outcome is known. The gRPC library reports this case only as
"failed to connect to all addresses", or as a name that did not resolve. Its texts for a broken connection are
different.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from eventstore.reasons import Fault, Reason
from schemas.api.metadata import ANSWERED_KEY, ERROR_DOMAIN, STATUS_DETAILS_KEY

Detail = TypeVar("Detail", ErrorInfo, RetryInfo)

_NEVER_SENT = ("failed to connect to all addresses", "errors resolving", "DNS resolution failed")
_RETRIABLE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
_UNANSWERED = _RETRIABLE | {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED}


class CallFailed(Exception):
    """A call ended with an error status. The message is the error text of the server or of the gRPC library."""

    def __init__(self, error: grpc.RpcError, server: str) -> None:
        super().__init__(error.details() or "")
        self.code: grpc.StatusCode = error.code()
        self.server = server
        self.is_from_plane = any(key == ANSWERED_KEY for key, _ in _trailing(error))
        """Whether the error was reported by a server of the plane, and not by the gRPC library."""
        fault = fault_in(error)
        self.reason = fault.reason if self.is_from_plane else None
        """The code of an error of the plane."""
        self.fields: Mapping[str, str] = fault.fields
        """The named values of an error of the plane."""
        self.retry_delay_s = _retry_delay_s(error) if self.is_from_plane else 0.0
        """The pause that the plane asks for before another attempt."""

    @property
    def details(self) -> str:
        return str(self)

    @property
    def was_sent(self) -> bool:
        """Whether the request may have reached a server."""
        is_unsent = self.code is grpc.StatusCode.UNAVAILABLE and self.details.startswith(_NEVER_SENT)
        return self.is_from_plane or not is_unsent

    @property
    def is_retriable(self) -> bool:
        """Whether another attempt, at this or another server, may succeed."""
        return self.code in _RETRIABLE and not isinstance(self, StillFolding)


class NotFound(CallFailed):
    """The named object does not exist in the plane."""


class Rejected(CallFailed):
    """The call is refused: an invalid request, a missing permission, an id in use, a limit. Nothing was appended."""


class PositionExpired(Rejected):
    """A stream cannot continue from this position; list again, and continue from the position of the list."""


class Unanswered(CallFailed):
    """No server responded in time; the outcome of a sent command is unknown."""


class StillFolding(Unanswered):
    """The server is still folding the log up to the point of an as-of query."""


def failure(error: grpc.RpcError, server: str) -> CallFailed:
    """The exception for the error of a call."""
    code: grpc.StatusCode = error.code()
    if code is grpc.StatusCode.NOT_FOUND:
        return NotFound(error, server)
    if code is grpc.StatusCode.OUT_OF_RANGE:
        return PositionExpired(error, server)
    if code not in _UNANSWERED:
        return Rejected(error, server)
    is_folding = fault_in(error).reason is Reason.STILL_FOLDING
    return (StillFolding if is_folding else Unanswered)(error, server)


def fault_in(error: grpc.RpcError) -> Fault:
    """The fault in the details of an error. Its code is UNAVAILABLE if the error has no details, or if this version
    does not know the code."""
    sentence = error.details() or ""
    for key, value in _trailing(error):
        if key == STATUS_DETAILS_KEY:
            info = _detail(value, ErrorInfo)
            if info.domain == ERROR_DOMAIN and info.reason in Reason.__members__:
                return Fault(sentence, Reason[info.reason], **info.metadata)
    return Fault(sentence, Reason.UNAVAILABLE)


def _retry_delay_s(error: grpc.RpcError) -> float:
    delays = (_detail(value, RetryInfo).retry_delay for key, value in _trailing(error) if key == STATUS_DETAILS_KEY)
    return max((delay.seconds + delay.nanos / 1e9 for delay in delays), default=0.0)


def _detail(packed: bytes, kind: type[Detail]) -> Detail:
    """The detail of this kind in a google.rpc.Status; empty if the status has no such detail or cannot be decoded."""
    detail = kind()
    try:
        any(packed_detail.Unpack(detail) for packed_detail in Status.FromString(packed).details)
    except DecodeError:
        return kind()
    return detail


def _trailing(error: grpc.RpcError) -> Iterable[tuple[str, Any]]:
    trailing: Any = error.trailing_metadata() or ()
    return trailing  # type: ignore[no-any-return]
