"""100,000 Nodes of a real API server, listed in pages by the edge of a plane; and a burst of 10,000 more.

The memory is that of the whole process, with every role and an embedded log. A Node has 20 images, 3 kB in all. The
time to create the Nodes is that of the API server and of this process, which share the machine.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import aiohttp
import uvloop

from tests.bench.apart import serving
from tests.bench.figures import Figure
from tests.bench.kubernetes_nodes import IMAGES, create_nodes
from tests.bench.memory import peak_bytes
from tests.support.kubernetes.cluster import ControlPlane

NODES = 100_000
BURST = 10_000
RACKS = 200
POLL_S = 0.25
PATIENCE_S = 600.0
GIGABYTE = 1_000_000_000.0


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        cluster = ControlPlane(Path(folder) / "kubernetes")
        try:
            asyncio.run(cluster.start())
            created_s = _seconds(cluster, range(NODES))
            edge = ("--kubeconfig", str(cluster.kubeconfig()), "--source", "east")
            began_s = time.perf_counter()
            with serving("--data", str(Path(folder) / "plane"), *edge) as served:
                uvloop.run(_all_joined(served["http"], NODES))
                listed_s = time.perf_counter() - began_s
                listed_bytes = peak_bytes(int(served["pid"]))
                began_s = time.perf_counter()
                burst_s = _seconds(cluster, range(NODES, NODES + BURST))
                uvloop.run(_all_joined(served["http"], NODES + BURST))
                joined_s = time.perf_counter() - began_s
                burst_bytes = peak_bytes(int(served["pid"]))
        finally:
            cluster.stop()
    about = f"{NODES:,} Nodes"
    return [
        Figure(f"{about}, created by 32 requests at a time", NODES / created_s, "Nodes/s"),
        Figure(f"{about}, from the start of the process to the last in fleet", listed_s, "s", better="lower"),
        Figure(f"{about}, peak memory of the process", listed_bytes, "bytes", aim=GIGABYTE, better="lower"),
        Figure(f"{BURST:,} more Nodes, from the first request to the last in fleet", joined_s, "s", better="lower"),
        Figure(
            f"{BURST:,} more Nodes, from the last answer to the last in fleet", joined_s - burst_s, "s", better="lower"
        ),
        Figure(f"{BURST:,} more Nodes, peak memory of the process", burst_bytes, "bytes", aim=GIGABYTE, better="lower"),
    ]


def _seconds(cluster: ControlPlane, numbers: range) -> float:
    began_s = time.perf_counter()
    uvloop.run(create_nodes(cluster, numbers, racks=RACKS, images=IMAGES))
    return time.perf_counter() - began_s


async def _all_joined(http: str, nodes: int) -> None:
    """Return when the fleet fold of a process has so many members."""
    async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"http://{http}/metrics") as response:
                lines = (await response.text()).splitlines()
            found = next((line for line in lines if line.startswith("dpuplane_members")), "x 0")
            if float(found.rpartition(" ")[2]) >= nodes:
                return
            await asyncio.sleep(POLL_S)
