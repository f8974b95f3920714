"""Updates of the open page: the changes since the last update in their present state, and the limits of feeds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from deploy.settings.addresses import Address
from deploy.web.http import HttpServer
from deploy.web.metrics.exposition import Exposition
from deploy.web.page.feed import FEEDS_MAX, FEEDS_PER_VIEWER, Feeds
from deploy.web.page.live_view import LiveView
from deploy.web.page.routes import CALL, PageRoutes
from eventstore.replicas.beacons import Beacon
from schemas.api import dpuplane_pb2 as pb
from tests.support.eventually import until
from tests.support.served import Served, now_ms, served

PATIENCE_S = 60.0


@asynccontextmanager
async def looked_at(plane: Served) -> AsyncIterator[LiveView]:
    live_view = LiveView(plane.server.queries, plane.replica, CALL, now_ms)
    running = asyncio.create_task(live_view.run())
    try:
        with live_view.watching():
            yield live_view
    finally:
        running.cancel()


@asynccontextmanager
async def listening(*routes: web.AbstractRouteDef) -> AsyncIterator[str]:
    server = HttpServer(Address("127.0.0.1", 0), Exposition([]), lambda: "", routes=routes)
    try:
        yield f"http://{await server.start()}"
    finally:
        await server.stop()


def viewer(number: int) -> aiohttp.ClientSession:
    """A client session from a separate address."""
    connector = aiohttp.TCPConnector(limit=0, local_addr=(f"127.0.1.{number + 1}", 0))
    return aiohttp.ClientSession(connector=connector)


async def until_zone(live_view: LiveView, zone: str, nodes: int, since: int = 0) -> tuple[int, dict[str, Any]]:
    """Follow the live view until a zone has this number of nodes. Returns the last position and changes."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            since, told = await live_view.changes(since, timeout_s=1.0)
            if f"zone/{zone}" in told and told[f"zone/{zone}"][1] == nodes:
                return since, told


async def test_an_update_has_only_changed_rows_in_their_present_state(tmp_path: Path) -> None:
    async with served(tmp_path) as plane, looked_at(plane) as live_view:
        await plane.join("a", pb.NodeSpec(name="n1", addresses=["10.0.0.1"]))
        await plane.join("b", pb.NodeSpec(name="n2", addresses=["10.0.0.2"]))
        await until_zone(live_view, "a", 1)
        look, _ = await until_zone(live_view, "b", 1)
        await asyncio.sleep(0.3)  # until the versions of both tables are stable
        look, _ = await live_view.changes(look, timeout_s=0.0)
        for number in range(3, 13):
            await plane.join("a", pb.NodeSpec(name=f"n{number}", addresses=[f"10.0.0.{number}"]))
        _, told = await until_zone(live_view, "a", 11, look)
        assert [key for key in told if key.startswith("zone/a")] == ["zone/a"], "ten joins change one row"
        everything: dict[str, Any] = {}
        async with asyncio.timeout(PATIENCE_S):
            while everything.get("totals", {}).get("nodes") != 12:
                await asyncio.sleep(0.05)
                _, everything = await live_view.changes(0, timeout_s=0.0)
        assert {"zone/a", "zone/b", "totals", "holds", "alerts", "latency"} <= everything.keys()


async def test_no_change_is_sent_twice(tmp_path: Path) -> None:
    async with served(tmp_path) as plane, looked_at(plane) as live_view:
        await plane.join("a", pb.NodeSpec(name="n1", addresses=["10.0.0.1"]))
        look, _ = await until_zone(live_view, "a", 1)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                since, (look, told) = look, await live_view.changes(look, timeout_s=1.5)
                if look == since:
                    break
        assert told == {}


async def test_a_feed_sends_the_whole_state_first_and_then_changes(tmp_path: Path) -> None:
    async with served(tmp_path) as plane, looked_at(plane) as live_view:
        await plane.join("a", pb.NodeSpec(name="n1", addresses=["10.0.0.1"]))
        await until_zone(live_view, "a", 1)
        feeds = Feeds(lambda: live_view, now_ms)
        async with listening(web.get("/feed", feeds.serve)) as address, aiohttp.ClientSession() as session:
            async with session.get(f"{address}/feed") as response:
                assert response.headers["Content-Type"] == "text/event-stream"
                first = json.loads((await response.content.readuntil(b"\n\n")).removeprefix(b"data: "))
                assert [row[:2] for row in first["zones"]] == [["a", 1]]
                await plane.join("b", pb.NodeSpec(name="n2", addresses=["10.0.0.2"]))
                told: set[str] = set()
                async with asyncio.timeout(PATIENCE_S):
                    while "b" not in told:
                        message = json.loads((await response.content.readuntil(b"\n\n")).removeprefix(b"data: "))
                        told.update(row[0] for row in message.get("zones", ()))
            async with session.get(f"{address}/feed?at=1") as response:
                assert response.status == 400


async def test_feeds_beyond_the_limit_are_refused_with_one_sentence(tmp_path: Path) -> None:
    async with served(tmp_path) as plane, looked_at(plane) as live_view, AsyncExitStack() as stack:
        feeds = Feeds(lambda: live_view, now_ms)
        address = await stack.enter_async_context(listening(web.get("/feed", feeds.serve)))
        viewers = [await stack.enter_async_context(viewer(n)) for n in range(FEEDS_MAX // FEEDS_PER_VIEWER + 2)]
        opened = [await viewers[n // FEEDS_PER_VIEWER].get(f"{address}/feed") for n in range(FEEDS_MAX)]
        assert {response.status for response in opened} == {200}
        async with viewers[-1].get(f"{address}/feed") as response:
            assert response.status == 503
            assert (await response.json())["error"].startswith(f"feed: {FEEDS_MAX} pages are open")
        assert feeds.refused == 1
        opened[0].close()
        await until(lambda: feeds._open.total() == FEEDS_MAX - 1)
        async with viewers[-1].get(f"{address}/feed") as response:
            assert response.status == 200


async def test_the_number_of_feeds_per_viewer_is_limited(tmp_path: Path) -> None:
    async with served(tmp_path) as plane, looked_at(plane) as live_view:
        feeds = Feeds(lambda: live_view, now_ms)
        async with listening(web.get("/feed", feeds.serve)) as address, viewer(0) as greedy, viewer(1) as other:
            opened = [await greedy.get(f"{address}/feed") for _ in range(FEEDS_PER_VIEWER)]
            async with greedy.get(f"{address}/feed") as response:
                assert response.status == 503
                said = (await response.json())["error"]
                assert f"127.0.1.1' has {FEEDS_PER_VIEWER} pages open at this process already" in said
            async with other.get(f"{address}/feed") as response:
                assert response.status == 200
            for response in opened:
                response.close()
            await until(lambda: not feeds._open)


async def test_a_closed_feed_frees_its_slot_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot was once freed only by the next failed write, which on an idle plane comes seconds later."""
    monkeypatch.setattr("deploy.web.page.feed.SILENCE_S", 3_600.0)
    async with served(tmp_path) as plane, looked_at(plane) as live_view:
        feeds = Feeds(lambda: live_view, now_ms)
        async with listening(web.get("/feed", feeds.serve)) as address, viewer(0) as closing:
            response = await closing.get(f"{address}/feed")
            await response.content.readuntil(b"\n\n")
            response.close()
            await until(lambda: not feeds._open)


def beacon(name: str, roles: Sequence[str], **addresses: str) -> Beacon:
    return Beacon(replica=name, roles=list(roles), addresses=addresses, version="1", supports={})


async def test_a_process_without_the_fleet_fold_names_one_that_has_it() -> None:
    alive = [beacon("r", ["relay"], http="10.0.0.1:1"), beacon("a", ["api"], http="10.0.0.2:7081")]
    page = PageRoutes(("relay",), lambda: alive, now_ms)
    async with listening(*page.routes()) as address, aiohttp.ClientSession() as session:
        for path in ("/", "/page/data/span", "/page/feed"):
            async with session.get(address + path) as response:
                assert response.status == 421
                assert (await response.text()).endswith("use a process with role api: http://10.0.0.2:7081/\n")


async def test_a_page_requested_before_the_log_is_folded_says_so() -> None:
    page = PageRoutes(("api",), lambda: (), now_ms)
    async with listening(*page.routes()) as address, aiohttp.ClientSession() as session:
        async with session.get(f"{address}/page/data/fleet") as response:
            assert (response.status, (await response.json())["error"]) == (
                503,
                "page: the log is not folded yet; reload in a few seconds",
            )
        async with session.get(address) as response:
            assert response.status == 200
