"""The installer of BMCs that speak Redfish, and the search for them, in a process."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec

from deploy.host.secret_folder import SecretFolder, secret_folder
from deploy.settings.settings import Settings
from drivers.backends.bmc import NeedsOperator, Unreachable
from drivers.provisioning.device import UrlOf
from drivers.redfish.certificates import BmcAuthority, PresentedCertificates
from drivers.redfish.client import RedfishClient, base_url
from drivers.redfish.connection import Context
from drivers.redfish.installer import FirmwareOf, RedfishInstaller
from drivers.redfish.object_wants import ObjectWants
from drivers.redfish.prober import RedfishProber
from drivers.resource_worlds import ResourceWorlds
from eventstore.errors import FatalError, PermanentError
from eventstore.replicas.replica import Replica
from projections.resources.state import LOCAL
from schemas.kubernetes.api import NOT_FOUND, ApiError, KubernetesApi

CALL_TIMEOUT = aiohttp.ClientTimeout(total=60.0)
"""Maximum time of any request to a BMC; a provisioner sets a shorter one per call."""
PER_BMC = 2
KEPT_S = 15.0
"""Time for which an idle connection is kept: longer than the longest pause between two polls."""


@dataclass(frozen=True, slots=True)
class Redfish:
    """The parts that speak Redfish."""

    installer: RedfishInstaller
    prober: RedfishProber


class _Secret(msgspec.Struct, frozen=True):
    data: dict[str, str] | None = None


@asynccontextmanager
async def open_redfish(
    settings: Settings,
    replica: Replica,
    url_of: UrlOf,
    *,
    seed_of: UrlOf,
    firmware_of: FirmwareOf | None,
    apis: Callable[[str], KubernetesApi | None],
    now_ms: Callable[[], int],
) -> AsyncIterator[Redfish]:
    """The parts of a process, with the connections that they share. `apis` has the API servers of source clusters."""
    authority = authority_of(settings)
    _check_password_file(settings)
    connector = aiohttp.TCPConnector(
        limit=settings.bmc_connections, limit_per_host=PER_BMC, keepalive_timeout=KEPT_S, force_close=False
    )
    async with aiohttp.ClientSession(
        connector=connector, timeout=CALL_TIMEOUT, cookie_jar=aiohttp.DummyCookieJar()
    ) as session:

        def connect(address: str) -> RedfishClient:
            return RedfishClient(session, base_url(address))

        secrets = _Secrets(secret_folder(settings), apis)
        wants = ObjectWants(ResourceWorlds(replica), secrets.read, settings.bmc_user, lambda: _password(settings))
        pushes = asyncio.Semaphore(settings.image_streams)
        context = Context(connect, wants.credentials, authority, now_ms, pushes, PresentedCertificates())
        installer = RedfishInstaller(context, url_of, wants.wanted, seed_of=seed_of, firmware_of=firmware_of)
        yield Redfish(installer, RedfishProber(connect, wants.shared_credentials))


class _Secrets:
    """The Secrets of objects: in a folder of this process, or in a source cluster."""

    def __init__(self, folder: SecretFolder | None, apis: Callable[[str], KubernetesApi | None]) -> None:
        self._folder = folder
        self._apis = apis

    async def read(self, source: str, namespace: str, name: str) -> Mapping[str, bytes] | None:
        if source == LOCAL:
            return await self._kept(namespace, name)
        api = self._apis(source)
        if api is None:
            return None
        try:
            found = await api.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
            return {key: base64.b64decode(value) for key, value in (_decoder.decode(found).data or {}).items()}
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise Unreachable(f"password: Secret {namespace}/{name} of {source} cannot be read: {error}") from error
        except (msgspec.DecodeError, binascii.Error, ValueError):
            raise NeedsOperator(f"password: Secret {namespace}/{name} of {source} is not valid") from None

    async def _kept(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        if self._folder is None:
            return None
        try:
            return await asyncio.to_thread(self._folder.read, namespace, name)
        except PermanentError as error:
            raise NeedsOperator(f"password: {error}") from error


_decoder = msgspec.json.Decoder(_Secret)


def _password(settings: Settings) -> str:
    """The password in the file of the settings, read anew so that a change of it counts at once."""
    path = settings.bmc_password_file
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise NeedsOperator(f"bmc_password_file: {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise NeedsOperator(f"bmc_password_file: {path} must be text in UTF-8") from None


def _check_password_file(settings: Settings) -> None:
    """Raises FatalError: a process that starts with a wrong path would fail each installation instead."""
    try:
        _password(settings)
    except NeedsOperator as error:
        raise FatalError(str(error)) from error


def authority_of(settings: Settings) -> BmcAuthority | None:
    """The authority of BMCs and of management services; None without one. Raises FatalError."""
    if settings.bmc_ca is None:
        if settings.bmc_ca_key is not None:
            raise FatalError("bmc_ca_key: it needs bmc_ca, the certificate of the authority")
        return None
    key = _content("bmc_ca_key", settings.bmc_ca_key) if settings.bmc_ca_key is not None else None
    return BmcAuthority(_content("bmc_ca", settings.bmc_ca), key)


def _content(field: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FatalError(f"{field}: {path} cannot be read: {error.strerror}") from error
