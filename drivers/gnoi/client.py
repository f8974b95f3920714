"""One management service of a DPU over gRPC: what an attempt reads of it, and what it asks it for.

Every call raises the errors of a device. Unreachable means that no answer arrived: a request that alters something may
have taken effect.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import grpc

from drivers.backends.bmc import NeedsOperator, TaskFailed
from drivers.gnoi.answers import error_of
from projections.field_checks import quoted
from schemas.openconfig import cert_pb2, gnmi_pb2, os_pb2, system_pb2, types_pb2
from schemas.openconfig.stubs import CertificateStub, GnmiStub, OsStub, SystemStub

SCHEME = "gnoi"
MODE = ("nvidia", "mode", "config", "mode")
COMPONENTS = ("components",)
TEXT_MAX = 253
"""Maximum number of characters of a text that the device reports."""
OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)
_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_FAILURES = frozenset((system_pb2.RebootStatus.STATUS_FAILURE, system_pb2.RebootStatus.STATUS_RETRIABLE_FAILURE))

_Answer = TypeVar("_Answer")


class Reboots(NamedTuple):
    """The reboots of a device. `failure` is why the last one failed, empty if it did not."""

    is_active: bool
    boots: int
    failure: str = ""


class Running(NamedTuple):
    """The image that a device runs. `failure` is why it does not run the one that was activated last."""

    version: str
    failure: str = ""


class GnoiClient:
    """The service at HOST:PORT, over a channel that its owner closes."""

    def __init__(self, host: str, channel: grpc.aio.Channel) -> None:
        self.host = host
        self._certificates = CertificateStub(channel)
        self._gnmi = GnmiStub(channel)
        self._os = OsStub(channel)
        self._system = SystemStub(channel)

    async def read_serial(self) -> str:
        """The serial number of the card, the first of any component; empty if the device reports none."""
        found = await self._get(COMPONENTS)
        listed = found.get("component") if isinstance(found, Mapping) else None
        for component in listed if isinstance(listed, list) else ():
            state = component.get("state") if isinstance(component, Mapping) else None
            serial = state.get("serial-no") if isinstance(state, Mapping) else None
            if isinstance(serial, str) and serial.strip():
                return serial.strip()
        return ""

    async def read_mode(self) -> str:
        """The mode of the card; empty if the device reports none."""
        found = await self._get(MODE)
        return found if isinstance(found, str) else ""

    async def set_mode(self, mode: str) -> None:
        value = gnmi_pb2.TypedValue(string_val=mode)
        request = gnmi_pb2.SetRequest(update=[gnmi_pb2.Update(path=_path(MODE), val=value)])
        await self._made("set its mode", self._gnmi.Set(request))

    async def read_running(self) -> Running:
        found = await self._made("say what it runs", self._os.Verify(os_pb2.VerifyRequest()))
        return Running(found.version[:TEXT_MAX], found.activation_fail_message[:TEXT_MAX])

    async def read_reboots(self) -> Reboots:
        """The reboots of the Arm cores, which are named as DPF names them."""
        cores = types_pb2.Path(elem=[types_pb2.PathElem(name="CPU")])
        request = system_pb2.RebootStatusRequest(subcomponents=[cores])
        found = await self._made("say whether it reboots", self._system.RebootStatus(request))
        failure = ""
        if not found.active and found.status.status in _FAILURES:
            failure = found.status.message[:TEXT_MAX] or system_pb2.RebootStatus.Status.Name(found.status.status)
        return Reboots(found.active, found.count, failure)

    async def activate(self, version: str) -> None:
        """Have the device boot this version now. A device may answer only after it has written the image."""
        request = os_pb2.ActivateRequest(version=version, no_reboot=False)
        answer = await self._made("activate an image", self._os.Activate(request))
        if answer.WhichOneof("response") == "activate_error":
            error = answer.activate_error
            kind = os_pb2.ActivateError.Type.Name(error.type)
            detail = f", {error.detail[:TEXT_MAX]}" if error.detail else ""
            raise TaskFailed(f"image: the device does not activate {quoted(version)}: {kind}{detail}")

    async def reboot(self) -> None:
        request = system_pb2.RebootRequest(method=system_pb2.COLD, message="dpuplane")
        await self._made("reboot", self._system.Reboot(request))

    def install(self) -> Any:
        """A stream of an installation, from which its requests are written and its answers read."""
        return self._os.Install()

    async def read_certificates(self) -> Mapping[str, bytes]:
        """The certificates of the device in PEM, by their ids; none if the plane is not to see them."""
        try:
            found = await self._certificates.GetCertificates(cert_pb2.GetCertificatesRequest())
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED):
                return {}
            raise error_of(self.host, "say which certificates it has", error) from error
        return {each.certificate_id: each.certificate.certificate for each in found.certificate_info}

    def rotate(self) -> Any:
        """A stream of a rotation of a certificate."""
        return self._certificates.Rotate()

    async def _get(self, path: Sequence[str]) -> object:
        """The value at a path; None if the device does not have it."""
        request = gnmi_pb2.GetRequest(path=[_path(path)], encoding=gnmi_pb2.JSON_IETF)
        try:
            answer = await self._gnmi.Get(request)
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT):
                return None
            raise error_of(self.host, "say how it is set", error) from error
        for notification in answer.notification:
            for update in notification.update:
                return _plain(update.val)
        return None

    async def _made(self, what: str, call: Awaitable[_Answer]) -> _Answer:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise error_of(self.host, what, error) from error


@asynccontextmanager
async def connected(address: str, credentials: grpc.ChannelCredentials) -> AsyncIterator[GnoiClient]:
    """The service at an address `gnoi://HOST:PORT`. It is dialed by the first call. Raises NeedsOperator."""
    host = host_of(address)
    async with grpc.aio.secure_channel(f"dns:///{host}", credentials, options=OPTIONS) as channel:
        yield GnoiClient(host, channel)


def host_of(address: str) -> str:
    """The host and port in an address. Raises NeedsOperator."""
    scheme, _, rest = address.partition("://")
    found = _HOST_AND_PORT.fullmatch(rest)
    if scheme != SCHEME or found is None or not 0 < int(found[2]) < 65_536:
        raise NeedsOperator(f"bmc_address: {quoted(address)} must be {SCHEME}://HOST:PORT")
    return rest


def _path(names: Sequence[str]) -> gnmi_pb2.Path:
    return gnmi_pb2.Path(elem=[gnmi_pb2.PathElem(name=name) for name in names])


def _plain(value: gnmi_pb2.TypedValue) -> object:
    """A value as JSON has it, without the names of modules before those of fields; None for another one."""
    match value.WhichOneof("value"):
        case "string_val":
            return value.string_val
        case "ascii_val":
            return value.ascii_val
        case "json_ietf_val" | "json_val":
            try:
                return json.loads(value.json_ietf_val or value.json_val, object_pairs_hook=_without_modules)
            except (ValueError, RecursionError):
                return None
    return None


def _without_modules(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return {name.rpartition(":")[2]: value for name, value in pairs}
