"""Credentials of private repositories of charts, from the Secrets that Argo CD reads them from.

A Secret with the label `argocd.argoproj.io/secret-type: repository` is about one repository, one with `repo-creds`
about all whose URL begins with its own. They are listed when a chart is read and kept nowhere: not in the log, not in
memory. Credentials are only for the address that their Secret names, as users of the plane name the addresses of
charts.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from projections.kubernetes.resources.api_kinds import API_KINDS
from projections.resources.charts import Chart
from projections.resources.kinds import SECRET
from schemas.kubernetes.api import ApiError, KubernetesApi

SECRET_TYPE = "argocd.argoproj.io/secret-type"
REPOSITORY, TEMPLATE = "repository", "repo-creds"
SELECTOR = f"{SECRET_TYPE} in ({REPOSITORY},{TEMPLATE})"
PAGE_SECRETS, PAGES_MAX = 200, 50
_TYPES = ("helm", "oci")
"""The types of repositories that have charts; a Secret without a type is about Git."""


class Credential(NamedTuple):
    """A user of a repository. `secret` names the Secret that it is from."""

    secret: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Credential({self.secret})"

    @property
    def header(self) -> str:
        """The value of the header Authorization."""
        return f"Basic {base64.b64encode(f'{self.username}:{self.password}'.encode()).decode()}"


class Found(NamedTuple):
    """The credential for a chart. `fault` says why none could be looked for."""

    credential: Credential | None = None
    fault: str = ""


class RepositorySecrets:
    """Looks up credentials in the source clusters that `apis` has a connection to."""

    def __init__(self, apis: Callable[[str], KubernetesApi | None]) -> None:
        self._apis = apis

    async def of(self, source: str, namespace: str, chart: Chart) -> Found:
        """The credential for a chart in the namespace of Argo CD."""
        api = self._apis(source)
        if api is None:
            return Found(fault=f"there is no connection to source cluster {source}")
        try:
            return Found(credential_for(chart, [each async for each in _listed(api, namespace)]))
        except (ApiError, ValueError) as error:
            return Found(fault=f"the repository Secrets in namespace {namespace} cannot be listed: {error}")


def credential_for(chart: Chart, secrets: Iterable[Mapping[str, Any]]) -> Credential | None:
    """The credential for a chart among Secrets as an API server lists them: that of its repository, else of the longest
    URL that its repository's begins with, as Argo CD chooses."""
    found = sorted(_matching(_normal(chart.repository), secrets), key=lambda each: (each[0], each[1].secret))
    return found[0][1] if found else None


def _matching(wanted: str, secrets: Iterable[Mapping[str, Any]]) -> Iterator[tuple[tuple[bool, int], Credential]]:
    """Each credential for a repository after its rank."""
    for secret in secrets:
        metadata, fields = secret.get("metadata") or {}, _fields(secret)
        url, is_template = _normal(fields.get("url", "")), _kind(metadata) == TEMPLATE
        is_meant = wanted == url or (is_template and wanted.startswith(f"{url}/"))
        if url and is_meant and fields.get("type") in _TYPES and fields.get("password"):
            name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
            yield (is_template, -len(url)), Credential(name, fields.get("username", ""), fields["password"])


def _kind(metadata: Mapping[str, Any]) -> str:
    return str((metadata.get("labels") or {}).get(SECRET_TYPE, ""))


def _fields(secret: Mapping[str, Any]) -> dict[str, str]:
    """The fields of a Secret that are text."""
    found = {}
    for name, value in (secret.get("data") or {}).items():
        try:
            found[str(name)] = base64.b64decode(value, validate=True).decode().strip()
        except (binascii.Error, ValueError, TypeError):
            continue
    return found


def _normal(url: str) -> str:
    """A URL for comparison: Argo CD names registries without a scheme, templates of services with `oci://`."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = (rest if separator else scheme).rstrip("/").partition("/")
    kept = "" if not separator or scheme == "oci" else f"{scheme}://"
    return f"{kept}{host.lower()}{slash}{path}" if host else ""


async def _listed(api: KubernetesApi, namespace: str) -> AsyncIterator[Mapping[str, Any]]:
    query = {"labelSelector": SELECTOR, "limit": str(PAGE_SECRETS)}
    for _ in range(PAGES_MAX):
        page = json.loads(await api.get(API_KINDS[SECRET].path(namespace), query))
        for each in page.get("items") or ():
            yield each
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return
        query["continue"] = token
