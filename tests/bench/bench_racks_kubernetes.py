"""10,000 Nodes join 200 racks: a DPURack for each rack, beside objects that list names, on one kube-apiserver.

The Nodes are created at once, 32 requests at a time. A first round of them, which one watch follows, gives what the
Nodes cost without racks, and is subtracted. The peers are controllers in this process (tests/bench/naive_racks.py):
each rack's object lists every node of the fleet, or only those of the rack. The plane is a process with an embedded
log. After the last rack is complete, two more seconds count.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

import msgspec
import uvloop

from commands.kubernetes.list_watch import ListWatch
from drivers.kubernetes.client import connect
from projections.kubernetes.object_cache import ObjectCache
from schemas.kubernetes.objects import Fields, Metadata, Node
from schemas.resources import KINDS
from schemas.resources.crds import definition
from schemas.resources.dpu_rack import DPU_RACK
from tests.bench.apart import serving
from tests.bench.api_server_costs import Costs, costs
from tests.bench.figures import Figure
from tests.bench.kubernetes_nodes import create_nodes
from tests.bench.naive_racks import NaiveRacks
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.requests import create_namespace, install

NODES = 10_000
RACKS = 200
PATIENCE_S = 420.0
SETTLE_S = 2.0
WARM_S = 5.0
"""Time for the edge to connect and to list."""
LISTS, OWN, PLANE = "lists of all nodes", "lists of own nodes", "DPURack"
CONFIG_MAPS = "configmaps"


class Joined(NamedTuple):
    """One round of joins: the time to the last rack from the first Node on, and the costs of the control plane."""

    took_s: float
    spent: Costs


class _Status(Fields, frozen=True):
    nodes: int = 0


class _Rack(Fields, frozen=True):
    metadata: Metadata
    status: _Status = msgspec.field(default_factory=_Status)


T = TypeVar("T", Node, _Rack)


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        cluster = ControlPlane(Path(folder) / "kubernetes")
        try:
            found = uvloop.run(_naive(cluster))
            edge = ("--kubeconfig", str(cluster.kubeconfig()), "--source", "east", "--kubernetes-status")
            with serving("--data", str(Path(folder) / "plane"), *edge):
                time.sleep(WARM_S)
                found[PLANE] = uvloop.run(_round(cluster, DPU_RACK.plural, lambda: _all_shown(cluster)))
        finally:
            cluster.stop()
    return _figures(found)


async def _naive(cluster: ControlPlane) -> dict[str, Joined]:
    """The cost of the Nodes alone, and the two naive forms."""
    await cluster.start()
    async with connect(str(cluster.kubeconfig())) as api:
        await install(api, *map(definition, KINDS))
        await create_namespace(api, OWN.replace(" ", "-"))
        await create_namespace(api, LISTS.replace(" ", "-"))
    found = {"": await _round(cluster, CONFIG_MAPS, lambda: _all_watched(cluster))}
    for name in (OWN, LISTS):
        naive = NaiveRacks(name.replace(" ", "-"), NODES, RACKS, own_only=name == OWN)
        found[name] = await _round(cluster, CONFIG_MAPS, lambda naive=naive: naive.run(cluster))  # type: ignore[misc]
        print(f"{name}: {naive.flushes} flushes, {naive.writes} writes", file=sys.stderr, flush=True)
    return found


async def _round(cluster: ControlPlane, resource: str, is_complete: Callable[[], Awaitable[None]]) -> Joined:
    """Create the Nodes while something follows them, and delete them once it is complete."""
    before, began_s = await costs(cluster, resource), time.perf_counter()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        follows = asyncio.ensure_future(is_complete())
        tasks.create_task(create_nodes(cluster, range(NODES), racks=RACKS))
        await follows
    took_s = time.perf_counter() - began_s
    await asyncio.sleep(SETTLE_S)
    spent = (await costs(cluster, resource)).since(before)
    print(f"{resource}: {took_s:.1f} s, {spent}", file=sys.stderr, flush=True)
    async with cluster.session() as session, session.delete(f"{cluster.url}/api/v1/nodes") as response:
        assert response.status == 200, await response.text()
    return Joined(took_s, spent)


async def _all_shown(cluster: ControlPlane) -> None:
    """Return when the DPURack of every rack shows all of its nodes."""
    async with _watched(cluster, DPU_RACK.path(), _Rack) as cache:
        while sum(rack.status.nodes == NODES // RACKS for rack in cache.objects.values()) < RACKS:
            await asyncio.sleep(0.05)


async def _all_watched(cluster: ControlPlane) -> None:
    """Return when a watch has shown all Nodes."""
    async with _watched(cluster, "/api/v1/nodes", Node) as cache:
        while len(cache.objects) < NODES:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def _watched(cluster: ControlPlane, path: str, kind: type[T]) -> AsyncIterator[ObjectCache[T]]:
    cache: ObjectCache[T] = ObjectCache(lambda item: item.metadata.name)
    async with connect(str(cluster.kubeconfig())) as api:
        watch = asyncio.create_task(ListWatch(api, path, kind, cache, rng=Random(2)).run())
        try:
            yield cache
        finally:
            watch.cancel()


def _figures(found: dict[str, Joined]) -> list[Figure]:
    alone, ours = found[""].spent, found[PLANE]
    figures = [Figure(f"{NODES:,} Nodes, created by 32 requests at a time", found[""].took_s, "s", better="lower")]
    for name, aims in ((LISTS, (1 / 20, 1 / 10)), (OWN, (None, None))):
        peer = found[name]
        about = f"{NODES:,} Nodes join {RACKS} racks"
        rows = (
            ("bytes that etcd wrote beyond the Nodes", "bytes", "etcd_bytes", aims[0]),
            ("CPU of the API server beyond the Nodes", "s", "api_cpu_s", aims[1]),
            ("CPU of etcd beyond the Nodes", "s", "etcd_cpu_s", None),
        )
        for what, unit, field, share in rows:
            value, other = (getattr(each.spent, field) - getattr(alone, field) for each in (ours, peer))
            aim = other * share if share is not None else None
            figures.append(Figure(f"{about}: {what}", value, unit, other, name, aim, "lower"))
        writes = ours.spent.count("2"), peer.spent.count("2")
        figures.append(Figure(f"{about}: writes", writes[0], "writes", writes[1], name, better="lower"))
        figures.append(Figure(f"{about}: until the last rack", ours.took_s, "s", peer.took_s, name, better="lower"))
    return figures
