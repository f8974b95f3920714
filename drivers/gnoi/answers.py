"""Statuses of gRPC, and errors of an installation, as the errors of a step.

gRPC itself reports a connection that broke in a write as INTERNAL, so this code says nothing of the device.
"""

from __future__ import annotations

import re

import grpc

from drivers.backends.bmc import NeedsOperator, TaskFailed, Unreachable, without_tokens
from eventstore.errors import PlaneError
from projections.field_checks import quoted
from schemas.openconfig import os_pb2

_Error = os_pb2.InstallError
_CERTIFICATE = re.compile(r"CERTIFICATE_VERIFY_FAILED(?:: [\w :]+)?|Hostname Verification Check failed")
_ALERT = re.compile(r"(?:ALERT|alert)[ _]\w+|TSI_DATA_CORRUPTED")
"""The texts of gRPC about an alert: with TLS 1.3 a server judges the certificate of its client after the handshake."""
_OPERATOR = frozenset((grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED))
_TASK_FAILED = frozenset(
    (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.UNKNOWN,
    )
)
_IN_PROGRESS = "in progress"
"""The words by which devices that have no code for it say that another operation must end first."""
_ANOTHER_IMAGE = frozenset((_Error.INCOMPATIBLE, _Error.TOO_LARGE, _Error.PARSE_FAIL, _Error.NOT_SUPPORTED_ON_BACKUP))
"""Errors that every transfer of the same image ends with."""
_LATER = frozenset((_Error.INSTALL_IN_PROGRESS, _Error.UNEXPECTED_SWITCHOVER))


def ended(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """The error of a stream that a device has ended."""
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, none, none, details, "")


def error_of(host: str, what: str, error: grpc.aio.AioRpcError) -> PlaneError:
    """The error of a device that a failed call stands for."""
    code, details = error.code(), without_tokens(error.details() or "")
    if code == grpc.StatusCode.UNAVAILABLE:
        if found := _CERTIFICATE.search(details):
            return NeedsOperator(f"certificate: that of {host} is not accepted: {found[0]}")
        if _ALERT.search(details):
            return NeedsOperator(f"certificate: {host} does not accept that of the plane: {details}")
    if code in _OPERATOR:
        return NeedsOperator(f"certificate: {host} does not let the plane {what}: {details}")
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return NeedsOperator(f"bmc_address: {host} cannot {what}: {details}")
    if code in _TASK_FAILED and _IN_PROGRESS not in details:
        return TaskFailed(f"device: {host} failed to {what}: {details or code.name}")
    return Unreachable(f"device: {host} did not {what}: {details or code.name}")


def install_error(name: str, error: os_pb2.InstallError) -> PlaneError:
    """The error that the device gives in place of a validation."""
    kind = _Error.Type.Name(error.type)
    about = f"image: the device refuses {quoted(name)}: {kind}" + (f", {error.detail}" if error.detail else "")
    if error.type in _LATER:
        return Unreachable(about)
    return (NeedsOperator if error.type in _ANOTHER_IMAGE else TaskFailed)(about)
