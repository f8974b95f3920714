"""The HTTP side of Redfish: one BMC, over a client session that its owner closes and whose sockets are bounded.

DMTF's client library `redfish` and OpenStack's `sushy` are complete, but both block: each needs a thread per BMC, and a
thousand BMCs install at once. No kept library for asyncio is known, and the plane needs little of HTTP. So this is a
small client on aiohttp. It follows no redirection, and reads no answer beyond a bound.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from drivers.backends.bmc import NeedsOperator, TaskFailed, Unreachable
from drivers.redfish.answers import NotFound, decoded, error_of
from drivers.redfish.resources import Collection, Link, Request
from projections.field_checks import quoted

SCHEME = "redfish"
ANSWER_BYTES_MAX = 1 << 20
MEMBERS_MAX = 200
"""Maximum number of members of a collection that are read one by one."""

Trust: TypeAlias = aiohttp.Fingerprint | bool
"""Which certificate is accepted: the one with this fingerprint, or any (False)."""

_Resource = TypeVar("_Resource")
_UNDIALABLE = (aiohttp.InvalidURL, UnicodeError, ValueError)


class CertificateReplaced(Unreachable):
    """The BMC presents another certificate than the trusted one. Nothing was sent to it."""


class Answer(NamedTuple):
    """A successful answer."""

    status: int
    content: bytes
    location: str = ""
    """The path of what the request has created."""
    token: str = ""


class Body(NamedTuple):
    """The body of a request that is sent in chunks. `chunks` begins to read it."""

    content_type: str
    size: int
    chunks: Callable[[], AsyncIterator[bytes]]


class RedfishClient:
    """One BMC. `token` is that of the session, and `basic` the credentials for a BMC without sessions.

    Requests raise Unreachable if no answer arrives: a request that alters something may have taken effect.
    """

    def __init__(self, session: aiohttp.ClientSession, base: str, trust: Trust = False) -> None:
        self.base = base.rstrip("/")
        self.trust = trust
        self.token = ""
        self.basic: aiohttp.BasicAuth | None = None
        self._session = session

    @property
    def host(self) -> str:
        """The host and port of the BMC, as messages name it."""
        return self.base.partition("://")[2]

    async def read(self, path: str, resource: type[_Resource]) -> _Resource:
        """A resource."""
        return decoded(f"{self.host}{path}", (await self.request("GET", path)).content, resource)

    async def find(self, path: str, resource: type[_Resource]) -> _Resource | None:
        """A resource; None if the BMC does not have it."""
        try:
            return await self.read(path, resource)
        except NotFound:
            return None

    async def members(self, link: Link | None) -> Sequence[str]:
        """The paths of the members of a collection; none if the BMC does not have it."""
        found = await self.find(link.path, Collection) if link is not None and link.path else None
        return [each.path for each in found.members if each.path][:MEMBERS_MAX] if found is not None else []

    async def send(self, request: Request) -> Answer:
        """Send a request that alters something."""
        return await self.request(request.method, request.path, request.body)

    async def request(self, method: str, path: str, body: object = None) -> Answer:
        """Send a request. The other methods but `push` are this one with what its answer is read as."""
        if body is None:
            return await self._answered(method, path, None, {})
        return await self._answered(method, path, msgspec.json.encode(body), {"Content-Type": "application/json"})

    async def push(self, path: str, body: Body, limit_s: float) -> Answer:
        """Send a body in chunks, within this time."""
        headers = {"Content-Type": body.content_type, "Content-Length": str(body.size)}
        return await self._answered("POST", path, body.chunks(), headers, limit_s)

    async def _answered(
        self,
        method: str,
        path: str,
        data: bytes | AsyncIterator[bytes] | None,
        more: Mapping[str, str],
        limit_s: float | None = None,
    ) -> Answer:
        about = f"{self.host}{path}"
        headers = {"Accept": "application/json", "OData-Version": "4.0", **more}
        if self.token:
            headers["X-Auth-Token"] = self.token
        timeout = self._session.timeout if limit_s is None else aiohttp.ClientTimeout(total=limit_s)
        if not path.startswith("/") or path.startswith("//"):
            raise TaskFailed(f"device: {self.host} refers to {quoted(path)}, which is not a path of its own")
        auth = None if self.token else self.basic
        try:
            async with self._session.request(
                method,
                self.base + path,
                data=data,
                headers=headers,
                auth=auth,
                ssl=self.trust,
                allow_redirects=False,
                timeout=timeout,
            ) as response:
                content = await _whole(about, response.content)
        except aiohttp.ServerFingerprintMismatch as error:
            raise CertificateReplaced(f"certificate: {self.host} has replaced its own meanwhile") from error
        except _UNDIALABLE as error:
            raise NeedsOperator(f"bmc_address: {quoted(self.host)} cannot be dialed: {error}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"device: {self.host} did not respond: {str(error) or type(error).__name__}") from error
        if fault := error_of(about, response.status, content):
            raise fault
        location = _path(response.headers.get("Location", ""))
        return Answer(response.status, content, location, response.headers.get("X-Auth-Token", ""))


ConnectRedfish: TypeAlias = Callable[[str], RedfishClient]
"""The BMC at an address. Raises NeedsOperator for an address in another form."""


def base_url(address: str) -> str:
    """The URL of the BMC at an address `redfish://HOST[:PORT]`. Raises NeedsOperator."""
    scheme, _, rest = address.partition("://")
    if scheme != SCHEME or not rest or any(each in rest for each in "/@?#"):
        raise NeedsOperator(f"bmc_address: {quoted(address)} must be {SCHEME}://HOST:PORT")
    return f"https://{rest}"


async def _whole(about: str, content: aiohttp.StreamReader) -> bytes:
    whole = bytearray()
    async for piece in content.iter_any():
        whole += piece
        if len(whole) > ANSWER_BYTES_MAX:
            raise TaskFailed(f"device: {about} returned more than {ANSWER_BYTES_MAX} bytes")
    return bytes(whole)


def _path(location: str) -> str:
    """The path in a location, which may be a URL; empty for one that cannot be read."""
    try:
        return urlsplit(location).path
    except ValueError:
        return ""
