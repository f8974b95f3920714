"""10,000 hosts with a DPU each, as DPF manifests of a plane without Kubernetes: applied, shown, planned and changed.

Every figure is taken at the API of a plane in this process. The longest stretch of each read is the longest CPU time
for which the loop served no other call: it includes the folding of records and the saving of tables, as in production.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import uvloop

from commands.client.client import PlaneClient
from deploy.process.plane import Plane
from deploy.process.run import tune_garbage_collector
from projections.resources import kinds
from schemas.api import dpuplane_pb2 as pb
from tests.bench.figures import Figure
from tests.bench.loop_lag import loop_lag
from tests.bench.memory import resident_bytes
from tests.bench.planes import serving_plane
from tests.bench.workload import now_ms

HOSTS = 10_000
PER_COMMAND = 500
NAMESPACE = "dpf"
SET = "all"
STRETCH_AIM_MS = 50.0
PLAN_AIM_S = 1.0
LABEL_CHANGES = 100


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        return uvloop.run(_measure(Path(folder) / "plane"))


async def _measure(data: Path) -> list[Figure]:
    async with serving_plane(data) as plane:
        tune_garbage_collector()
        client = PlaneClient([plane.addresses["api"]], timeout_s=60.0, now_ms=now_ms, rng=random.Random(5))
        try:
            return [*await _applied(plane, client), *await _read(client)]
        finally:
            await client.close()


async def _applied(plane: Plane, client: PlaneClient) -> list[Figure]:
    memory, began_s = resident_bytes(), time.perf_counter()
    for part in _in_parts(_objects()):
        await client.command("ApplyResources", pb.ApplyResourcesRequest(resources=part))
    found = await client.query("GetResource", _name(kinds.DPU_SET, SET))
    took_s = time.perf_counter() - began_s
    assert [group.count for group in found.children] == [HOSTS]
    size = sum(path.stat().st_size for path in (plane.settings.data or Path()).rglob("*") if path.is_file())
    return [
        Figure("10,000 hosts applied until all DPUs are wanted", took_s, "s", better="lower"),
        Figure("log and saved state, bytes per host", size / HOSTS, "B", better="lower"),
        Figure("memory per host", (resident_bytes() - memory) / HOSTS, "B", better="lower"),
    ]


async def _read(client: PlaneClient) -> list[Figure]:
    found = []

    async def measure(name: str, work: Callable[[], Awaitable[Any]], aim_s: float | None = None) -> None:
        async with loop_lag() as lag:
            began_s = time.process_time()
            await work()
            took_s = time.process_time() - began_s
        found.append(Figure(name, took_s, "s", aim=aim_s, better="lower"))
        found.append(Figure(f"{name}, longest stretch", lag.longest_s * 1e3, "ms", aim=STRETCH_AIM_MS, better="lower"))

    changed = [_set("newer")]
    plan = pb.ApplyResourcesRequest(resources=changed, dry_run=True, plan=True)
    listed = pb.ListResourcesRequest(kind=kinds.DPU, namespace=NAMESPACE, page_size=1_000)
    await measure("describe a DPUSet of 10,000 DPUs", lambda: client.query("GetResource", _name(kinds.DPU_SET, SET)))
    await measure("list the first 1,000 of 10,000 DPUs", lambda: client.query("ListResources", listed))
    await measure("plan an image for 10,000 DPUs", lambda: client.command("ApplyResources", plan), PLAN_AIM_S)
    await measure("one label of a host, applied and derived", lambda: _label(client))
    return found


async def _label(client: PlaneClient) -> None:
    host = _host(1)
    host.labels["note"] = "x"
    await client.command("ApplyResources", pb.ApplyResourcesRequest(resources=[host]))
    await client.query("GetResource", _name(kinds.DPU_NODE, host.name))


def _objects() -> Iterator[pb.ResourceSpec]:
    for name in ("image", "newer"):
        yield _spec(kinds.BFB, name, {"url": f"http://images/{name}.bfb"})
    yield _spec(kinds.DPU_FLAVOR, "flavor", {})
    yield _set("image")
    for number in range(HOSTS):
        yield _host(number)
        device = _spec(kinds.DPU_DEVICE, f"d{number:05}", {"serialNumber": f"MT{number:05}"})
        device.labels["provisioning.dpu.nvidia.com/dpunode-name"] = f"h{number:05}"
        yield device


def _host(number: int) -> pb.ResourceSpec:
    found = _spec(kinds.DPU_NODE, f"h{number:05}", {"nodeRebootMethod": {"external": {}}})
    found.labels["topology.kubernetes.io/rack"] = f"rack-{number // 40:03}"
    return found


def _set(image: str) -> pb.ResourceSpec:
    template = {"bfb": {"name": image}, "dpuFlavor": "flavor", "nodeEffect": {"drain": True}}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}
    return _spec(kinds.DPU_SET, SET, {"strategy": strategy, "dpuTemplate": {"spec": template}})


def _spec(kind: str, name: str, spec: dict[str, Any]) -> pb.ResourceSpec:
    return pb.ResourceSpec(kind=kind, namespace=NAMESPACE, name=name, spec=json.dumps(spec))


def _name(kind: str, name: str) -> pb.GetResourceRequest:
    return pb.GetResourceRequest(kind=kind, namespace=NAMESPACE, name=name)


def _in_parts(objects: Iterator[pb.ResourceSpec]) -> Iterator[list[pb.ResourceSpec]]:
    part: list[pb.ResourceSpec] = []
    for each in objects:
        part.append(each)
        if len(part) == PER_COMMAND:
            yield part
            part = []
    if part:
        yield part
