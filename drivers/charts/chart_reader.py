"""Reads the annotations of a chart, as its author wrote them in Chart.yaml, without downloading the chart.

A repository of charts has them in index.yaml, a registry (OCI) in the manifest of the chart. Every user who may create
objects names repositories, so the rules for addresses of images hold here too, for redirections and for the server of
tokens as well. All failures are transient: a chart that is missing today may be pushed tomorrow.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import NamedTuple

import aiohttp
import msgspec
import yaml
from yarl import URL

from drivers.charts.repository_secrets import Credential
from drivers.images.sources import AllowedHosts, RefusedAddress, shown
from eventstore.errors import TransientError
from projections.field_checks import quoted
from projections.resources.charts import Chart

INDEX_BYTES_MAX = 32 << 20
"""Maximum size of an index: the largest public ones have 20 MB."""
ENTRY_BYTES_MAX = 1 << 20
"""Maximum size of the part of an index about one chart: it has every version of it."""
DOCUMENT_BYTES_MAX = 1 << 20
READ_S = 20.0
"""Time limit of a read, with all requests that it takes."""
_OCI = "oci://"
_AUTHORIZATION = "Authorization"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_REDIRECTIONS = (301, 302, 303, 307, 308)
_REDIRECTIONS_MAX = 5
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_NEXT_ENTRY = re.compile(rb"^(  )?[^\s#-]", re.MULTILINE)


class UnreadChart(TransientError):
    """A chart cannot be read; the message says why, without secrets of the URL."""


class RefusedChart(UnreadChart):
    """The server refuses the chart to this user, or to everybody."""


class _Answer(NamedTuple):
    status: int
    body: bytes
    challenge: str


class _Manifest(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Token(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""


class _Version(msgspec.Struct, frozen=True):
    version: str = ""
    annotations: dict[str, str] | None = None


class _Index(msgspec.Struct, frozen=True):
    entries: dict[str, list[_Version]] = {}


class ChartReader:
    """Reads charts over a session, whose resolver refuses addresses that are not allowed."""

    def __init__(self, session: aiohttp.ClientSession, allowed: AllowedHosts) -> None:
        self._session = session
        self._allowed = allowed

    async def annotations(self, chart: Chart, credential: Credential | None = None) -> Mapping[str, str]:
        """The annotations of a version of a chart. Raises UnreadChart."""
        authorization = {} if credential is None else {_AUTHORIZATION: credential.header}
        try:
            async with asyncio.timeout(READ_S):
                if chart.repository.startswith(_OCI):
                    return await self._of_registry(chart, authorization)
                return await self._of_repository(chart, authorization)
        except TimeoutError:
            raise UnreadChart(f"{_host(chart)} did not answer within {READ_S:.0f} s") from None
        except RefusedAddress as error:
            raise UnreadChart(str(error)) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise UnreadChart(f"{_host(chart)} cannot be read: {_reason(error)}") from error

    # -- repositories

    async def _of_repository(self, chart: Chart, authorization: Mapping[str, str]) -> Mapping[str, str]:
        url = URL(f"{chart.repository.rstrip('/')}/index.yaml")
        answer = await self._get(url, authorization, INDEX_BYTES_MAX)
        if answer.status != 200:
            raise _refused(url, answer)
        versions = _versions(answer.body, chart.name)
        if versions is None:
            raise UnreadChart(f"{shown(url)} has no chart {quoted(chart.name)}")
        found = next((each for each in versions if each.version == chart.version), None)
        if found is None:
            raise UnreadChart(f"{shown(url)} has no version {quoted(chart.version)} of chart {quoted(chart.name)}")
        return found.annotations or {}

    # -- registries

    async def _of_registry(self, chart: Chart, authorization: Mapping[str, str]) -> Mapping[str, str]:
        root = URL(f"https://{chart.repository.removeprefix(_OCI).rstrip('/')}")
        tag = chart.version.replace("+", "_")  # a tag cannot have the plus sign of a version
        url = root.with_path(f"/v2{root.path.rstrip('/')}/{chart.name}/manifests/{tag}")
        headers = {"Accept": _MANIFEST}
        answer = await self._get(url, headers, DOCUMENT_BYTES_MAX)
        if answer.status == 401 and (allowed := await self._allowance(answer.challenge, authorization)):
            answer = await self._get(url, {**headers, **allowed}, DOCUMENT_BYTES_MAX)
        if answer.status != 200:
            raise _refused(url, answer)
        try:
            return msgspec.json.decode(answer.body, type=_Manifest).annotations or {}
        except msgspec.MsgspecError:
            raise UnreadChart(f"{shown(url)} is no manifest of a chart") from None

    async def _allowance(self, challenge: str, authorization: Mapping[str, str]) -> Mapping[str, str]:
        """The header that a registry asks for: the credentials, or a token from the server that it names, for these
        credentials or for everybody; nothing if there is none."""
        scheme, _, text = challenge.partition(" ")
        if scheme.lower() == "basic":
            return authorization
        fields = dict(_CHALLENGE.findall(text))
        realm = fields.pop("realm", "")
        if scheme.lower() != "bearer" or not realm.startswith("https://"):
            return {}
        wanted = {name: value for name, value in fields.items() if name in ("service", "scope")}
        answer = await self._get(URL(realm).update_query(wanted), authorization, DOCUMENT_BYTES_MAX)
        if answer.status != 200:
            return {}
        try:
            found = msgspec.json.decode(answer.body, type=_Token)
        except msgspec.MsgspecError:
            return {}
        token = found.token or found.access_token
        return {_AUTHORIZATION: f"Bearer {token}"} if token else {}

    # -- requests

    async def _get(self, url: URL, headers: Mapping[str, str], bytes_max: int) -> _Answer:
        origin = url.origin()
        for _ in range(_REDIRECTIONS_MAX + 1):
            self._allowed.check_url(url)
            if url.scheme != "https":
                raise UnreadChart(f"{shown(url)} must begin with https://")
            sent = headers if url.origin() == origin else {}  # credentials and tokens are for their own server
            async with self._session.get(url, headers=sent, allow_redirects=False) as response:
                if response.status in _REDIRECTIONS and (target := response.headers.get("Location")):
                    url = url.join(URL(target))
                    continue
                body = await _limited(response, url, bytes_max)
                return _Answer(response.status, body, response.headers.get("WWW-Authenticate", ""))
        raise UnreadChart(f"{shown(url)} redirects more than {_REDIRECTIONS_MAX} times")


def _refused(url: URL, answer: _Answer) -> UnreadChart:
    text = f"{shown(url)} answered with status {answer.status}"
    return RefusedChart(text) if answer.status in (401, 403) else UnreadChart(text)


async def _limited(response: aiohttp.ClientResponse, url: URL, bytes_max: int) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > bytes_max:
            raise UnreadChart(f"{shown(url)} has more than {bytes_max >> 20} MiB")
        parts.append(part)
    return b"".join(parts)


def _versions(index: bytes, name: str) -> list[_Version] | None:
    """The versions of a chart in an index; None if it has none. Only the part about the chart is parsed, by the layout
    that helm writes: an index has thousands of charts, and parsing all of them takes half a minute."""
    try:
        if index.lstrip().startswith(b"{"):
            return msgspec.json.decode(index, type=_Index).entries.get(name)
        part = _part(index, name)
        if part is None:
            return None
        if len(part) > ENTRY_BYTES_MAX:
            raise UnreadChart(f"the index has more than {ENTRY_BYTES_MAX >> 20} MiB about chart {quoted(name)}")
        found = yaml.load(part, Loader=_LOADER)
        return msgspec.convert(found, dict[str, list[_Version]], strict=False).get(name)
    except (yaml.YAMLError, msgspec.MsgspecError, RecursionError):
        raise UnreadChart(f"the index cannot be parsed where it has chart {quoted(name)}") from None


def _part(index: bytes, name: str) -> bytes | None:
    """The lines of an index about a chart, with its name."""
    start = re.search(rb"^entries:[ \t]*\r?$", index, re.MULTILINE)
    if start is None:
        return None
    first = re.compile(rb"^  [\"']?" + re.escape(name.encode()) + rb"[\"']?:[ \t]*\r?$", re.MULTILINE)
    found = first.search(index, start.end())
    if found is None:
        return None
    following = _NEXT_ENTRY.search(index, found.end())
    return index[found.start() : following.start() if following else None]


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _host(chart: Chart) -> str:
    return chart.repository.partition("://")[2].partition("/")[0]


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
