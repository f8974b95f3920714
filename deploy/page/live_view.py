"""The fleet as the page shows it: refreshed while a browser is connected, and sent as changes since a revision.

There is one board however many look. A look has a number; whoever was told of look n is told of everything that changed
after it, as it is now. So nothing is queued for anybody, and a slow reader misses what came in between, never the end.

It looks when the log has said something, at most ten times a second, and the seldomer the more zones there are, so
that it takes a tenth of the loop or so: what a fleet of 25,000 zones loses is looks. What is dear or seldom looked at
is looked at once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from commands.queries.service import QueriesService
from commands.rpc.middleware import Call
from deploy.page.fleet import alerts, holds, latency, rows, totals
from eventstore.log import CLIQUES, FLEET, FOLDED_TOPICS, ZONES
from eventstore.replicas.replica import Replica
from schemas.api import dpuplane_pb2 as pb

LOOK_S = 0.1
LOOK_S_PER_ZONE = 0.0004
"""A look costs 20 to 40 us per zone."""
SLOW_S = 1.0

Items = dict[str, Any]


class LiveView:
    """`run` refreshes the view; `changes` yields what changed since."""

    def __init__(self, queries: QueriesService, replica: Replica, call: Call, now_ms: Callable[[], int]) -> None:
        self._queries = queries
        self._replica = replica
        self._call = call
        self._now_ms = now_ms
        self._items: dict[str, tuple[int, Any]] = {}
        """By key, in order of their last change."""
        self.is_over = False
        """Nothing more will be seen: the process ends."""
        self._look = 0
        self._looked = asyncio.Event()
        self._watchers = 0
        self._watched = asyncio.Event()
        self._slow_at = 0.0
        self._zones = 0

    async def run(self) -> None:
        """Looks for ever, while watched."""
        loop = asyncio.get_running_loop()
        with self._replica.watch(*FOLDED_TOPICS) as watch:
            while True:
                await self._watched.wait()
                began = loop.time()
                await self._refresh(began)
                await asyncio.sleep(max(LOOK_S, self._zones * LOOK_S_PER_ZONE) - (loop.time() - began))
                await _at_most(SLOW_S, watch.changed())

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Counts a viewer for as long as the context lasts."""
        self._watchers += 1
        self._watched.set()
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._watched.clear()

    async def changes(self, since: int, *, timeout_s: float) -> tuple[int, Items]:
        """The number of the last look, and what changed after look `since`; nothing new if nothing did in time."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self._look == since and not self.is_over and (left_s := deadline - asyncio.get_running_loop().time()) > 0:
            await _at_most(left_s, self._looked.wait())
        found: Items = {}
        for key in reversed(self._items):
            look, value = self._items[key]
            if look <= since:
                break
            found[key] = value
        return self._look, found

    def end(self) -> None:
        """Let whoever waits for changes go."""
        self.is_over = True
        self._looked.set()

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
            "holds": holds(await self._queries.list_holds(pb.ListHoldsRequest(), self._call)),
            "alerts": alerts(status),
            "cliques": self._records(CLIQUES),
            "records": self._records(*FOLDED_TOPICS),
            "decided": self._records(ZONES, FLEET),
        }

    def _records(self, *topics: str) -> int:
        return sum(self._replica.position(part) for topic in topics for part in self._replica.partitions(topic))

    def _put(self, seen: Items) -> None:
        look = self._look + 1
        changed = [key for key, value in seen.items() if key not in self._items or self._items[key][1] != value]
        for key in changed:
            self._items.pop(key, None)
            self._items[key] = (look, seen[key])
        if changed:
            self._look = look
            looked, self._looked = self._looked, asyncio.Event()
            looked.set()


async def _at_most(seconds: float, awaited: Any) -> None:
    """Wait for this, or for so long."""
    try:
        async with asyncio.timeout(seconds):
            await awaited
    except TimeoutError:
        return
