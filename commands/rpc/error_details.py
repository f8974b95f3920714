"""The error of a call in machine-readable form, as a google.rpc.Status: an ErrorInfo with the code and values of its
fault, the field of an invalid request, and when to try again.
"""

from __future__ import annotations

from collections.abc import Mapping

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from commands.rpc.authentication import Unauthenticated
from commands.rpc.errors import CommandIdInUse, PositionExpired, PreconditionFailed
from commands.rpc.limits import LimitExceeded
from eventstore.errors import PermanentError, TransientError
from eventstore.reasons import Fault, Reason
from schemas.api.metadata import ERROR_DOMAIN, STATUS_DETAILS_KEY

RETRY_S = 1
"""The pause, in seconds, that the server asks of a client before the next attempt."""

_DESCRIPTION_MAX = 1_000
"""Maximum number of characters of a description. Three response headers contain it, and a client accepts 8 kB of
headers."""


class NotFound(PermanentError):
    """A query names something that does not exist. gRPC: NOT_FOUND."""


class PermissionDenied(PermanentError):
    """The principal may not call this method. gRPC: PERMISSION_DENIED."""


_KINDS: Mapping[type[Exception], tuple[grpc.StatusCode, Reason]] = {
    PermissionDenied: (grpc.StatusCode.PERMISSION_DENIED, Reason.PERMISSION_DENIED),
    Unauthenticated: (grpc.StatusCode.UNAUTHENTICATED, Reason.UNAUTHENTICATED),
    LimitExceeded: (grpc.StatusCode.RESOURCE_EXHAUSTED, Reason.OVER_LIMIT),
    PositionExpired: (grpc.StatusCode.OUT_OF_RANGE, Reason.POSITION_EXPIRED),
    CommandIdInUse: (grpc.StatusCode.ALREADY_EXISTS, Reason.COMMAND_ID_IN_USE),
    PreconditionFailed: (grpc.StatusCode.FAILED_PRECONDITION, Reason.VERSION_NOT_SUPPORTED),
    NotFound: (grpc.StatusCode.NOT_FOUND, Reason.INVALID_FIELD),
}
"""Status and code of each kind of error. If the message of an error is a Fault, its code is that of the Fault."""

_RETRIABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)


def status_of(error: Exception) -> grpc.StatusCode:
    """The gRPC status of a call that ends with this error."""
    return _kind(error)[0]


def fault_of(error: Exception) -> Fault:
    """The fault of a call that ends with this error."""
    given = error.args[0] if error.args else ""
    if isinstance(given, Fault):
        return given
    if isinstance(error, TimeoutError):  # the exception is empty, and gRPC would log it with its traceback
        return Fault("deadline: no response within the time limit of the call", Reason.DEADLINE_EXCEEDED)
    return Fault(str(error), _kind(error)[1])


def _kind(error: Exception) -> tuple[grpc.StatusCode, Reason]:
    if isinstance(error, TimeoutError):
        return grpc.StatusCode.DEADLINE_EXCEEDED, Reason.DEADLINE_EXCEEDED
    if isinstance(error, TransientError):
        return grpc.StatusCode.UNAVAILABLE, Reason.UNAVAILABLE
    return _KINDS.get(type(error), (grpc.StatusCode.INVALID_ARGUMENT, Reason.INVALID_FIELD))


def metadata_of(code: grpc.StatusCode, fault: Fault) -> tuple[str, bytes]:
    """The trailing metadata with the details of an error."""
    status = Status(code=code.value[0], message=fault)
    status.details.add().Pack(ErrorInfo(reason=fault.reason, domain=ERROR_DOMAIN, metadata=fault.fields))
    if code is grpc.StatusCode.INVALID_ARGUMENT and "field" in fault.fields:
        violation = BadRequest.FieldViolation(field=fault.fields["field"], description=fault[:_DESCRIPTION_MAX])
        status.details.add().Pack(BadRequest(field_violations=[violation]))
    if code in _RETRIABLE:
        status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=RETRY_S)))
    return STATUS_DETAILS_KEY, status.SerializeToString()
