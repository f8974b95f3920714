"""The compose file, up: nodes join through the published port, Prometheus counts them, and a broker may go away."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.support.compose import Composed, composed
from tests.support.planes import run
from tests.support.prometheus import Prometheus

UP_S = 400.0


@pytest.mark.timeout(900)
async def test_what_compose_brings_up_is_a_plane_that_is_watched(
    docker_host: str, image: str, kafka_image: str, prometheus_image: str
) -> None:
    images = {"DPUPLANE_IMAGE": image, "KAFKA_IMAGE": kafka_image, "PROMETHEUS_IMAGE": prometheus_image}
    with composed(docker_host, **images) as plane:
        api = plane.address("api", 7080)
        async with asyncio.timeout(UP_S):
            await _joined(api, "n1", "10.0.0.1")
            await _all_heard(api)
            await _all_scraped(plane)
        plane.compose("kill", "kafka-2")
        await _joined(api, "n2", "10.0.0.2")  # the first try may be on its way to the broker that is gone
        listed = (await run("nodes", "list", "--output", "json", server=api)).json()
        assert [node["name"] for node in listed["nodes"]] == ["n1", "n2"]
        await _page_is_there(plane)


async def _joined(api: str, node: str, address: str) -> None:
    """Until this node has joined: nobody may answer yet, and a command may be told that its outcome is unknown."""
    async with asyncio.timeout(UP_S):
        while (ran := await run("nodes", "join", node, "--zone", "a", "--address", address, server=api)).status:
            assert ran.status == 3, ran.stderr
            await asyncio.sleep(0.5)


async def _all_heard(api: str) -> None:
    """Until the process that serves the API has heard of the others."""
    while True:
        found = (await run("status", "--output", "json", server=api)).json()
        if sorted(role for replica in found["replicas"] for role in replica["roles"]) == [
            "api",
            "provisioner",
            "relay",
        ]:
            break
        await asyncio.sleep(0.5)
    assert found["log"]["bootstrap"] == ["kafka-1:9092", "kafka-2:9092", "kafka-3:9092"]


async def _all_scraped(plane: Composed) -> None:
    """Until Prometheus has the metrics of every process, and all of them count the node."""
    async with aiohttp.ClientSession() as session:
        prometheus = Prometheus(plane.address("prometheus", 9090), session)
        while True:
            up: list[Any] = await prometheus.series('up{job="dpuplane"} == 1')
            joined = await prometheus.series("count(dpuplane_nodes == 1) == 3")
            if len(up) == 3 and joined:
                break
            await asyncio.sleep(0.5)
        rules = await prometheus.ask("rules")
        assert rules["groups"], "the alerts are loaded"


async def _page_is_there(plane: Composed) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{plane.address('api', 7081)}/page/data/fleet") as response,
    ):
        assert (await response.json())["totals"]["nodes"] == 2
