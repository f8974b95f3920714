"""The push of a package of firmware to a BMC: as one of several parts of a request, or as its whole body.

A BMC is pushed to where it takes no update from a URL of the image store, and after an update by URL that failed, as a
BMC may not reach the image store.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from drivers.backends.bmc import Unreachable
from drivers.images.deliveries import Firmware
from drivers.redfish.client import Answer, Body
from drivers.redfish.connection import Connection

PUSH_S = 1_800.0
"""Longest time for which a BMC may take to receive a package."""
_OCTETS = "application/octet-stream"


class _SimpleUpdate(msgspec.Struct, frozen=True):
    schemes: list[str] | None = msgspec.field(default=None, name="TransferProtocol@Redfish.AllowableValues")


class _Actions(msgspec.Struct, frozen=True):
    simple_update: _SimpleUpdate | None = msgspec.field(default=None, name="#UpdateService.SimpleUpdate")


class UpdateService(msgspec.Struct, frozen=True, rename="pascal"):
    """How a BMC takes updates."""

    http_push_uri: str | None = None
    multipart_http_push_uri: str | None = None
    actions: _Actions | None = None

    def pulls(self, scheme: str) -> bool:
        """Whether the BMC takes an update from a URL with this scheme. One that does not say so may do it."""
        if self.actions is None:
            return True
        action = self.actions.simple_update
        return action is not None and (action.schemes is None or scheme.upper() in action.schemes)

    @property
    def is_pushable(self) -> bool:
        return bool(self.http_push_uri or self.multipart_http_push_uri)


def is_to_be_pushed(service: UpdateService, scheme: str, *, has_pull_failed: bool) -> bool:
    """Whether a package is pushed; `has_pull_failed` says that the last attempt was an update by URL, which failed."""
    return service.is_pushable and (has_pull_failed or not service.pulls(scheme))


class _Request(NamedTuple):
    path: str
    body: Body


async def push(bmc: Connection, service: UpdateService, package: Firmware, targets: Sequence[str]) -> Answer:
    """Push a package. Without targets, its content names them. Raises the errors of a device, and AttemptSuperseded."""
    attempt = bmc.attempt
    path, body = _request(bmc, service, package, targets)
    patient = attempt._replace(timing=attempt.timing._replace(call_s=PUSH_S))
    try:
        return await patient.call(partial(bmc.client.push, path, _while_ours(body, attempt.check), PUSH_S))
    except Unreachable:
        attempt.check()  # the end of the attempt breaks the request, too
        raise


def _request(bmc: Connection, service: UpdateService, package: Firmware, targets: Sequence[str]) -> _Request:
    """The request. As in DPF, a BlueField-4 is pushed to by parts, and an earlier one by the body, if it takes both."""
    multipart, whole = service.multipart_http_push_uri or "", service.http_push_uri or ""
    if multipart and (bmc.root.is_bluefield_4 or not whole):
        return _Request(multipart, _parts(package, targets))
    return _Request(whole, Body(_OCTETS, package.size, package.chunks))


def _parts(package: Firmware, targets: Sequence[str]) -> Body:
    """The parameters and the package as parts of a body, whose size is known before."""
    boundary = f"dpuplane-{hashlib.sha256(package.url.encode()).hexdigest()}"
    parameters = msgspec.json.encode({"Targets": list(targets)} if targets else {}).decode()
    begin = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="UpdateParameters"\r\n'
        f"Content-Type: application/json\r\n\r\n{parameters}\r\n"
        f'--{boundary}\r\nContent-Disposition: form-data; name="UpdateFile"; filename="firmware.fwpkg"\r\n'
        f"Content-Type: {_OCTETS}\r\n\r\n"
    ).encode()
    end = f"\r\n--{boundary}--\r\n".encode()

    async def chunks() -> AsyncIterator[bytes]:
        yield begin
        async for chunk in package.chunks():
            yield chunk
        yield end

    return Body(f"multipart/form-data; boundary={boundary}", len(begin) + package.size + len(end), chunks)


def _while_ours(body: Body, check: Callable[[], None]) -> Body:
    """The body, which ends before the next chunk once the log names another attempt."""

    async def chunks() -> AsyncIterator[bytes]:
        async for chunk in body.chunks():
            check()
            yield chunk

    return body._replace(chunks=chunks)
