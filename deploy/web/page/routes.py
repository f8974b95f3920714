"""The routes of the page on --http: its files, its data and its live feed.

A process without the role `api` responds on these routes with a sentence that names the addresses of the page.

HTTP listens before the log is folded, and the API starts after that. The routes therefore exist from the start, and
receive their data sources later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from aiohttp import web

from commands.queries.service import QueriesService
from commands.rpc.middleware import Call
from deploy.web.page import assets
from deploy.web.page.data import DataRoutes, DataSource
from deploy.web.page.feed import Feeds
from deploy.web.page.live_view import LiveView
from deploy.web.page.requests import HEADERS, NotReady
from eventstore.as_of import check_not_in_future, parse_as_of
from eventstore.log import EventLog, Partition
from eventstore.recovery.cuts import cut_of
from eventstore.replicas.beacons import Beacon
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import API

CALL = Call("?page", 10.0)
"""The caller of the page's queries: it has no authenticated principal."""


class PageRoutes:
    """The routes of one process. `open` gives them their data sources."""

    def __init__(
        self, roles: Collection[str], alive: Callable[[], Sequence[Beacon]], now_ms: Callable[[], int]
    ) -> None:
        self._shows = API in roles
        self._roles = roles
        self._alive = alive
        self._now_ms = now_ms
        self._source: DataSource | None = None
        self._live_view: LiveView | None = None
        self.feeds = Feeds(self._opened_live_view, now_ms)
        """The feeds, whose counters are metrics."""

    def routes(self) -> list[web.RouteDef]:
        if not self._shows:
            return [web.get("/", self._elsewhere), web.get("/page/{rest:.*}", self._elsewhere)]
        data = DataRoutes(self._opened_source)
        return [*assets.routes(), web.get("/page/feed", self.feeds.serve), *data.routes()]

    async def open(self, queries: QueriesService, log: EventLog, replica: Replica, folds: Collection[Any]) -> None:
        """Serve the page from these sources, until cancelled."""

        async def cut(at: str) -> Mapping[Partition, int]:
            as_of = parse_as_of(at)
            check_not_in_future(as_of, self._now_ms())
            return (await cut_of(log, replica.log_id, log.topics.folded, as_of)).offsets

        self._source = DataSource(queries, log, replica, folds, CALL, self._now_ms, cut)
        self._live_view = LiveView(queries, replica, CALL, self._now_ms)
        await self._live_view.run()

    def close(self) -> None:
        """End the feeds, which would never end by themselves."""
        if self._live_view is not None:
            self._live_view.end()

    def _opened_source(self) -> DataSource:
        if self._source is None:
            raise NotReady("page: the log is not folded yet; reload in a few seconds")
        return self._source

    def _opened_live_view(self) -> LiveView:
        if self._live_view is None:
            raise NotReady("page: the log is not folded yet; reload in a few seconds")
        return self._live_view

    async def _elsewhere(self, _request: web.Request) -> web.Response:
        """421: this process does not fold enough to show the fleet."""
        there = sorted(found.addresses["http"] for found in self._alive() if _shows(found))
        where = ", ".join(f"http://{address}/" for address in there) or "none of them is alive"
        reason = (
            f"page: this process ({', '.join(self._roles)}) does not fold fleet; use a process with role api: {where}\n"
        )
        return web.Response(status=421, text=reason, headers=HEADERS)


def _shows(beacon: Beacon) -> bool:
    return API in beacon.roles and "http" in beacon.addresses
