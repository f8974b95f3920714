"""One collection of an API server, listed completely and then watched for ever.

The handler gets every object, and after each complete list the end of that list. A list that breaks off half way is
never reported as complete, because absence from it proves nothing. A watch continues from its last resource version
after every error, except when the server no longer has that version (410): then the collection is listed again. A watch
without a line for `idle_s`, not even a bookmark, counts as stalled and is opened again.

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
from schemas.kubernetes.objects import Metadata, ObjectList

logger = logging.getLogger(__name__)

PAGE = 500
WATCH_S = 300
"""Seconds after which the server ends a watch; the loop opens the next one."""
IDLE_S = 90.0
"""The API server sends a bookmark about once a minute."""
RETRY_S = 0.5
RETRY_S_MAX = 30.0
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
        """Every object of the collection was present since the list began. `went_back`: the API server has an earlier
        state than it had before, so it was restored from a backup."""
        ...


@dataclass
class WatchCounts:
    """Counts since the start."""

    lists: int = 0
    watches: int = 0
    stalls: int = 0
    failures: int = 0


class ListWatch(Generic[T]):
    """Lists and watches one collection while `run` runs."""

    def __init__(
        self,
        api: KubernetesApi,
        path: str,
        kind: type[T],
        handler: Handler[T],
        *,
        rng: Random,
        label_selector: str = "",
    ) -> None:
        self.counts = WatchCounts()
        self.is_current = False
        """Whether the last list is complete and a watch follows it."""
        self._api = api
        self._path = path
        self._page = msgspec.json.Decoder(ObjectList[kind])  # type: ignore[valid-type]
        self._item = msgspec.json.Decoder(kind)
        self._handler = handler
        self._rng = rng
        self._query = {"labelSelector": label_selector} if label_selector else {}
        self._failed = 0
        self._newest = 0
        """The highest resource version so far. They grow as integers (KEP-5504)."""

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            self.is_current = False
            try:
                version = await self._list()
            except ApiError as error:
                await self._pause(error)
                continue
            self._failed = 0
            await self._watch_from(version)

    async def _list(self) -> str:
        self._handler.list_began()
        query = self._query | {"limit": str(PAGE)}
        while True:
            page = self._page.decode(await self._api.get(self._path, query))
            for item in page.items:
                self._handler.present(item)
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        self.counts.lists += 1
        version = page.metadata.resource_version
        went_back = version.isdecimal() and int(version) < self._newest
        if went_back:
            about = {"path": self._path, "version": version, "before": self._newest}
            logger.warning("resource versions went back: the API server was restored from a backup", extra=about)
            self._newest = 0
        self._saw(version)
        self._handler.list_completed(went_back=went_back)
        return version

    async def _watch_from(self, version: str) -> None:
        """Watch from a resource version on. Returns when the collection must be listed again."""
        while True:
            query = self._query | {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": version,
                "timeoutSeconds": str(round(WATCH_S * self._rng.uniform(0.8, 1.2))),
            }
            try:
                async with self._api.watch(self._path, query, idle_s=IDLE_S) as events:
                    self.counts.watches += 1
                    self.is_current = True
                    async for event in events:
                        version = self._handle(event) or version
                        self._saw(version)
                        self._failed = 0
            except ApiError as error:
                if error.status == GONE or error.reason in _EXPIRED:
                    logger.info("watch expired, listing again", extra={"path": self._path, "version": version})
                    await asyncio.sleep(self._rng.uniform(0.0, RETRY_S))
                    return
                self.counts.stalls += error.reason == "Stalled"
                await self._pause(error)

    def _handle(self, event: WatchEvent) -> str:
        """Hand an event to the handler; returns the resource version after it."""
        item = self._item.decode(event.object)
        if event.type == "DELETED":
            self._handler.deleted(item)
        elif event.type != "BOOKMARK":
            self._handler.present(item)
        return item.metadata.resource_version

    def _saw(self, version: str) -> None:
        if version.isdecimal():
            self._newest = max(self._newest, int(version))

    async def _pause(self, error: ApiError) -> None:
        """Wait after a failure, with full jitter, and as long as the server asks."""
        self.counts.failures += 1
        self._failed += 1
        longest_s = min(RETRY_S_MAX, RETRY_S * 2 ** min(self._failed, 10))
        pause_s = max(self._rng.uniform(0.0, longest_s), error.retry_after_s or 0.0)
        if self._failed in (1, 10, 100):
            about = {"path": self._path, "status": error.status, "reason": error.reason, "pause_s": round(pause_s, 1)}
            logger.warning("list or watch failed, retrying: %s", error, extra=about)
        await asyncio.sleep(pause_s)
