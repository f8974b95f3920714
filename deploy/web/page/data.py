"""The data of the page: responses of the Queries service as JSON, of the present or, with `at`, of any point of the
past.

Every value comes from a query. A value of the past is the response of the same query with `as_of`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple

from aiohttp import web

from commands.queries.service import QueriesService
from commands.rpc.middleware import Call
from deploy.operations.export.events import EXPORTED_TYPES, EventFilter
from deploy.serialization import message_to_dict
from deploy.web.page import fleet
from deploy.web.page.log import LogPage, latest, parse_cursor
from deploy.web.page.requests import BadQuery, NotReady, data, number, parameters
from eventstore.folding.fold import Fold
from eventstore.folding.origin import read_first
from eventstore.log import FLEET_0, EventLog, Partition
from eventstore.replicas.replica import Replica
from projections.field_checks import quoted
from projections.zones.dpus.phases import PHASES
from schemas.api import dpuplane_pb2 as pb

ANSWERS_AT_ONCE = 8
WAITING_MAX = 64
DPUS_PER_PAGE = 100
CLIQUES_PER_PAGE = 24


class DataSource(NamedTuple):
    """The source of responses. `cut` returns the end of every partition at a point of the past."""

    queries: QueriesService
    log: EventLog
    replica: Replica
    folds: Collection[Fold[Any]]
    call: Call
    now_ms: Callable[[], int]
    cut: Callable[[str], Awaitable[Mapping[Partition, int]]]


class DataRoutes:
    """Serves GET /page/data/..., a few requests at a time."""

    def __init__(self, source: Callable[[], DataSource]) -> None:
        self._source = source
        self._at_once = asyncio.Semaphore(ANSWERS_AT_ONCE)
        self._asked = 0

    def routes(self) -> list[web.RouteDef]:
        served = (self.span, self.fleet, self.zone, self.dpus, self.cliques, self.holds, self.events)
        return [web.get(f"/page/data/{serve.__name__}", data(self._bounded(serve))) for serve in served]

    async def span(self, request: web.Request) -> Any:
        """The range of the slider, and the available choices."""
        parameters(request, ())
        source = self._source()
        first = await read_first(source.log, {FLEET_0: await source.log.begin(FLEET_0)})
        return {
            "first_ms": first[FLEET_0].timestamp_ms,
            "now_ms": source.now_ms(),
            "log_id": source.replica.log_id,
            "generation": source.replica.generation,
            "replica": source.replica.name,
            "phases": PHASES,
            "types": sorted(EXPORTED_TYPES),
            "zone_columns": fleet.ZONE_COLUMNS,
            "change_columns": fleet.CHANGE_COLUMNS,
            "bucket_columns": fleet.BUCKET_COLUMNS,
        }

    async def fleet(self, request: web.Request) -> Any:
        """All values of the live feed, at one point in time."""
        at = parameters(request, ("at",)).get("at", "")
        source = self._source()
        zones: list[pb.ZoneProgress] = []
        async for part in source.queries.list_zone_progress(pb.ListZoneProgressRequest(as_of=at), source.call):
            zones.extend(part.zones)
        latency = await source.queries.get_latency(pb.GetLatencyRequest(as_of=at), source.call)
        holds = await fleet.every_hold(source.queries, at, source.call)
        status = await source.queries.get_status(pb.GetStatusRequest(as_of=at), source.call)
        return {
            "now_ms": source.now_ms(),
            "zones": fleet.rows(zones),
            "totals": fleet.totals(zones),
            "latency": fleet.latency(latency),
            "holds": fleet.holds(holds),
            "alerts": fleet.past_alerts(status) if at else fleet.alerts(status),
        }

    async def zone(self, request: web.Request) -> Any:
        given = parameters(request, ("at", "zone"))
        source = self._source()
        wanted = pb.GetZoneRequest(zone=given.get("zone", ""), as_of=given.get("at", ""))
        return message_to_dict(await source.queries.get_zone(wanted, source.call))

    async def dpus(self, request: web.Request) -> Any:
        given = parameters(request, ("at", "zone", "phase", "stuck", "page_token"))
        source = self._source()
        wanted = pb.ListDpusRequest(
            zone=given.get("zone", ""),
            phase=given.get("phase", ""),
            stuck=bool(number("stuck", given.get("stuck", ""), most=1)),
            page_size=DPUS_PER_PAGE,
            page_token=given.get("page_token", ""),
            as_of=given.get("at", ""),
        )
        return message_to_dict(await source.queries.list_dpus(wanted, source.call))

    async def cliques(self, request: web.Request) -> Any:
        given = parameters(request, ("at", "domain", "page_token"))
        source = self._source()
        wanted = pb.ListCliquesRequest(
            domain=given.get("domain", ""),
            page_size=CLIQUES_PER_PAGE,
            page_token=given.get("page_token", ""),
            as_of=given.get("at", ""),
        )
        return message_to_dict(await source.queries.list_cliques(wanted, source.call))

    async def holds(self, request: web.Request) -> Any:
        given = parameters(request, ("at",))
        source = self._source()
        found = await fleet.every_hold(source.queries, given.get("at", ""), source.call)
        return message_to_dict(pb.ListHoldsResponse(holds=found))

    async def events(self, request: web.Request) -> Any:
        given = parameters(request, ("at", "type", "subject", "actor", "before"))
        source = self._source()
        kind = given.get("type", "")
        if kind and kind not in EXPORTED_TYPES:
            raise BadQuery(f"type: {quoted(kind)} must be the name of an event such as NodesJoined, or undecodable")
        wanted = EventFilter(
            types=frozenset({kind} if kind else ()), subject=given.get("subject", ""), actor=given.get("actor", "")
        )
        before = await self._before(source, given)
        found: LogPage = await latest(source.log, source.folds, wanted, before)
        return found._asdict()

    async def _before(self, source: DataSource, given: dict[str, str]) -> dict[Partition, int]:
        """The positions before which the log is read: the cursor of the previous page, else the cut at the shown point
        of the past, else the end of the log.
        """
        partitions = [partition for topic in source.log.topics.folded for partition in source.log.partitions(topic)]
        ends = {partition: await source.log.end(partition) for partition in partitions}
        if given.get("before"):
            cursor = parse_cursor(given["before"], source.log)
            return {partition: min(position, ends[partition]) for partition, position in cursor.items()}
        if given.get("at"):
            cut = await source.cut(given["at"])
            return {partition: cut.get(partition, end) for partition, end in ends.items()}
        return ends

    def _bounded(self, serve: Callable[[web.Request], Awaitable[Any]]) -> Callable[[web.Request], Awaitable[Any]]:
        async def answer(request: web.Request) -> Any:
            if self._asked >= WAITING_MAX:
                raise NotReady(f"requests: {self._asked} are waiting already, the limit; try again")
            self._asked += 1
            try:
                async with self._at_once:
                    return await serve(request)
            finally:
                self._asked -= 1

        return answer
