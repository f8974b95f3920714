"""The running compose file: nodes join through the published port, Prometheus counts them, and a broker may stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from tests.support.compose import Composed, composed
from tests.support.planes import run
from tests.support.prometheus import Prometheus

UP_S = 300.0


@pytest.mark.timeout(1500)
async def test_the_compose_file_starts_a_monitored_plane(
    docker_host: str, image: str, kafka_image: str, prometheus_image: str
) -> None:
    images = {"PLANE_IMAGE": image, "KAFKA_IMAGE": kafka_image, "PROMETHEUS_IMAGE": prometheus_image}
    with composed(docker_host, **images) as plane:
        api = plane.address("api", 7080)
        await _joined(api, "n1", "10.0.0.1")
        await _wait_for_beacons(api)
        await _wait_for_metrics(plane)
        plane.compose("kill", "kafka-2")
        await _joined(api, "n2", "10.0.0.2")  # the first attempt may wait for the broker that is gone
        listed = (await run("nodes", "list", "--output", "json", server=api)).json()
        assert [node["name"] for node in listed["nodes"]] == ["n1", "n2"]
        await _page_is_there(plane)


async def _joined(api: str, node: str, address: str) -> None:
    """Repeat a join until it succeeds. At first no server may respond, or the outcome may be unknown."""

    async def look() -> tuple[bool, str]:
        ran = await run("nodes", "join", node, "--zone", "a", "--address", address, server=api)
        assert ran.status in (0, 3), ran.stderr
        return ran.status == 0, ran.stderr

    await _seen(look)


async def _wait_for_beacons(api: str) -> None:
    """Wait until the process with the API has beacons of all others."""

    async def look() -> tuple[bool, object]:
        found = (await run("status", "--output", "json", server=api)).json()
        assert found["log"]["bootstrap"] == ["kafka-1:9092", "kafka-2:9092", "kafka-3:9092"]
        roles = [role for replica in found["replicas"] for role in replica["roles"]]
        return sorted(roles) == ["api", "decisions", "provisioner", "relay"], found["replicas"]

    await _seen(look)


async def _wait_for_metrics(plane: Composed) -> None:
    """Wait until Prometheus has metrics of every process, and all of them count the node."""
    async with aiohttp.ClientSession() as session:
        prometheus = Prometheus(plane.address("prometheus", 9090), session)

        async def look() -> tuple[bool, object]:
            up = await prometheus.series('up{job="dpuplane"}')
            nodes = await prometheus.series("dpuplane_nodes")
            return _values(up) == _values(nodes) == ["1", "1", "1", "1"], (up, nodes)

        await _seen(look)
        rules = await prometheus.ask("rules")
        assert rules["groups"], "Prometheus has loaded no alerts"


def _values(series: list[Any]) -> list[str]:
    return [each["value"][1] for each in series]


async def _seen(look: Callable[[], Awaitable[tuple[bool, object]]]) -> None:
    """Poll until the condition holds. On a timeout the test fails with the last result."""
    give_up_at = time.monotonic() + UP_S
    while True:
        is_so, seen = await look()
        if is_so:
            return
        assert time.monotonic() < give_up_at, seen
        await asyncio.sleep(0.5)


async def _page_is_there(plane: Composed) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{plane.address('api', 7081)}/page/data/fleet") as response,
    ):
        assert (await response.json())["totals"]["nodes"] == 2
