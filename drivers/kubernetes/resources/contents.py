"""The contents of wanted Secrets, read from the Secrets that they are made from. They are kept in memory only.

A Secret is read by its name when a wanted Secret needs it. It is read again when its version changes, if a watch
follows it; when a connection changes, because a kubeconfig was replaced; and every hour. A content that is wanted no
more is forgotten.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple, Protocol

from drivers.kubernetes.secret_contents import ContentFault, secret_content
from eventstore.backoff import backoff_ceiling
from projections.kubernetes.resources.api_kinds import API_KINDS
from projections.resources.state import ObjectId
from projections.resources.wanted import SecretSource, Wanted
from schemas.kubernetes.api import ApiError, KubernetesApi

logger = logging.getLogger(__name__)

REFRESH_S = 3_600.0
RETRY_S = 1.0
RETRY_S_MAX = 300.0


class Clusters(Protocol):
    """The API servers of clusters."""

    def api(self, source: str) -> KubernetesApi | None: ...


class _Content(NamedTuple):
    source: SecretSource
    fields: Mapping[str, Any]


class SecretContents:
    """Contents by the key of the wanted Secret, while `run` runs. `on_change` is called with the key of a Secret whose
    content has changed. `source_of` gives the source of a wanted Secret, None for one that is wanted no more."""

    def __init__(
        self,
        clusters: Clusters,
        on_change: Callable[[str], None],
        rng: Random,
        *,
        source_of: Callable[[str], SecretSource | None],
    ) -> None:
        self._clusters = clusters
        self._on_change = on_change
        self._source_of = source_of
        self._rng = rng
        self._found: dict[str, _Content] = {}
        self._due: dict[str, SecretSource] = {}
        self._work = asyncio.Event()

    def content(self, wanted: Wanted) -> Mapping[str, Any] | None:
        """The content of a wanted Secret; None while its source is not read."""
        source = wanted.secret
        if source is None:
            return None
        found = self._found.get(wanted.at.key)
        if found is not None and found.source == source:
            return found.fields
        self._due[wanted.at.key] = source
        self._work.set()
        return None

    def refresh(self) -> None:
        """Read every source again."""
        self._due |= {key: found.source for key, found in self._found.items()}
        self._work.set()

    async def run(self) -> None:
        """Read sources until cancelled."""
        failures = 0
        while True:
            wait_s = REFRESH_S if not failures else backoff_ceiling(failures, RETRY_S, RETRY_S_MAX)
            try:
                async with asyncio.timeout(wait_s * self._rng.uniform(0.8, 1.2)):
                    await self._work.wait()
            except TimeoutError:
                if not failures:
                    self.refresh()
            if failures:
                await asyncio.sleep(RETRY_S)
            self._work.clear()
            due, self._due = self._due, {}
            failed = {key: source for key, source in due.items() if not await self._read(key, source, failures)}
            self._due = failed | self._due
            failures = failures + 1 if failed else 0

    async def _read(self, key: str, source: SecretSource, failures: int) -> bool:
        """Read the source of a Secret. Returns whether the content is known, or needed no more."""
        if self._source_of(key) != source:
            self._found.pop(key, None)
            return True
        try:
            fields = secret_content(source, await self._get(source.at))
        except (ApiError, ContentFault) as error:
            if failures in (0, 10, 100):
                about = {"secret": source.at.key, "wanted": key}
                logger.warning("Secret not written, because its source is not usable: %s", error, extra=about)
            return False
        found = _Content(source, fields)
        if self._found.get(key) != found:
            self._found[key] = found
            self._on_change(key)
        return True

    async def _get(self, at: ObjectId) -> dict[str, Any]:
        api = self._clusters.api(at.source)
        if api is None:
            raise ApiError(0, "Unreachable", f"no connection to cluster {at.source}")
        found: dict[str, Any] = json.loads(await api.get(API_KINDS[at.kind].path(at.namespace, at.name)))
        return found
