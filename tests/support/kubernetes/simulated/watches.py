"""The watches of the simulated API server: events in order, bookmarks, and an end after timeoutSeconds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec

from schemas.kubernetes.api import GONE, ApiError, WatchEvent
from tests.support.kubernetes.simulated.faults import Faults
from tests.support.kubernetes.simulated.kinds import Collection, Object, Selector
from tests.support.kubernetes.simulated.store import Change

BOOKMARK_S = 60.0
LAST_BOOKMARK_S = 2.0
"""Time from the last bookmark to the end of a watch."""
DEFAULT_TIMEOUT_S = 1_800.0

Line: TypeAlias = tuple[Literal["ADDED", "MODIFIED", "DELETED"], Object]


@dataclass(eq=False)
class Watcher:
    """One open watch."""

    collection: Collection
    namespace: str
    selects: Selector
    faults: Faults
    version: int
    """The version up to which the watch has seen everything; a watch may begin in the future."""
    current: Callable[[], int]
    """The server's version."""
    lines: deque[Line] = field(default_factory=deque)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    error: ApiError | None = None
    """Ends the watch at once."""
    is_stalled: bool = False
    """Whether nothing comes out any more, not even the end."""
    _sent: list[Line] = field(default_factory=list)

    def see(self, change: Change) -> None:
        """Take note of a change of any collection."""
        if change.collection != self.collection or change.version <= self.version:
            return
        before, after = self._selected(change.before), self._selected(change.after)
        last = change.after or change.before
        assert last is not None
        stamped = {**last, "metadata": {**last["metadata"], "resourceVersion": str(change.version)}}
        if after or before:
            self.lines.append(("MODIFIED" if after and before else "ADDED" if after else "DELETED", stamped))
            self._disorder()
        self.version = change.version
        self.woken.set()

    def fail(self, error: ApiError) -> None:
        self.error = error
        self.woken.set()

    def stall(self) -> None:
        self.is_stalled = True
        self.woken.set()

    def _selected(self, item: Object | None) -> bool:
        if item is None or (self.namespace and item["metadata"].get("namespace") != self.namespace):
            return False
        return self.selects(item)

    def _disorder(self) -> None:
        rng = self.faults.disorder
        if rng is None:
            return
        self._sent.append(self.lines[-1])
        if len(self.lines) > 1 and rng.random() < self.faults.disorder_share:
            self.lines[-1], self.lines[-2] = self.lines[-2], self.lines[-1]
        if rng.random() < self.faults.disorder_share:
            self.lines.append(rng.choice(self._sent))

    async def events(self, query: Mapping[str, str], idle_s: float) -> AsyncIterator[WatchEvent]:
        """The lines of the response."""
        loop = asyncio.get_running_loop()
        length_s = float(query.get("timeoutSeconds", DEFAULT_TIMEOUT_S))
        if self.faults.longest_watch_s is not None:
            length_s = min(length_s, self.faults.longest_watch_s)
        end_s = loop.time() + length_s
        wants_bookmarks = query.get("allowWatchBookmarks") == "true" and self.faults.has_bookmarks
        line_s = loop.time()
        bookmark_s = min(line_s + BOOKMARK_S, end_s - LAST_BOOKMARK_S)
        while True:
            while self.lines and not self.is_stalled and not self.error:
                kind, item = self.lines.popleft()
                line_s = loop.time()
                yield WatchEvent(kind, msgspec.json.encode(item))
            if self.error:
                raise self.error
            now_s = loop.time()
            if now_s >= line_s + idle_s:
                raise ApiError(0, "Stalled", f"no event and no bookmark for {idle_s:g} s")
            if not self.is_stalled:
                if now_s >= end_s:
                    return
                if wants_bookmarks and now_s >= bookmark_s:
                    bookmark_s = min(now_s + BOOKMARK_S, max(end_s - LAST_BOOKMARK_S, now_s + 1.0))
                    if self.current() >= self.version:
                        line_s = now_s
                        yield WatchEvent("BOOKMARK", msgspec.json.encode(self._bookmark()))
                    continue
            await self._wait(self._next_s(line_s + idle_s, end_s, bookmark_s if wants_bookmarks else end_s) - now_s)

    def _next_s(self, idle_end_s: float, end_s: float, bookmark_s: float) -> float:
        return idle_end_s if self.is_stalled else min(idle_end_s, end_s, bookmark_s)

    async def _wait(self, seconds: float) -> None:
        self.woken.clear()
        try:
            async with asyncio.timeout(seconds):
                await self.woken.wait()
        except TimeoutError:
            pass

    def _bookmark(self) -> dict[str, Any]:
        about = {"resourceVersion": str(self.current()), "creationTimestamp": None}
        return {"kind": self.collection.kind, "apiVersion": self.collection.api_version, "metadata": about}


def expired(version: int, oldest: int) -> ApiError:
    """The end of a watch from a version that the server no longer has."""
    return ApiError(GONE, "Expired", f"too old resource version: {version} ({oldest})")
