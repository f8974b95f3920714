"""One collection of an API server, listed completely and then watched for ever.

The handler gets every object, and after each complete list the end of that list. A list that breaks off half way is
never reported as complete, because absence from it proves nothing. A watch continues from its last resource version
after every error, except when the server no longer has that version (410): then the collection is listed again. A watch
without a line for `idle_s`, not even a bookmark, counts as stalled and is opened again.

An API server that was restored from an older backup accepts a watch from a version that it has not reached yet, and
sends nothing until it reaches that version. So before a watch is opened again, the loop reads the server's version and
the object that changed last. If the version of either is lower than before, the collection is listed. An hourly list
finds what this check misses. An event is dropped if it is not newer than the known version of its object: some proxies
and caches repeat events.

kubernetes_asyncio's own Watch repeats a 410 with the same version, has no deadline for a silent connection, and decodes
each event three times; kopf and client-go have loops like this one for the same reasons.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from random import Random
from typing import Generic, Protocol, TypeVar

import msgspec

from schemas.kubernetes.api import GONE, ApiError, KubernetesApi, WatchEvent
from schemas.kubernetes.objects import Metadata, ObjectList, version_number

logger = logging.getLogger(__name__)

PAGE = 500
WATCH_S = 300
"""Seconds after which the server ends a watch; the loop opens the next one."""
IDLE_S = 90.0
"""Maximum time without a line before a watch counts as stalled. The API server sends a bookmark about once a minute. If
its etcd does not report progress, the API server sends no bookmark while the collection is quiet: each stalled watch is
then opened again after a short pause, without backoff."""
RELIST_S = 3_600.0
"""Time after which the collection is listed again, in case a watch missed something."""
RETRY_S = 0.5
RETRY_S_MAX = 30.0
RETRY_AFTER_S_MAX = 300.0
"""The longest pause that a server can ask for: the value may be wrong."""
SHORT_WATCH_S = 1.0
"""A watch that ends within this time, and without a line, has failed: opening it again at once would be a busy loop."""
DELETED_MAX = 1_000
"""Maximum number of deleted objects that are remembered, so that no late event revives them."""
_EXPIRED = ("Expired", "Gone")


class Watched(Protocol):
    """An object with metadata."""

    @property
    def metadata(self) -> Metadata: ...


T = TypeVar("T", bound=Watched)
T_contra = TypeVar("T_contra", bound=Watched, contravariant=True)


class Handler(Protocol[T_contra]):
    """Receives the objects of a collection. The methods return at once and never raise."""

    def list_began(self) -> None: ...

    def present(self, item: T_contra) -> None:
        """An object exists, as listed or watched."""
        ...

    def deleted(self, item: T_contra) -> None:
        """An object was deleted: its last state."""
        ...

    def list_completed(self, *, went_back: bool) -> None:
        """The list is complete: `present` was called for every object since `list_began`. With `went_back`, the API
        server has an earlier state than before, so it was restored from a backup."""
        ...


class HandlerPair(Generic[T_contra]):
    """Two handlers of one collection."""

    def __init__(self, first: Handler[T_contra], second: Handler[T_contra]) -> None:
        self._handlers = (first, second)

    def list_began(self) -> None:
        for each in self._handlers:
            each.list_began()

    def present(self, item: T_contra) -> None:
        for each in self._handlers:
            each.present(item)

    def deleted(self, item: T_contra) -> None:
        for each in self._handlers:
            each.deleted(item)

    def list_completed(self, *, went_back: bool) -> None:
        for each in self._handlers:
            each.list_completed(went_back=went_back)


class ListVersions(Protocol):
    """Remembers the resource version of the last complete list, also over a restart of the process. The methods return
    at once and never raise."""

    def last_version(self) -> int:
        """The version that was recorded last; 0 if there is none."""
        ...

    def record_version(self, version: int) -> None:
        """A list with this version is complete; `list_completed` of the handler follows."""
        ...


@dataclass
class WatchCounts:
    """Counts since the start."""

    lists: int = 0
    watches: int = 0
    stalls: int = 0
    failures: int = 0
    expired: int = 0
    """Lists and watches that the server could no longer continue (410)."""
    stale_events: int = 0
    malformed_events: int = 0


class ListWatch(Generic[T]):
    """Lists and watches one collection of a source while `run` runs."""

    def __init__(
        self,
        api: KubernetesApi,
        path: str,
        kind: type[T],
        handler: Handler[T],
        *,
        rng: Random,
        label_selector: str = "",
        versions: ListVersions | None = None,
        source: str = "",
    ) -> None:
        self.counts = WatchCounts()
        self.is_current = False
        """Whether the last list is complete and a watch follows it."""
        self.fault = ""
        """The last error, until a watch follows a complete list again."""
        self._source = source
        self._api = api
        self._path = path
        self._page = msgspec.json.Decoder(ObjectList[kind])  # type: ignore[valid-type]
        self._item = msgspec.json.Decoder(kind)
        self._handler = handler
        self._rng = rng
        self._list_versions = versions
        self._query = {"labelSelector": label_selector} if label_selector else {}
        self._failed = 0
        self._newest = 0
        """The highest resource version so far. Resource versions grow as integers (KEP-5504)."""
        self._went_back = False
        """Whether the server returned an object in an older version than before."""
        self._last: tuple[int, Metadata, bool] | None = None
        """The latest change: the version, the object's metadata, and whether the object was deleted."""
        self._versions: dict[str, int] = {}
        """The version of each present object, by uid."""
        self._before: dict[str, int] = {}
        """The version of each object before the list that runs, also before its attempts that failed, by uid."""
        self._deleted: dict[str, int] = {}
        """The versions at which objects were deleted, by uid, the oldest first."""
        self._watching: asyncio.Timeout | None = None
        """Ends the present watch, if there is one."""

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            self.is_current = False
            try:
                version = await self._list()
            except ApiError as error:
                await self._pause(error)
                continue
            await self._watch_from(version)

    def list_again(self) -> None:
        """End the present watch, so that the collection is listed at once."""
        if self._watching is not None:
            self._watching.reschedule(asyncio.get_running_loop().time())

    async def _list(self) -> str:
        self._handler.list_began()
        self._before.update(self._versions)
        self._versions, self._deleted, self._last = {}, {}, None
        if self._list_versions is not None:  # before the request: a list that begins later has at least this version
            self._newest = max(self._newest, self._list_versions.last_version())
        query = self._query | {"limit": str(PAGE)}
        while True:
            page = await self._page_of(query)
            for item in page.items:
                # the server's own version may have caught up since a restore, but that of an object does not go back
                self._went_back |= version_number(item.metadata.resource_version) < self._before.get(
                    item.metadata.uid, 0
                )
                self._is_news(item.metadata)
                self._handler.present(item)
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        self.counts.lists += 1
        version = page.metadata.resource_version
        went_back = self._went_back or (version.isdecimal() and int(version) < self._newest)
        self._went_back, self._before = False, {}
        if went_back:
            about = {"source": self._source, "path": self._path, "version": version, "before": self._newest}
            logger.warning("resource versions went back: the API server was restored from a backup", extra=about)
            self._newest = 0
        self._newest = max(self._newest, version_number(version))
        if self._list_versions is not None:
            self._list_versions.record_version(version_number(version))
        self._handler.list_completed(went_back=went_back)
        return version

    async def _page_of(self, query: dict[str, str]) -> ObjectList[T]:
        data = await self._api.get(self._path, query)
        try:
            page: ObjectList[T] = self._page.decode(data)
        except msgspec.DecodeError as error:  # a skipped object would seem to be absent
            raise ApiError(0, "Malformed", f"a list cannot be read: {error}") from error
        return page

    async def _watch_from(self, version: str) -> None:
        """Watch from a resource version on. Returns when the collection must be listed again."""
        is_first = True
        now_s = asyncio.get_running_loop().time
        relist_s = now_s() + RELIST_S * self._rng.uniform(0.8, 1.2)
        while True:
            try:
                if not is_first and await self._has_gone_back():
                    return
                is_first = False
                async with asyncio.timeout(None) as self._watching:
                    version = await self._watch(version)
            except TimeoutError:  # list_again
                return
            except ApiError as error:
                if error.reason == "Stalled":
                    self.counts.stalls += 1
                    await asyncio.sleep(self._rng.uniform(0.0, RETRY_S))
                else:
                    self.is_current = False
                    await self._pause(error)
                version = str(max(version_number(version), self._newest)) if version.isdecimal() else version
                if _is_expired(error):
                    return
            finally:
                self._watching = None
            if self.is_current and now_s() >= relist_s:
                return

    async def _watch(self, version: str) -> str:
        """Watch until the server ends it; returns the version to go on from."""
        query = self._query | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(round(WATCH_S * self._rng.uniform(0.8, 1.2))),
        }
        now_s = asyncio.get_running_loop().time
        began_s, has_lines = now_s(), False
        async with self._api.watch(self._path, query, idle_s=IDLE_S) as events:
            self.counts.watches += 1
            self.is_current, self.fault = True, ""
            async for event in events:
                version = self._handle(event, version)
                has_lines = True
                self._failed = 0
        if not has_lines and now_s() < began_s + SHORT_WATCH_S:
            raise ApiError(0, "Closed", "the server ended the watch at once")
        self._failed = 0
        return version

    async def _has_gone_back(self) -> bool:
        """Whether the collection must be listed: the version of the server, or of the object that changed last, is
        lower than before, or that object is missing. A missing object does not prove a restore: it may have been
        deleted."""
        query = {"limit": "1"}
        if self._last is not None:
            about = self._last[1]
            query = {"fieldSelector": f"metadata.name={about.name}"}
            query["fieldSelector"] += f",metadata.namespace={about.namespace}" if about.namespace else ""
        page = await self._page_of(query)
        if self._last is not None:
            before, _, is_deleted = self._last
            found = next((version_number(item.metadata.resource_version) for item in page.items), None)
            self._went_back = found is not None and found < before
            if self._went_back or (found is None and not is_deleted):
                return True
        version = page.metadata.resource_version
        return version.isdecimal() and int(version) < self._newest

    def _handle(self, event: WatchEvent, version: str) -> str:
        """Hand an event to the handler; returns the resource version after it."""
        try:
            item = self._item.decode(event.object)
        except msgspec.DecodeError as error:
            if not self.counts.malformed_events:
                about = {"source": self._source, "path": self._path}
                logger.warning("undecodable event skipped: %s", error, extra=about)
            self.counts.malformed_events += 1
            return version
        found = item.metadata.resource_version
        if event.type == "DELETED":
            if self._is_news(item.metadata, is_deleted=True):
                self._handler.deleted(item)
        elif event.type != "BOOKMARK" and self._is_news(item.metadata):
            self._handler.present(item)
        self._newest = max(self._newest, version_number(found))
        return found if not found.isdecimal() or version_number(found) > version_number(version) else version

    def _is_news(self, about: Metadata, *, is_deleted: bool = False) -> bool:
        """Record the version of an object. Returns whether it is newer than the known version."""
        version = version_number(about.resource_version)
        if about.uid and version and version <= max(self._versions.get(about.uid, 0), self._deleted.get(about.uid, 0)):
            self.counts.stale_events += 1
            return False
        if self._last is None or version >= self._last[0]:
            self._last = (version, about, is_deleted)
        if not is_deleted:
            self._deleted.pop(about.uid, None)
            self._versions[about.uid] = version
            return True
        self._versions.pop(about.uid, None)
        self._deleted[about.uid] = version
        if len(self._deleted) > DELETED_MAX:
            del self._deleted[next(iter(self._deleted))]
        return True

    async def _pause(self, error: ApiError) -> None:
        """Wait after a failure: as long as the server asks, and then a backoff with full jitter."""
        self.counts.failures += 1
        self.counts.expired += _is_expired(error)
        self._failed += 1
        longest_s = min(RETRY_S_MAX, RETRY_S * 2 ** min(self._failed, 10))
        asked_s = min(RETRY_AFTER_S_MAX, error.retry_after_s or 0.0)
        pause_s = asked_s + self._rng.uniform(0.0, longest_s)
        self.fault = str(error)
        if self._failed in (1, 10, 100):
            about = {
                "source": self._source,
                "path": self._path,
                "status": error.status,
                "reason": error.reason,
                "pause_s": round(pause_s, 1),
            }
            logger.warning("list or watch failed, retrying: %s", error, extra=about)
        await asyncio.sleep(pause_s)


def _is_expired(error: ApiError) -> bool:
    return error.status == GONE or error.reason in _EXPIRED
