"""The live view of the fleet: refreshed while a browser is connected, and sent as changes since a revision.

All viewers share one view. A revision is a number; a reader with revision n receives everything that changed after it,
in its present state. Nothing is queued per reader, and a slow reader misses intermediate values, never the last.

The view is refreshed when the log has grown, or after one second without growth, but at most ten times per second.
Above 250 zones, the interval grows with the number of zones, so that refreshes take at most about a tenth of the loop's
time: with 25,000 zones it is 10 s. Expensive and rarely viewed parts are refreshed once per second at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from commands.queries.service import QueriesService
from commands.rpc.middleware import Call
from deploy.web.page.fleet import alerts, every_hold, holds, latency, rows, totals
from eventstore.log import CLIQUES, FLEET, ZONES
from eventstore.replicas.replica import Replica
from schemas.api import dpuplane_pb2 as pb

REFRESH_S = 0.1
REFRESH_S_PER_ZONE = 0.0004
"""Minimum interval of refreshes per zone of the fleet. A refresh takes 20 to 40 us per zone."""
SLOW_S = 1.0

Items = dict[str, Any]


class LiveView:
    """`run` refreshes the view; `changes` returns the changes since a revision."""

    def __init__(self, queries: QueriesService, replica: Replica, call: Call, now_ms: Callable[[], int]) -> None:
        self._queries = queries
        self._replica = replica
        self._call = call
        self._now_ms = now_ms
        self._items: dict[str, tuple[int, Any]] = {}
        """Items by key, in order of their last change."""
        self.is_over = False
        """Whether the process ends, so that no further change follows."""
        self._revision = 0
        self._changed = asyncio.Event()
        self._watchers = 0
        self._watched = asyncio.Event()
        self._slow_at = 0.0
        self._zones = 0

    async def run(self) -> None:
        """Refresh the view while it is watched, until cancelled."""
        loop = asyncio.get_running_loop()
        with self._replica.watch(*self._replica.topics.folded) as watch:
            while True:
                await self._watched.wait()
                began = loop.time()
                await self._refresh(began)
                await asyncio.sleep(max(REFRESH_S, self._zones * REFRESH_S_PER_ZONE) - (loop.time() - began))
                await _at_most(SLOW_S, watch.changed())

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count a viewer while the context lasts."""
        self._watchers += 1
        self._watched.set()
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._watched.clear()

    async def changes(self, since: int, *, timeout_s: float) -> tuple[int, Items]:
        """The present revision and the changes after revision `since`; no changes if there were none within the
        timeout.
        """
        clock = asyncio.get_running_loop().time
        until_s = clock() + timeout_s
        while self._revision == since and not self.is_over and (left_s := until_s - clock()) > 0:
            await _at_most(left_s, self._changed.wait())
        found: Items = {}
        for key in reversed(self._items):
            revision, value = self._items[key]
            if revision <= since:
                break
            found[key] = value
        return self._revision, found

    def end(self) -> None:
        """Release all readers that wait for changes."""
        self.is_over = True
        self._changed.set()

    async def _refresh(self, now: float) -> None:
        seen: Items = {}
        zones: list[pb.ZoneProgress] = []
        async for part in self._queries.list_zone_progress(pb.ListZoneProgressRequest(), self._call):
            zones.extend(part.zones)
        seen.update(("zone/" + str(row[0]), row) for row in rows(zones))
        seen["totals"] = totals(zones)
        self._zones = len(zones)
        if now - self._slow_at >= SLOW_S:
            self._slow_at = now
            seen.update(await self._refresh_slow())
        self._put(seen)

    async def _refresh_slow(self) -> Items:
        status = await self._queries.get_status(pb.GetStatusRequest(), self._call)
        return {
            "latency": latency(await self._queries.get_latency(pb.GetLatencyRequest(), self._call)),
            "holds": holds(await every_hold(self._queries, "", self._call)),
            "alerts": alerts(status),
            "cliques": self._records(CLIQUES),
            "records": self._records(*self._replica.topics.folded),
            "decided": self._records(ZONES, FLEET),
        }

    def _records(self, *topics: str) -> int:
        return sum(self._replica.position(part) for topic in topics for part in self._replica.partitions(topic))

    def _put(self, seen: Items) -> None:
        revision = self._revision + 1
        changed = [key for key, value in seen.items() if key not in self._items or self._items[key][1] != value]
        for key in changed:
            self._items.pop(key, None)
            self._items[key] = (revision, seen[key])
        if changed:
            self._revision = revision
            previous, self._changed = self._changed, asyncio.Event()
            previous.set()


async def _at_most(seconds: float, awaited: Any) -> None:
    """Wait for an event, at most this many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await awaited
    except TimeoutError:
        return
