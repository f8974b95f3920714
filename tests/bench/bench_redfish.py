"""1,000 BMCs that speak Redfish over HTTPS are installed at once by one process of a plane, against sushy in threads.

The plane drives every step of a DPU, from the first contact to Ready: it pins the certificate, replaces the factory
password, reads and changes settings, installs, restarts and verifies, each step in a session of its own, and keeps it
all in its log. It also sends the image to each DPU over TLS. So it makes more requests than the peer, which only asks
for the installation and follows it (sushy_installs.py). The CPU time of the BMCs, in another process, does not count.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import uvloop

from commands.client.client import PlaneClient
from projections.resources import kinds
from schemas.api import dpuplane_pb2 as pb
from tests.bench.apart import apart, serving
from tests.bench.bench_rollout import NAMESPACE, resource_spec
from tests.bench.figures import Figure
from tests.bench.memory import cpu_seconds, open_sockets, peak_bytes
from tests.bench.redfish_bmcs import IMAGE, Counts, addresses, bmcs
from tests.bench.sushy_installs import Installed, install_all
from tests.bench.workload import now_ms

BMCS = 1_000
ZONE = "zone"
PASSWORD = "Correct-Horse-9"
COMMANDS_AT_ONCE = 50
CHECK_S = 1.0
LIST_EACH = 5
"""DPUs are listed once in so many checks: a list of all takes the plane a tenth of a second."""
PATIENCE_S = 900.0
AFTER_S = 25.0
"""How long after the end connections are counted: idle ones are kept for 15 s."""


class Driven(NamedTuple):
    """The results of one client: what it took, and what reached the BMCs."""

    cost: Installed
    requests: int
    handshakes: int
    busiest_per_s: float
    sockets_after: int = 0


def figures() -> list[Figure]:
    return compared(BMCS)


def compared(count: int) -> list[Figure]:
    """The figures of so many BMCs."""
    ours, theirs = _plane(count), _sushy(count)
    name, peer = f"{count:,} BMCs installed at once over Redfish", "sushy in threads"
    rows = [
        ("time", "s", ours.cost.took_s, theirs.cost.took_s),
        ("requests to each", "", ours.requests / count, theirs.requests / count),
        ("requests a second at its busiest", "/s", ours.busiest_per_s, theirs.busiest_per_s),
        ("TLS handshakes with each", "", ours.handshakes / count, theirs.handshakes / count),
        ("CPU", "s", ours.cost.cpu_s, theirs.cost.cpu_s),
        (
            "share of a core",
            "%",
            100 * ours.cost.cpu_s / ours.cost.took_s,
            100 * theirs.cost.cpu_s / theirs.cost.took_s,
        ),
        ("CPU of a request", "ms", 1e3 * ours.cost.cpu_s / ours.requests, 1e3 * theirs.cost.cpu_s / theirs.requests),
        ("sockets at most", "", ours.cost.sockets, theirs.cost.sockets),
        ("memory at its peak", "MB", ours.cost.peak_bytes / 1e6, theirs.cost.peak_bytes / 1e6),
    ]
    return [
        Figure(f"{name}: requests a second", ours.requests / ours.cost.took_s, "/s"),
        *(Figure(f"{name}: {what}", value, unit, other, peer, better="lower") for what, unit, value, other in rows),
        Figure(f"{name}: sockets {AFTER_S:.0f} s after the end", ours.sockets_after, "", aim=20.0, better="lower"),
    ]


def _plane(count: int) -> Driven:
    with _folder() as folder:
        (folder / "password").write_text(PASSWORD)
        options = ["--data", str(folder / "plane"), "--image-hosts", "127.0.0.1"]
        options += ["--image-streams", str(count), "--bmc-password-file", str(folder / "password")]
        with serving(*options) as plane, bmcs(folder, count, "", folder / "plane" / "images" / "tls.pem") as counts:
            return uvloop.run(_installed(plane, folder, counts))


async def _installed(plane: dict[str, str], folder: Path, counts: Counts) -> Driven:
    pid, rng = int(plane["pid"]), random.Random(8)
    async with PlaneClient([plane["api"]], timeout_s=60.0, now_ms=now_ms, rng=rng) as client:
        await _keep_image(client, (folder / IMAGE).read_text())
        dpus = await _registered(client, addresses(folder))
        idle, cpu_s, began = open_sockets(pid), cpu_seconds(pid), time.perf_counter()
        provision = pb.RequestLifecycleRequest.VERB_PROVISION
        await _all(
            client.command(
                "RequestLifecycle", pb.RequestLifecycleRequest(zone=ZONE, dpu=dpu, verb=provision, image=IMAGE)
            )
            for dpu in dpus
        )
        sockets = 0
        async with asyncio.timeout(PATIENCE_S):
            checks = 0
            while checks % LIST_EACH or await _ready(client) < len(dpus):
                checks += 1
                sockets = max(sockets, open_sockets(pid) - idle)
                await asyncio.sleep(CHECK_S)
        took_s, cpu_s = time.perf_counter() - began, cpu_seconds(pid) - cpu_s
        reached = (counts.requests.value, counts.handshakes.value, counts.busiest_per_s())
        await asyncio.sleep(AFTER_S)
        return Driven(Installed(took_s, cpu_s, peak_bytes(pid), sockets), *reached, max(0, open_sockets(pid) - idle))


async def _registered(client: PlaneClient, urls: list[str]) -> list[str]:
    """Register the DPUs in a zone that may install all at once. Returns their names."""
    names = [f"d{number:04}" for number in range(len(urls))]
    await client.command(
        "UpdateZone", pb.UpdateZoneRequest(zone=ZONE, parallel_installs=len(urls), unavailable_nodes=len(urls))
    )
    await _all(
        client.command(
            "RegisterDpu",
            pb.RegisterDpuRequest(
                zone=ZONE,
                dpu=name,
                node=f"n-{name}",
                serial=f"B{name[1:]}",
                bmc_address=url.replace("https:", "redfish:"),
            ),
        )
        for name, url in zip(names, urls, strict=True)
    )
    return names


async def _keep_image(client: PlaneClient, url: str) -> None:
    """Have the plane download the image, which DPUs then fetch from the plane."""
    await client.command(
        "ApplyResources", pb.ApplyResourcesRequest(resources=[resource_spec(kinds.BFB, IMAGE, {"url": url})])
    )
    about = pb.GetResourceRequest(kind=kinds.BFB, namespace=NAMESPACE, name=IMAGE)
    async with asyncio.timeout(PATIENCE_S):
        while (await client.query("GetResource", about)).phase != "Ready":
            await asyncio.sleep(CHECK_S)


async def _ready(client: PlaneClient) -> int:
    """The number of DPUs that are ready."""
    wanted = pb.ListDpusRequest(zone=ZONE, phase="Ready")
    return sum([len(page.dpus) async for page in client.pages("ListDpus", wanted)])


async def _all(commands: Iterable[Awaitable[pb.CommandResult]]) -> None:
    """Send many commands, some at a time."""
    slots = asyncio.Semaphore(COMMANDS_AT_ONCE)

    async def send(command: Awaitable[pb.CommandResult]) -> None:
        async with slots:
            await command

    await asyncio.gather(*map(send, commands))


def _sushy(count: int) -> Driven:
    with _folder() as folder, bmcs(folder, count, PASSWORD, None) as counts:
        cost = apart(install_all, folder, PASSWORD)
        return Driven(cost, counts.requests.value, counts.handshakes.value, counts.busiest_per_s())


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
