"""A plane whose replicas write statuses to one API server, simulated or real."""

from __future__ import annotations

from functools import partial
from typing import Any

from commands.kubernetes.list_watch import ListWatch
from drivers.kubernetes.request_budget import RequestBudget
from drivers.kubernetes.status import StatusEdge
from drivers.kubernetes.writer import Writer
from eventstore.log import FLEET_0
from projections.kubernetes.object_cache import named_objects
from projections.kubernetes.object_events import ObjectEvent
from projections.kubernetes.zone_notices import ZoneNotices
from schemas.events import Envelope, HoldApproved, NodesJoined, PolicySet
from schemas.kubernetes.api import KubernetesApi
from schemas.kubernetes.objects import Custom
from schemas.resources import KINDS
from schemas.resources.crds import definition
from schemas.resources.kinds import Kind
from tests.support.kubernetes.requests import get, install
from tests.support.memory_plane import Plane


class Statuses:
    """A plane with replicas that write statuses to one API server."""

    def __init__(self, made: Plane, api: KubernetesApi) -> None:
        self.plane = made
        self.api = api
        self.edges: dict[str, StatusEdge] = {}
        self.writers: dict[str, Writer] = {}
        self.reported: list[ObjectEvent] = []

    async def install(self) -> None:
        """Install the definitions of the plane's kinds."""
        await install(self.api, *map(definition, KINDS))

    async def start(self, name: str, *, notices: ZoneNotices | None = None) -> StatusEdge:
        life = await self.plane.start(name, "api", "kubernetes", is_ready=False)
        replica, ranks = life.replica, self.plane.ranks(name)
        writer = self.writers[name] = Writer(self.api, RequestBudget(1_000.0), rng=self.plane.rng())
        caches = {kind: named_objects() for kind in KINDS}
        found = StatusEdge(
            replica,
            ranks,
            writer,
            caches,
            notices=notices,
            report=self.reported.append,
            now_ms=self.plane.now_ms,
        )
        for kind, cache in caches.items():
            watch = ListWatch(self.api, kind.path(), Custom, cache, rng=self.plane.rng())
            found.follow(kind.plural, partial(_is_current, watch))
            self.plane.spawn(name, watch.run())
        self.plane.spawn(name, writer.run())
        self.plane.spawn(name, found.run())
        self.edges[name] = found
        await replica.ready()
        return found

    async def objects(self, kind: Kind) -> dict[str, dict[str, Any]]:
        found = await get(self.api, kind.path())
        return {item["metadata"]["name"]: item for item in found["items"]}

    async def status(self, kind: Kind, name: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.objects(kind)).get(name, {}).get("status", {})
        return found

    async def policy(self, name: str, action: str = "drop") -> Any:
        envelope = self.plane.command(name, "ann")
        event = PolicySet(envelope, name, 1, action, "any", [], {}, {})
        answer = await next(iter(self.plane.replicas.values())).submit(FLEET_0, b"", event, timeout_s=30.0)
        return answer.outcome

    async def hold(self) -> int:
        """A held policy; the number of its hold."""
        for first in range(0, 400, 200):
            await self.plane.submit("z1", joined(self.plane.command("z1"), first))
        await self.plane.until(lambda: len(self.plane.fleet().members.rows) == 400)
        outcome = await self.policy("p")
        assert outcome.code == "held"
        number: int = outcome.result["hold"]
        return number

    async def approve(self, number: int) -> None:
        for user in ("bob", "cid"):
            row = self.plane.fleet().holds.rows[str(number)]
            event = HoldApproved(self.plane.command(str(number), user), number, row.hash)
            await next(iter(self.plane.replicas.values())).submit(FLEET_0, b"", event, timeout_s=30.0)


def _is_current(watch: ListWatch[Any]) -> bool:
    return watch.is_current


def joined(envelope: Envelope, first: int) -> NodesJoined:
    """200 nodes with an address each, in zone z1."""
    numbers = range(first, first + 200)
    addresses = b"".join((0x0A000001 + number).to_bytes(4, "big") for number in numbers)
    return NodesJoined(envelope, "z1", [f"c{number}" for number in numbers], [], [], addresses, b"", [], [])
