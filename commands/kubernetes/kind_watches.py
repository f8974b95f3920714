"""List-watches of those kinds that an API server serves.

Which kinds these are is discovered: an operator may be installed later, or never. A kind that is missing is looked for
again, at first after half a minute, then less and less often. While no kind is missing, nothing is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec

from commands.kubernetes.list_watch import ListWatch
from eventstore.backoff import backoff_ceiling
from schemas.kubernetes.api import NOT_FOUND, ApiError, KubernetesApi

logger = logging.getLogger(__name__)

SEARCH_S = 30.0
SEARCH_S_MAX = 600.0
RETRY_S = 1.0
RETRY_S_MAX = 30.0
_LOGGED = frozenset((1, 10, 100, 1_000))


class WatchedKind(NamedTuple):
    """A kind to watch if it is served, and what makes its list-watch."""

    group_version: str
    plural: str
    make: Callable[[], ListWatch[Any]]


class _Resource(msgspec.Struct, frozen=True):
    name: str = ""


class _Resources(msgspec.Struct, frozen=True):
    """metav1.APIResourceList."""

    resources: list[_Resource] | None = None


_resources = msgspec.json.Decoder(_Resources)


async def served_plurals(api: KubernetesApi, group_version: str) -> frozenset[str]:
    """The plurals of the kinds of a group and version that the API server serves. Raises ApiError."""
    root = "/api" if "/" not in group_version else "/apis"
    try:
        data = await api.get(f"{root}/{group_version}")
    except ApiError as error:
        if error.status == NOT_FOUND:
            return frozenset()
        raise
    try:
        return frozenset(each.name for each in _resources.decode(data).resources or ())
    except msgspec.DecodeError as error:
        raise ApiError(0, "Malformed", f"the kinds of {group_version} cannot be read: {error}") from error


class KindWatches:
    """Runs the list-watches of the served kinds of one cluster while `run` runs."""

    def __init__(self, api: KubernetesApi, kinds: Sequence[WatchedKind], *, source: str, rng: Random) -> None:
        self.watches: dict[str, ListWatch[Any]] = {}
        """The list-watches by plural."""
        self.missing: tuple[WatchedKind, ...] = tuple(kinds)
        """The kinds that the API server did not serve when they were last looked for."""
        self.searches = 0
        """Number of requests that looked for kinds."""
        self._api = api
        self._source = source
        self._rng = rng
        self._failures = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        searches = 0
        async with asyncio.TaskGroup() as tasks:
            while self.missing:
                if not await self._search(tasks, is_first=not searches):
                    continue
                searches += 1
                ceiling_s = backoff_ceiling(searches - 1, SEARCH_S, SEARCH_S_MAX)
                if self.missing:
                    await asyncio.sleep(ceiling_s * self._rng.uniform(0.8, 1.2))

    async def _search(self, tasks: asyncio.TaskGroup, *, is_first: bool) -> bool:
        """Start the watches of kinds that are served now. Returns False after an error and a pause."""
        before = self.missing
        try:
            for group_version in sorted({each.group_version for each in self.missing}):
                self.searches += 1
                served = await served_plurals(self._api, group_version)
                for kind in self.missing:
                    if kind.group_version == group_version and kind.plural in served:
                        watch = self.watches[kind.plural] = kind.make()
                        tasks.create_task(watch.run())
                self.missing = tuple(each for each in self.missing if each.plural not in self.watches)
        except ApiError as error:
            await self._pause(error)
            return False
        self._failures = 0
        if self.missing and (is_first or self.missing != before):
            names = ", ".join(f"{each.plural} ({each.group_version})" for each in self.missing)
            about = {"source": self._source}
            logger.info("kinds not installed, looking for them again: %s", names, extra=about)
        return True

    async def _pause(self, error: ApiError) -> None:
        pause_s = backoff_ceiling(self._failures, RETRY_S, RETRY_S_MAX) * self._rng.uniform(0.5, 1.0)
        self._failures += 1
        if self._failures in _LOGGED:
            about = {"source": self._source, "pause_s": round(pause_s, 1)}
            logger.warning("kinds not discovered, retrying: %s", error, extra=about)
        await asyncio.sleep(max(pause_s, min(error.retry_after_s or 0.0, RETRY_S_MAX)))
