"""A rollout of a new image to 1,000 simulated DPUs, 50 at a time: how much the plane adds to the time of the devices.

The share of the plane is its CPU time for 50 DPUs, for devices whose installation takes ten minutes, as that of real
ones does. CPU time does not depend on what else the machine does. The peer of the elapsed time is the time that the
devices and hosts alone would take; the rest is records, plans, reports of phases, and waits until the end of a task is
noticed.

All DPUs are installed at once first: `maxUnavailable` limits how many are taken out of service, and a DPU without an
image is in none. So only the limits on hosts in maintenance and on installations in a zone hold there. The devices are
simulated in the process of the plane. The CPU time of their agents, clusters and transfers is counted apart; that of
the calls to their BMCs and of TLS is counted as the plane's.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop

from commands.client.client import PlaneClient
from deploy.demo.platform.image_server import HOST, serving
from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from drivers.backends.simulated_bmc import WORK_S
from drivers.backends.simulated_transfers import ImageTransfers
from drivers.hosts.simulated_hosts import EVICTION_S, REBOOT_S
from drivers.relays.relay import Relay
from drivers.simulators.agents import SimulatedAgents
from drivers.simulators.clusters import SimulatedClusters
from eventstore.log import RESOURCES
from projections.resources import kinds
from projections.resources.state import LOCAL
from schemas.api import dpuplane_pb2 as pb
from tests.bench.figures import Figure
from tests.bench.planes import until
from tests.bench.task_cpu import TaskCpu
from tests.bench.workload import now_ms

DPUS = 1_000
AT_ONCE = 50
ZONES = 20
"""Each zone installs at most 50 DPUs at once."""
CHECK_S = 0.5
"""The interval of checks: each reads what is observed of every DPU."""
PATIENCE_S = 900.0
INSTALL_S = 600.0
SHARE_AIM = 1.0
NAMESPACE = "dpf"
FIRST, SECOND = "first", "second"
PER_COMMAND = 400


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        return uvloop.run(_measure(Path(folder) / "plane"))


async def _measure(data: Path) -> list[Figure]:
    rng = random.Random(7)
    listeners = dict.fromkeys(("listen", "http", "agents", "images"), f"{HOST}:0")
    simulated = {"simulate_hosts": "1x1", "image_hosts": HOST, "image_streams": 1_000}
    settings = load_settings({"data": data, "name": "bench", **listeners, **simulated}, None, {})
    devices = TaskCpu((ImageTransfers.run, SimulatedAgents.run, SimulatedClusters.run), but=(Relay.serve,))
    asyncio.get_running_loop().set_task_factory(devices.factory)
    async with (
        serving({FIRST: "3.0.0", SECOND: "3.1.0"}, rng) as url,
        Plane.start(settings, now_ms=now_ms, rng=rng) as plane,
        PlaneClient([plane.addresses["api"]], timeout_s=60.0, now_ms=now_ms, rng=rng) as client,
    ):
        began_s, objects = time.perf_counter(), [*_objects(url)]
        for start in range(0, len(objects), PER_COMMAND):
            part = objects[start : start + PER_COMMAND]
            await client.command("ApplyResources", pb.ApplyResourcesRequest(resources=part))
        await until(lambda: _ready(plane, FIRST) == DPUS, CHECK_S, PATIENCE_S)
        first_s = time.perf_counter() - began_s
        worked_s, devices_s = _worked_s(plane), devices.taken_s
        began_s, cpu_s = time.perf_counter(), time.process_time()
        await client.command("ApplyResources", pb.ApplyResourcesRequest(resources=[_set(SECOND, AT_ONCE)]))
        await until(lambda: _ready(plane, SECOND) == DPUS, CHECK_S, PATIENCE_S)
        took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
        worked_s, devices_s = (_worked_s(plane) - worked_s) / AT_ONCE, devices.taken_s - devices_s
    batches = DPUS / AT_ONCE
    own_s = (took_s - worked_s) / batches
    own_cpu_s = (cpu_s - devices_s) / batches
    share = 100 * own_cpu_s / (own_cpu_s + INSTALL_S)
    return [
        Figure(f"first installation of {DPUS:,} DPUs at once", first_s, "s", better="lower"),
        Figure(
            f"rollout of {DPUS:,} DPUs, {AT_ONCE} at a time", took_s, "s", worked_s, "the devices alone", better="lower"
        ),
        Figure(f"the plane's own time for each {AT_ONCE} DPUs", own_s, "s", better="lower"),
        Figure("CPU time of the plane per DPU", own_cpu_s / AT_ONCE * 1e3, "ms", better="lower"),
        Figure("its share if an installation takes 10 minutes", share, "%", aim=SHARE_AIM, better="lower"),
        Figure("CPU time of the simulated devices per DPU", devices_s / DPUS * 1e3, "ms", better="lower"),
    ]


def _worked_s(plane: Plane) -> float:
    """How long the devices have worked on their long tasks so far, and their hosts on a drain and a reboot for each
    installation, if none of them waits for the plane. Tasks of a tenth of a second are left to the plane's time."""
    assert plane.simulated_bmcs is not None
    actions = [task.action for device in plane.simulated_bmcs.devices.values() for task in device.begun]
    return sum(WORK_S.get(each, 0.0) for each in actions) + actions.count("install") * (EVICTION_S + REBOOT_S)


def _ready(plane: Plane, image: str) -> int:
    """The number of DPUs that are ready with an image."""
    state = plane.states.resources_at(plane.replica.partition_for(RESOURCES, LOCAL))
    seen = (found for key, found in state.seen.items() if f"/{kinds.DPU}/" in key and found.is_ready)
    return sum(str(found.fields.get("installed", "")).startswith(f"{image}/") for found in seen)


def _objects(url: str) -> Iterator[pb.ResourceSpec]:
    yield resource_spec(
        kinds.DPF_OPERATOR_CONFIG, "config", {"provisioningController": {"maxUnavailableDPUNodes": DPUS}}
    )
    for name in (FIRST, SECOND):
        yield resource_spec(kinds.BFB, name, {"url": url.format(name)})
    yield resource_spec(kinds.DPU_FLAVOR, "flavor", {})
    yield resource_spec(kinds.DPU_CLUSTER, "cluster", {"type": "static", "kubeconfig": "cluster", "maxNodes": DPUS})
    yield _set(FIRST, DPUS)
    for number in range(DPUS):
        host = resource_spec(kinds.DPU_NODE, f"h{number:04}", {"dpus": [{"name": f"d{number:04}"}]})
        host.labels["topology.kubernetes.io/rack"] = f"rack-{number % ZONES}"
        yield host
        device = resource_spec(kinds.DPU_DEVICE, f"d{number:04}", {"serialNumber": f"D{number:04}"})
        device.annotations["dpuplane.io/bmc-address"] = f"simulated:d{number:04}"
        yield device


def _set(image: str, at_once: int) -> pb.ResourceSpec:
    template = {"bfb": {"name": image}, "dpuFlavor": "flavor", "nodeEffect": {"drain": True}}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": at_once}}
    return resource_spec(kinds.DPU_SET, "all", {"strategy": strategy, "dpuTemplate": {"spec": template}})


def resource_spec(kind: str, name: str, spec: dict[str, Any]) -> pb.ResourceSpec:
    """An object of the bench."""
    return pb.ResourceSpec(kind=kind, namespace=NAMESPACE, name=name, spec=json.dumps(spec))
