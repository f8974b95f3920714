"""Lists and watches of a real API server that fail on the way: no join is lost, and no node leaves without evidence."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from commands.kubernetes.list_watch import IDLE_S
from deploy.process.plane import Plane
from eventstore.log import FLEET_0
from schemas.events import HoldApproved
from tests.integration.test_kubernetes_nodes import Nodes, edge, node, until, zones_of
from tests.integration.test_kubernetes_objects import command
from tests.support.kubernetes.answer_faults import AnswerFault, Refusal
from tests.support.kubernetes.api_server import ApiServer
from tests.support.kubernetes.faulting_proxy import FaultingProxy, faulting

NODES = "/api/v1/nodes"


class Scene(NamedTuple):
    """A plane whose edge reaches its API server through a proxy. `nodes` writes to the server directly."""

    plane: Plane
    proxy: FaultingProxy
    nodes: Nodes

    @property
    def edge(self) -> Any:
        (found,) = self.plane.parts.kubernetes
        return found

    @property
    def counts(self) -> Any:
        """The counts of the list-watch of Nodes."""
        return self.edge.watches["nodes"].counts

    def names(self) -> set[str]:
        """The nodes of the source in fleet that are not held."""
        return {name.removeprefix("east/") for name in zones_of(self.plane)}

    def zone_names(self) -> set[str]:
        return {name.removeprefix("east/") for zone in self.plane.states.all_zones() for name in zone.nodes.rows}

    async def relist(self) -> None:
        """Let the edge list the Nodes again. Returns when the list is complete."""
        before = self.counts.lists
        await self.proxy.expire_watches(NODES)
        await until(lambda: self.counts.lists > before)

    async def metric(self, name: str) -> float:
        """The value of a metric of the source, over HTTP."""
        url = f"http://{self.plane.addresses['http']}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            lines = (await response.text()).splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{"))


@asynccontextmanager
async def scene(folder: Path, cluster: ApiServer, count: int, *, is_ready: bool = True) -> AsyncIterator[Scene]:
    """A scene with this many Nodes n0, n1, ... in two racks; with `is_ready`, all of them have joined."""
    async with cluster.session() as session, faulting(cluster) as proxy:
        nodes = Nodes(cluster, session)
        await nodes.delete_all()
        await nodes.create(*made(count))
        async with edge(folder / "plane", cluster.kubeconfig(server=proxy.url)) as plane:
            found = Scene(plane, proxy, nodes)
            if is_ready:
                await until(lambda: len(zones_of(plane)) == count)
            yield found


def made(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [node(f"n{i}", f"rack-{i % 2}", f"10.3.{i >> 8}.{i & 255}") for i in range(first, first + count)]


def named(count: int) -> set[str]:
    return {f"n{i}" for i in range(count)}


async def test_an_empty_list_withdraws_nothing_and_is_reported(
    tmp_path: Path, control_plane: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path, control_plane, 30) as found:
        found.proxy.show(NODES, lambda item: False)
        with caplog.at_level(logging.WARNING):
            await found.relist()
            await until(lambda: found.edge.nodes.retained == 30)
        assert "it lists no Node at all" in caplog.text
        assert await found.metric("dpuplane_kubernetes_retained_nodes") == 30
        await found.nodes.create(*made(1, 30))
        await until(lambda: found.names() == named(31))
        found.proxy.show_all()
        await found.relist()
        await until(lambda: found.edge.nodes.retained == 0)
        assert found.names() == found.zone_names() == named(31)


async def test_a_shrunken_list_is_held_and_released_by_two_people_only(
    tmp_path: Path, control_plane: ApiServer
) -> None:
    async with scene(tmp_path, control_plane, 300) as found:
        fleet = found.plane.states.fleet
        hidden = {f"n{i}" for i in range(180)}
        for is_released in (False, True):
            found.proxy.show(NODES, lambda item: item["metadata"]["name"] not in hidden)
            await found.relist()
            await until(lambda: bool(fleet.holds.rows))
            await until(lambda: found.zone_names() == found.names() == named(300) - hidden)
            held = {name.removeprefix("east/") for name, row in fleet.members.rows.items() if row.held}
            assert held and held <= hidden
            if is_released:
                break
            found.proxy.show_all()
            await found.relist()
            await until(lambda: not fleet.holds.rows and found.names() == named(300))
        for user in ("bob", "cid"):
            for hold in list(fleet.holds.rows.values()):
                event = HoldApproved(command(f"operator/{user}"), hold.id, hold.hash)
                await found.plane.replica.submit(FLEET_0, b"", event, timeout_s=30.0)
        await until(lambda: not fleet.holds.rows)
        assert found.names() == named(300) - hidden == {name.removeprefix("east/") for name in fleet.members.rows}
        found.proxy.show_all()
        await found.relist()
        await until(lambda: found.names() == named(300))


async def test_a_list_whose_pages_fail_is_never_taken_for_complete(tmp_path: Path, control_plane: ApiServer) -> None:
    async with scene(tmp_path, control_plane, 1_100) as found:
        lists = found.counts.lists
        for fault in (
            Refusal(status=410),
            Refusal(status=503),
            Refusal(status=504),
            AnswerFault(cut_after=0.5),
            AnswerFault(cut_after=0.0),
        ):
            found.proxy.inject(fault, "GET", within="continue=")
        await found.nodes.delete("n7")
        await found.relist()
        await until(lambda: found.names() == named(1_100) - {"n7"})
        assert found.proxy.injected.keys() >= {"410", "503", "504", "cut answer"}
        assert found.counts.lists == lists + 1, "no list that broke off was complete"
        assert found.edge.nodes.left == 1


async def test_a_pause_that_the_server_asks_for_is_kept(tmp_path: Path, control_plane: ApiServer) -> None:
    async with scene(tmp_path, control_plane, 3) as found:
        found.proxy.inject(Refusal(status=429, retry_after_s=3), "GET", within=NODES)
        found.proxy.inject(Refusal(status=503, retry_after_s=2), "GET", within=NODES)
        found.proxy.requests.clear()
        await found.relist()
        times_s = [seen.time_s for seen in found.proxy.requests if seen.method == "GET"]
        pauses_s = [later - earlier for earlier, later in itertools.pairwise(times_s)]
        assert [seen.status for seen in found.proxy.requests][:3] == [429, 503, 200]
        assert pauses_s[0] >= 3.0 and pauses_s[1] >= 2.0
        assert found.names() == named(3)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
async def test_nodes_that_come_and_go_under_broken_watches_end_as_the_server_has_them(
    tmp_path: Path, control_plane: ApiServer, seed: int
) -> None:
    draws, present, number, leaves = random.Random(seed), named(200), 200, 0
    async with scene(tmp_path, control_plane, 200) as found:
        found.proxy.random_fault = lambda method, target: draws.choice(READ_FAULTS) if draws.random() < 0.4 else None
        while found.proxy.injected.total() < 20:
            if draws.random() < 0.5 and leaves < LEAVES_MAX:
                leaves += 1
                gone = draws.choice(sorted(present))
                await found.nodes.delete(gone)
                present.discard(gone)
            else:
                await found.nodes.create(*made(1, number))
                present.add(f"n{number}")
                number += 1
            if draws.random() < 0.2:
                found.proxy.cut_watches()
            elif draws.random() < 0.1:
                await found.proxy.expire_watches()
            await asyncio.sleep(draws.uniform(0.0, 0.3))
            assert not found.plane.states.fleet.holds.rows
        found.proxy.clear()
        await until(lambda: found.names() == present)
        await until(lambda: found.zone_names() == present)


LEAVES_MAX = 50
"""More leaves within ten minutes would be held. A slow machine needs more steps until enough faults were injected."""
READ_FAULTS = (
    Refusal(status=410),
    Refusal(status=429, retry_after_s=1),
    Refusal(status=500),
    Refusal(status=503),
    AnswerFault(cut_after=0.5),
    AnswerFault(delay_s=0.3),
)


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_watch_that_sends_nothing_is_opened_again(tmp_path: Path, control_plane: ApiServer) -> None:
    async with scene(tmp_path, control_plane, 3) as found:
        lists, watches = found.counts.lists, found.counts.watches
        found.proxy.stall(NODES)
        await found.nodes.create(*made(1, 3))
        await found.nodes.delete("n0")
        await asyncio.sleep(2.0)
        assert found.names() == named(3), "the stalled watch shows neither change"
        assert found.proxy.watches(NODES) == 1
        found.proxy.clear()
        async with asyncio.timeout(IDLE_S + 30.0):
            while found.names() != {"n1", "n2", "n3"}:
                await asyncio.sleep(0.1)
        assert await found.metric("dpuplane_kubernetes_watch_stalls_total") == 1
        assert (found.counts.lists, found.counts.watches) == (lists, watches + 1), "no list was needed"
