"""Node objects on a real API server for benches: their bodies, and their creation by many requests at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from schemas.kubernetes.objects import RACK_LABEL
from tests.support.kubernetes.cluster import ControlPlane

AT_ONCE = 32
IMAGES = 20
"""Images in the status of a Node; a kubelet reports up to 50 of them."""


def rack_name(number: int) -> str:
    return f"rack-{number:03}"


def node_name(number: int) -> str:
    return f"node-{number:06}"


def node(number: int, racks: int, images: int) -> dict[str, Any]:
    """A Node as its kubelet registers it, in one rack after the other."""
    address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    digest = f"{number:064x}"
    sizes = [
        {"names": [f"registry.example.com/team/service-{each}@sha256:{digest}"], "sizeBytes": 50_000_000 + each}
        for each in range(images)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node_name(number), "labels": {RACK_LABEL: rack_name(number % racks)}},
        "status": {"addresses": [{"type": "InternalIP", "address": address}], "images": sizes},
    }


async def create_nodes(cluster: ControlPlane, numbers: range, *, racks: int, images: int = 0) -> None:
    """Create Nodes, 32 requests at a time."""
    pending = iter(numbers)

    async def some(session: aiohttp.ClientSession) -> None:
        for number in pending:
            async with session.post(f"{cluster.url}/api/v1/nodes", json=node(number, racks, images)) as response:
                assert response.status == 201, await response.text()

    async with cluster.session() as session:
        await asyncio.gather(*(some(session) for _ in range(AT_ONCE)))
