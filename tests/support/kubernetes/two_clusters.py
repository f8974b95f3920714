"""A plane with every role, a source cluster and a DPU cluster. Both clusters have a real API server, which the plane
reaches through a proxy, and the devices of the plane are simulated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Protocol

import yaml

from deploy.demo.platform import manifests
from deploy.demo.platform.image_server import HOST
from deploy.demo.platform.manifests import NAMESPACE, Object
from deploy.process.plane import Plane
from deploy.settings.settings import load_settings
from drivers.kubernetes.client import connect
from drivers.simulators.bmc_network import BmcNetwork, parse_sizes
from projections.kubernetes.resources.api_kinds import API_KINDS
from projections.resources import kinds
from schemas.kubernetes.api import KubernetesApi
from schemas.resources.crds import definition
from schemas.resources.dpf import KINDS
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.cluster_peers import cluster_definitions
from tests.support.kubernetes.faulting_proxy import FaultingProxy, faulting
from tests.support.kubernetes.peers import definitions, suppress_outage
from tests.support.kubernetes.requests import create_namespace, get, install
from tests.support.served import now_ms

SOURCE = "east"
CONTROLLER = {"bfbPVCName": "bfb", "multiDPUOperationsSyncWaitTime": "1s"}
KEEPALIVED = {"vip": "10.0.0.9", "virtualRouterID": 7, "interface": "eth0"}
NODES = "/api/v1/nodes"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
PATHS = {kind.plural: kind.path(NAMESPACE) for kind in API_KINDS.values()} | {"pods": PODS}
PATIENCE_S = 300.0
PAUSE_S = 0.3
"""Pause between two checks of a condition."""


class Actor(Protocol):
    """Something that acts in a cluster until cancelled."""

    async def run(self) -> None: ...


class Site:
    """A source cluster and a DPU cluster. `sizes_text` says how many racks and hosts are simulated."""

    def __init__(
        self,
        servers: Sequence[ControlPlane],
        apis: Sequence[KubernetesApi],
        proxies: Sequence[FaultingProxy],
        sizes_text: str,
    ) -> None:
        self.source, self.dpu_cluster = servers
        self.api, self.dpu_api = apis
        self.proxies = proxies
        self.sizes_text, self.sizes = sizes_text, parse_sizes("", sizes_text)
        self.network = BmcNetwork(Random(1), self.sizes)
        self.dpus = [*self.network.dpus()]
        self.patience_s = PATIENCE_S
        self.pause_s = PAUSE_S

    @property
    def dpu_kubeconfig(self) -> bytes:
        """The kubeconfig of the DPU cluster, through its proxy."""
        return self.dpu_cluster.kubeconfig(server=self.proxies[1].url).read_bytes()

    async def kubectl(self, *words: str, stdin: str = "") -> str:
        return await self.source.kubectl(*words, "-n", NAMESPACE, stdin=stdin)

    async def apply(self, objects: Sequence[Object]) -> None:
        await self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([each.document for each in objects]))

    async def items(self, words: str) -> dict[str, dict[str, Any]]:
        """The objects of some kinds in the source cluster by name."""
        lists = [(await get(self.api, PATHS[plural]))["items"] for plural in words.split(",")]
        return {each["metadata"]["name"]: each for items in lists for each in items}

    async def until_ready(self, image: str) -> None:
        """Wait until everything is ready with an image."""
        waits: list[str] = []

        async def is_ready() -> bool:
            owners = await self.items("dpusets,dpudeployments,dpuservices")
            dpus = await self.items("dpus")
            waits[:] = [f"{name}: {each['status']}" for name, each in dpus.items() if not is_installed(each, image)]
            waits.extend(f"{name}: {each.get('status')}" for name, each in owners.items() if not _is_ready(each))
            return len(dpus) == len(self.dpus) and not waits

        try:
            await self.until(is_ready)
        except TimeoutError:
            raise AssertionError(f"not ready: {waits[:20]}") from None

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a condition, also while an API server starts or is too slow."""
        async with asyncio.timeout(self.patience_s):
            while True:
                with suppress_outage():
                    if await holds():
                        return
                await asyncio.sleep(self.pause_s)

    async def is_empty(self, words: str) -> bool:
        return not await self.items(words)

    def foundations(self, image_url: str, **controller: object) -> list[Object]:
        """What DPUs and services need, and the search that finds the DPUs. `controller` are settings of the
        provisioning controller."""
        config = {"deploymentMode": "host-trusted", "provisioningController": CONTROLLER | controller}
        spec = {"type": "kamaji", "maxNodes": 1000, "clusterEndpoint": {"keepalived": KEEPALIVED}}
        cluster = Object(kinds.DPU_CLUSTER, manifests.CLUSTER, spec)
        others = [each for each in manifests.foundations(image_url) if each.kind != kinds.DPU_CLUSTER]
        hosts = manifests.hosts(self.network, self.sizes)
        operator = Object(kinds.DPF_OPERATOR_CONFIG, "config", config)
        return [operator, *others, cluster, *manifests.services(), *hosts, manifests.discovery(self.sizes)]


def is_installed(dpu: Mapping[str, Any], image: str) -> bool:
    """Whether a DPU is ready with an image."""
    wanted = dpu["spec"]["bfb"]
    name = wanted["name"] if isinstance(wanted, Mapping) else wanted
    return bool(name == image and (dpu.get("status") or {}).get("phase") == "Ready")


def _is_ready(found: Mapping[str, Any]) -> bool:
    """Whether an object is ready in its present generation."""
    status = found.get("status") or {}
    ready = any((each["type"], each["status"]) == ("Ready", "True") for each in status.get("conditions", ()))
    return bool(ready and status.get("observedGeneration", 0) == found["metadata"]["generation"])


@contextmanager
def control_planes(folder: Path) -> Iterator[list[ControlPlane]]:
    """The API servers of a source cluster and of a DPU cluster."""
    found = [ControlPlane(folder / name) for name in ("source", "dpus")]
    try:
        with asyncio.Runner() as runner:
            for server in found:
                runner.run(server.start())
        yield found
    finally:
        for server in found:
            server.stop()


@asynccontextmanager
async def connected_site(servers: Sequence[ControlPlane], sizes_text: str) -> AsyncIterator[Site]:
    """The clusters with all definitions and without objects."""
    async with AsyncExitStack() as stack:
        apis = [await stack.enter_async_context(connect(str(each.kubeconfig()))) for each in servers]
        proxies = [await stack.enter_async_context(faulting(each)) for each in servers]
        await install(apis[0], *map(definition, KINDS), *definitions())
        await install(apis[1], *cluster_definitions())
        await create_namespace(apis[0], NAMESPACE)
        yield Site(servers, apis, proxies, sizes_text)


@asynccontextmanager
async def acting(actors: Sequence[Actor]) -> AsyncIterator[None]:
    """Let actors act during the context."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(each.run()) for each in actors]
        yield
        for task in running:
            task.cancel()


@asynccontextmanager
async def started_plane(site: Site, folder: Path) -> AsyncIterator[Plane]:
    flags: dict[str, object] = {
        "data": folder / "plane",
        "kubeconfig": str(site.source.kubeconfig(server=site.proxies[0].url)),
        "source": SOURCE,
        "kubernetes_resources": True,
        "simulate_hosts": site.sizes_text,
        "simulate_pace": 0.2,
        "image_hosts": HOST,
        **dict.fromkeys(("listen", "http", "agents", "images"), f"{HOST}:0"),
    }
    async with Plane.start(load_settings(flags, None, {}), now_ms=now_ms, rng=Random(3)) as made:
        yield made
