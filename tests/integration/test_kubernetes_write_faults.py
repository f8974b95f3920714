"""Writes to a real API server that fail: each needed status is written once, and all are right at the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from deploy.process.plane import Plane
from drivers.kubernetes.client import REQUEST_S, connect
from drivers.kubernetes.status import EVERY_S
from eventstore.log import ZONES
from schemas.events import NodesJoined
from schemas.resources import KINDS
from schemas.resources.crds import definition
from schemas.resources.dpu_rack import DPU_RACK
from tests.integration.test_kubernetes_nodes import edge, until
from tests.integration.test_kubernetes_objects import command
from tests.support.kubernetes.answer_faults import AnswerFault, Refusal
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.faulting_proxy import Committed, FaultingProxy, faulting, repeated
from tests.support.kubernetes.requests import get, install

PATIENCE_S = 120.0

WRITE_FAULTS = {
    "z-429": Refusal(status=429, retry_after_s=1),
    "z-500": Refusal(status=500),
    "z-500-late": Refusal(status=500, is_committed=True),
    "z-503": Refusal(status=503, retry_after_s=1),
    "z-504-late": Refusal(status=504, is_committed=True),
    "z-409": Refusal(status=409),
    "z-cut": AnswerFault(cut_after=0.0),
    "z-cut-in-body": AnswerFault(cut_after=0.5),
    "z-slow": AnswerFault(delay_s=REQUEST_S + 1.0),
}
"""A fault of the first write of the status of a zone, by the zone."""


class Statuses:
    """A plane that writes statuses through a proxy."""

    def __init__(self, plane: Plane, proxy: FaultingProxy, api: Any) -> None:
        self.plane = plane
        self.proxy = proxy
        self.api = api
        """The API server itself."""

    async def join(self, zone: str, *names: str) -> None:
        event = NodesJoined(command("?ann", zone), zone, list(names), [], [], b"", b"", [], [])
        partition = self.plane.replica.partition_for(ZONES, zone)
        answer = await self.plane.replica.submit(partition, zone.encode(), event, timeout_s=30.0)
        assert answer.outcome.code == "done"

    async def nodes(self) -> dict[str, int]:
        """The number of nodes of each zone, as its object shows it."""
        found = await get(self.api, DPU_RACK.path())
        return {item["metadata"]["name"]: item.get("status", {}).get("nodes", -1) for item in found["items"]}

    async def until_shown(self, wanted: dict[str, int]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self.nodes() != wanted:
                await asyncio.sleep(0.1)

    def attempts(self, zone: str) -> list[int]:
        """The answers to the writes of a zone's status."""
        path = DPU_RACK.path(name=zone, subresource="status")
        return [seen.status for seen in self.proxy.requests if seen.path == path]


@asynccontextmanager
async def statuses(folder: Path, cluster: ControlPlane) -> AsyncIterator[Statuses]:
    async with faulting(cluster) as proxy, connect(str(cluster.kubeconfig())) as api:
        await install(api, *map(definition, KINDS))
        kubeconfig = cluster.kubeconfig(server=proxy.url)
        async with edge(folder / "plane", kubeconfig, kubernetes_status=True) as plane:
            await until(lambda: proxy.watches(DPU_RACK.plural) == 1)
            yield Statuses(plane, proxy, api)


def writes(committed: Iterable[Committed], zone: str) -> Counter[str]:
    """The committed writes of the object of a zone, by method."""
    return Counter(each.method for each in committed if each.object["metadata"]["name"] == zone)


async def test_a_status_is_written_once_whatever_becomes_of_the_first_attempt(
    tmp_path: Path, own_control_plane: ControlPlane
) -> None:
    async with statuses(tmp_path, own_control_plane) as found:
        for zone, fault in WRITE_FAULTS.items():
            found.proxy.inject(fault, "PATCH", within=f"/{zone}/")
        found.proxy.inject(Refusal(status=504, is_committed=True), "POST", within=DPU_RACK.plural, times=3)
        found.proxy.inject(Refusal(status=429, retry_after_s=1), "POST", within=DPU_RACK.plural, times=3)
        for zone in WRITE_FAULTS:
            await found.join(zone, f"{zone}-1", f"{zone}-2")
        await found.until_shown(dict.fromkeys(WRITE_FAULTS, 2))
        await asyncio.sleep(REQUEST_S + 3.0)
        assert not found.proxy.is_faulty, "every fault was met"
        for zone, fault in WRITE_FAULTS.items():
            assert writes(found.proxy.committed, zone) == {"POST": 1, "PATCH": 1}, zone
            is_committed = not isinstance(fault, Refusal) or fault.is_committed
            assert len(found.attempts(zone)) == (1 if is_committed else 2), zone
        (kubernetes,) = found.plane.parts.kubernetes
        assert kubernetes.writer is not None
        counts = kubernetes.writer.counts
        assert counts.conflicts == 1 and counts.throttled and counts.unknown >= 4 and not counts.given_up
        assert not repeated(found.proxy.committed)


async def test_a_server_that_was_away_stops_nothing_and_gets_one_write_per_changed_object(
    tmp_path: Path, own_control_plane: ControlPlane
) -> None:
    zones = [f"z{number}" for number in range(5)]
    changed = zones[:3]
    async with statuses(tmp_path, own_control_plane) as found:
        for zone in zones:
            await found.join(zone, f"{zone}-a")
        await found.until_shown(dict.fromkeys(zones, 1))
        found.proxy.go_down()
        for zone in changed:
            await found.join(zone, f"{zone}-b", f"{zone}-c")
        await until(lambda: len(found.plane.states.fleet.members.rows) == len(zones) + 2 * len(changed))
        assert await is_ready(found.plane)
        await until(lambda: found.proxy.injected["down"] > 3)
        before = len(found.proxy.committed)
        found.proxy.clear()
        await found.until_shown({zone: 3 if zone in changed else 1 for zone in zones})
        await asyncio.sleep(EVERY_S + 2.0)
        for zone in zones:
            assert writes(found.proxy.committed[before:], zone) == ({"PATCH": 1} if zone in changed else {}), zone
        assert await is_ready(found.plane)


async def is_ready(plane: Plane) -> bool:
    url = f"http://{plane.addresses['http']}/readyz"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status == 200
