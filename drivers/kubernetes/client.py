"""The Kubernetes API over HTTP, by kubernetes_asyncio's client: its kubeconfig, credentials and TLS.

The rest of the library is not used. Its typed objects decode 14,000 pods per second; msgspec decodes 200,000, as plain
fields. Its Watch has no deadline. The library is imported when a connection is made, because the import takes a second.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import aiohttp
import msgspec
from aiohttp.http_exceptions import LineTooLong

from drivers.kubernetes.http_session import READ_BUFFER_BYTES, use_one_proxy
from drivers.kubernetes.kubeconfig import PROGRAM_S, KubeconfigInvalid, unusable
from schemas.kubernetes.api import ApiError, KubernetesApi, PatchType, WatchEvent

logger = logging.getLogger(__name__)

IN_CLUSTER = "in-cluster"
REQUEST_S = 30.0
"""Timeout of one request. The API server's own timeout is 60 s."""
MAX_LINE_BYTES = 2 * READ_BUFFER_BYTES
"""Maximum length of a line of a watch. Objects in etcd have at most 1.5 MB."""
CONNECTIONS_MAX = 4_096
"""Maximum number of connections to an API server. Each watch has one for itself, and each step of a DPU may watch
something: at the library's limit of 100, all requests would wait for watches that nothing ends."""
RELOAD_S = 30.0
"""Minimum time between two reloads of the credentials after 401 responses."""
UNAUTHORIZED = 401
_JSON = "application/json"
_PATCH_TYPES: Mapping[PatchType, str] = {
    "merge": "application/merge-patch+json",
    "apply": "application/apply-patch+yaml",
    "json": "application/json-patch+json",
}


ReadKubeconfig: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
"""Reads the content of a kubeconfig."""
Load: TypeAlias = Callable[[Any], Awaitable[None]]
"""Loads credentials into a configuration of the library."""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    """metav1.Status, which describes an error."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


_status = msgspec.json.Decoder(_Status)
_line = msgspec.json.Decoder(_Line)


@asynccontextmanager
async def connect(kubeconfig: str, *, context: str | None = None, source: str = "") -> AsyncIterator[KubernetesApi]:
    """The API server of a kubeconfig file, or of the cluster that this process runs in. Its warnings have the name of
    the source. Sends nothing. Raises KubeconfigInvalid."""
    from kubernetes_asyncio import config

    async def load(configuration: Any) -> None:
        if kubeconfig == IN_CLUSTER:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            _check_readable(kubeconfig)  # the library takes a missing file for an empty one
            await config.load_kube_config(kubeconfig, context=context, client_configuration=configuration)

    async with _connected(load, kubeconfig, source) as api:
        yield api


@asynccontextmanager
async def connect_with(read: ReadKubeconfig, name: str, source: str) -> AsyncIterator[KubernetesApi]:
    """The API server of a kubeconfig that `read` returns, again after a refusal of its credentials. Errors call the
    kubeconfig by `name`. Raises KubeconfigInvalid."""
    from kubernetes_asyncio import config

    async def load(configuration: Any) -> None:
        await config.load_kube_config_from_dict(dict(await read()), client_configuration=configuration)

    async with _connected(load, name, source) as api:
        yield api


@asynccontextmanager
async def _connected(load: Load, name: str, source: str) -> AsyncIterator[KubernetesApi]:
    from kubernetes_asyncio import client

    configuration = client.Configuration()
    try:
        async with asyncio.timeout(PROGRAM_S):
            await load(configuration)
        configuration.connection_pool_maxsize = CONNECTIONS_MAX
        opened = client.ApiClient(configuration)  # reads the files of certificates
        use_one_proxy(opened.rest_client, configuration.host)
        made = HttpApi(opened, partial(load, configuration), source)
    except (KubeconfigInvalid, ApiError):
        raise
    except Exception as error:  # the library checks little of what it reads: a wrong type is a TypeError
        raise KubeconfigInvalid(name, unusable(error)) from error
    async with opened:
        yield made


def _check_readable(kubeconfig: str) -> None:
    with Path(kubeconfig).expanduser().open("rb"):
        pass


def _certificates(configuration: Any) -> tuple[bytes, ...]:
    """The content of the files of certificates and keys."""
    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    return tuple(Path(file).read_bytes() if file else b"" for file in files)


def _config_errors() -> type[Exception]:
    from kubernetes_asyncio.config import ConfigException

    return ConfigException


class HttpApi:
    """An API server over HTTP.

    The credentials of a kubeconfig may expire: tokens from a program expire within an hour, and files are rotated. A
    request with a 401 response is therefore repeated once, with reloaded credentials. So is a request to a server whose
    certificate is not valid, because its authority may have been rotated.
    """

    def __init__(self, api: Any, load: Callable[[], Awaitable[None]], source: str) -> None:
        self._api = api
        self._load = load
        self._source = source
        self._certificates = _certificates(api.configuration)
        self._loaded_s = -RELOAD_S

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        return await self._request("GET", path, query)

    async def create(self, path: str, body: Any) -> bytes:
        return await self._request("POST", path, body=body)

    async def replace(self, path: str, body: Any) -> bytes:
        return await self._request("PUT", path, body=body)

    async def patch(self, path: str, body: Any, kind: PatchType, query: Mapping[str, str] | None = None) -> bytes:
        return await self._request("PATCH", path, query, body, content_type=_PATCH_TYPES[kind])

    async def delete(self, path: str, *, uid: str) -> bytes:
        return await self._request(
            "DELETE", path, body={"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        )

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = _JSON,
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=REQUEST_S)
        try:
            async with asyncio.timeout(REQUEST_S):  # credentials may come from a program, which has no deadline
                response = await self._send(method, path, query, body, content_type=content_type, timeout=timeout)
                async with response:
                    data: bytes = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(error) from error
        if response.status >= 400:
            raise _refused(response, data)
        return data

    def watch(
        self, path: str, query: Mapping[str, str], *, idle_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._watch(path, query, idle_s)

    @asynccontextmanager
    async def _watch(
        self, path: str, query: Mapping[str, str], idle_s: float
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        timeout = aiohttp.ClientTimeout(total=None, connect=REQUEST_S, sock_read=idle_s)
        try:
            async with asyncio.timeout(REQUEST_S):
                response = await self._send("GET", path, query, None, timeout=timeout)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(error) from error
        try:
            if response.status >= 400:
                raise _refused(response, await _read_refusal(response))
            yield _events(response, idle_s)
        finally:
            response.close()

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        *,
        content_type: str = _JSON,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        send = partial(self._call, method, path, query, body, content_type=content_type, timeout=timeout)
        try:
            response = await send()
        except aiohttp.ClientConnectorCertificateError as error:  # the authority of the server may have been rotated
            if not await self._reload(str(_unreachable(error))):
                raise
            return await send()
        if response.status == UNAUTHORIZED and await self._reload("401"):
            response.close()
            return await send()
        return response

    async def _reload(self, cause: str) -> bool:
        """Load the credentials again after a refusal. Returns False if they were loaded lately, or cannot be loaded."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._loaded_s + RELOAD_S:
            return False
        self._loaded_s = now_s
        try:
            await self._load()
            await self._renew_certificates()
        except Exception as error:
            about = {"source": self._source, "cause": cause}
            why = str(error) if isinstance(error, KubeconfigInvalid | ApiError) else unusable(error)
            logger.warning("credentials not reloaded after a refusal, retrying: %s", why, extra=about)
            return False
        return True

    async def _renew_certificates(self) -> None:
        """Use changed certificates for new connections: the library reads their files only once."""
        found = _certificates(self._api.configuration)
        if found == self._certificates:
            return
        renewed = type(self._api.rest_client)(self._api.configuration)
        use_one_proxy(renewed, self._api.configuration.host)
        before, self._api.rest_client = self._api.rest_client, renewed
        self._certificates = found
        await before.pool_manager.connector.close()  # its watches end, and are opened again

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        *,
        content_type: str = _JSON,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        try:
            found = await self._api.call_api(
                path,
                method,
                query_params=list((query or {}).items()),
                header_params={"Accept": _JSON, "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=timeout,
                _return_http_data_only=True,
            )
        except _config_errors() as error:  # a rotated token is read before a request
            raise ApiError(0, "NoCredentials", unusable(error)) from error
        return cast(aiohttp.ClientResponse, found)


async def _read_refusal(response: aiohttp.ClientResponse) -> bytes:
    try:
        async with asyncio.timeout(REQUEST_S):
            return await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise _unreachable(error) from error


async def _events(response: aiohttp.ClientResponse, idle_s: float) -> AsyncIterator[WatchEvent]:
    while True:
        try:
            async with asyncio.timeout(idle_s):
                data = await response.content.readline()
        except TimeoutError as error:
            raise ApiError(0, "Stalled", f"no event and no bookmark for {idle_s:g} s") from error
        except (LineTooLong, ValueError) as error:
            raise ApiError(0, "TooLong", f"a line of the watch is longer than {MAX_LINE_BYTES} bytes") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error) from error
        if not data:
            return
        try:
            line = _line.decode(data)
            status = _status.decode(line.object) if line.type == "ERROR" else None
        except msgspec.DecodeError as error:  # the connection broke off within a line, or a proxy answered
            raise ApiError(0, "Malformed", f"a line of the watch is no event: {error}") from error
        if status is not None:
            pause_s = status.details.retry_after_seconds if status.details else None
            raise ApiError(status.code, status.reason, status.message, retry_after_s=pause_s)
        yield WatchEvent(cast(Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"], line.type), bytes(line.object))


def _refused(response: aiohttp.ClientResponse, data: bytes) -> ApiError:
    try:
        status = _status.decode(data)
    except msgspec.DecodeError:  # a proxy before the API server answers in its own words
        status = _Status(data[:200].decode(errors="replace"))
    message = status.message or response.reason or ""
    return ApiError(response.status, status.reason, message, retry_after_s=_retry_after_s(response))


def _retry_after_s(response: aiohttp.ClientResponse) -> float | None:
    """The seconds in the Retry-After header. A date in it is relative to the Date header of the response."""
    given = response.headers.get("Retry-After", "")
    if given.isdecimal():
        return float(given)
    try:
        until = email.utils.parsedate_to_datetime(given)
        now = email.utils.parsedate_to_datetime(response.headers.get("Date", ""))
        return max(0.0, (until - now).total_seconds())
    except (TypeError, ValueError):
        return None


def _unreachable(error: Exception) -> ApiError:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            why = getattr(error.certificate_error, "verify_message", "") or "certificate verify failed"
            return ApiError(0, "Unreachable", f"the certificate of {error.host}:{error.port} is not valid: {why}")
        case aiohttp.ClientConnectorError():
            why = error.os_error.strerror or str(error.os_error)
            return ApiError(0, "Unreachable", f"no connection to {error.host}:{error.port}: {why}")
    return ApiError(0, "Unreachable", str(error) or type(error).__name__)
