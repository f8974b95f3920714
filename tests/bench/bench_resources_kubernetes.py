"""1,000 hosts with a DPU each in one source cluster: what the plane writes there, and what it asks for while idle.

The plane is a process with an embedded log, which reaches a real kube-apiserver through a proxy that counts requests.
The objects of the hosts are created before it starts. Its writes are limited to 50 a second, so the time to the last
object is that of the writes, and that of more hosts is computed from it. The peer of the idle minute is DPF by its own
intervals: each DPU is reconciled every five seconds with a request for its Node.

Reads before a watch goes on are counted apart. The API server ends each watch after about five minutes. Before the
plane opens it again, it reads the version of one object, to notice a server that was restored from a backup. Their
number depends on the number of kinds, and not on that of hosts.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from deploy.settings.settings import load_settings
from drivers.kubernetes.client import connect
from schemas.kubernetes.api import KubernetesApi
from schemas.resources.crds import definition
from schemas.resources.dpf import KINDS
from schemas.resources.dpf.device import DPU_DEVICE
from schemas.resources.dpf.dpu import DPU_KIND
from schemas.resources.dpf.dpu_set import DPU_SET
from schemas.resources.dpf.flavor import DPU_FLAVOR
from schemas.resources.dpf.images import BFB_KIND
from schemas.resources.dpf.names import DPU_NODE_NAME
from schemas.resources.dpf.node import DPU_NODE
from schemas.resources.kinds import Kind
from tests.bench.apart import serving
from tests.bench.figures import Figure
from tests.bench.memory import peak_bytes
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.faulting_proxy import FaultingProxy, Seen, faulting
from tests.support.kubernetes.requests import create, create_namespace, install

HOSTS = 1_000
HOSTS_COMPUTED = 10_000
NAMESPACE = "dpf"
AT_ONCE = 16
QUIET_S = 5.0
IDLE_S = 60.0
PATIENCE_S = 600.0
RECONCILE_S = 5.0
"""The interval at which DPF reads the Node of each DPU."""
OK = 200
WRITES = ("POST", "PUT", "PATCH", "DELETE")
DISCOVERY_PARTS = 3
"""A path such as /apis/GROUP/VERSION, by which a kind is looked for that the cluster lacks."""


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        cluster = ControlPlane(Path(folder) / "kubernetes")
        try:
            return uvloop.run(_measure(cluster, Path(folder) / "plane"))
        finally:
            cluster.stop()


async def _measure(cluster: ControlPlane, data: Path) -> list[Figure]:
    await cluster.start()
    async with connect(str(cluster.kubeconfig())) as api, faulting(cluster) as proxy:
        await _fill(api)
        async with _plane(data, cluster.kubeconfig(server=proxy.url)) as pid:
            now_s = asyncio.get_running_loop().time
            began_s = now_s()
            await _until(lambda: _has_all(proxy))
            took_s, written = now_s() - began_s, _writes(_counted(proxy, 0))
            await _quiet(proxy)
            writes = _counted(proxy, 0)
            size = _bytes_of(data)
            seen = len(proxy.requests)
            await asyncio.sleep(IDLE_S)
            idle = _counted(proxy, seen)
            checks = sum(map(_is_check, proxy.requests[seen:]))
            seen = len(proxy.requests)
            await api.patch(DPU_NODE.path(NAMESPACE, _host(1)), {"metadata": {"labels": {"note": "x"}}}, "merge")
            await _quiet(proxy)
            changed = _counted(proxy, seen)
            memory = peak_bytes(pid)
    by_kind = _by_kind(proxy.requests)
    polled = HOSTS * IDLE_S / RECONCILE_S
    limit = load_settings({"data": data}, None, {}).kubernetes_requests_per_second
    computed = f"the same for {HOSTS_COMPUTED:,} hosts, computed: writes per host at the measured rate"
    return [
        Figure(f"{HOSTS:,} hosts in a source cluster, until the last DPU is written", took_s, "s", better="lower"),
        Figure("writes to the API server meanwhile", written / took_s, "writes/s", limit, "its limit"),
        Figure("writes to the API server per host", _writes(writes) / HOSTS, "writes", better="lower"),
        Figure(computed, HOSTS_COMPUTED * (_writes(writes) / HOSTS) / (written / took_s), "s", better="lower"),
        *(Figure(f"of them {what}", count / HOSTS, "writes", better="lower") for what, count in by_kind),
        Figure("log and saved state per host", size / HOSTS, "B", better="lower"),
        Figure("peak memory of the process", memory, "B", better="lower"),
        Figure("requests in an idle minute, beside watches", idle.total(), "", polled, "DPF", 0.0, "lower"),
        Figure("reads in an idle minute before a watch goes on", checks, "", better="lower"),
        Figure("writes after one label of one host has changed", _writes(changed), "writes", aim=1.0, better="lower"),
    ]


async def _fill(api: KubernetesApi) -> None:
    """The objects of all hosts, and one DPUSet that selects them."""
    await install(api, *map(definition, KINDS))
    await create_namespace(api, NAMESPACE)
    template = {"bfb": {"name": "image"}, "dpuFlavor": "flavor", "nodeEffect": {"noEffect": True}}
    await _create(api, BFB_KIND, "image", {"url": "http://images.example.org/a.bfb"})
    await _create(api, DPU_FLAVOR, "flavor", {})
    await _create(api, DPU_SET, "all", {"strategy": {"type": "OnDelete"}, "dpuTemplate": {"spec": template}})
    pending = iter(range(HOSTS))

    async def some() -> None:
        for number in pending:
            await _create(api, DPU_NODE, _host(number), {"nodeRebootMethod": {"external": {}}})
            labels = {DPU_NODE_NAME: _host(number)}
            await _create(api, DPU_DEVICE, f"d{number:05}", {"serialNumber": f"MT{number:05}"}, labels)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def _create(
    api: KubernetesApi, kind: Kind, name: str, spec: dict[str, Any], labels: dict[str, str] | None = None
) -> None:
    metadata = {"name": name, "labels": labels or {}}
    body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}
    await create(api, kind.path(NAMESPACE), body)


@asynccontextmanager
async def _plane(data: Path, kubeconfig: Path) -> AsyncIterator[int]:
    """A process that watches and writes the cluster; its process id. It is started beside the loop of the proxy."""
    edge = ("--kubeconfig", str(kubeconfig), "--source", "east", "--kubernetes-resources", "--images=127.0.0.1:0")
    started = serving("--data", str(data), *edge)
    addresses = await asyncio.to_thread(started.__enter__)
    try:
        yield int(addresses["pid"])
    finally:
        await asyncio.to_thread(started.__exit__, None, None, None)


async def _has_all(proxy: FaultingProxy) -> bool:
    """Whether the status of every DPU has been written."""
    statuses = {each.path for each in proxy.requests if each.status == OK and each.path.endswith("/status")}
    return sum(f"/{DPU_KIND.plural}/" in path for path in statuses) == HOSTS


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():
            await asyncio.sleep(1.0)


async def _quiet(proxy: FaultingProxy) -> None:
    """Wait until the plane has written nothing for a while."""
    seen = -1
    async with asyncio.timeout(PATIENCE_S):
        while seen != (now := _writes(_counted(proxy, 0))):
            seen = now
            await asyncio.sleep(QUIET_S)


def _counted(proxy: FaultingProxy, since: int) -> Counter[str]:
    """The requests of the plane by method, but for watches, the reads before a watch goes on, and the search for kinds
    that are not installed."""
    return Counter(
        each.method
        for each in proxy.requests[since:]
        if "watch" not in each.query and not _is_check(each) and each.path.count("/") > DISCOVERY_PARTS
    )


def _is_check(request: Seen) -> bool:
    """Whether a request is a read before a watch goes on: the server ends a watch after about five minutes, and the
    plane asks for the version of one object, which is lower if the server was restored from a backup meanwhile."""
    query = request.query
    return request.method == "GET" and "watch" not in query and ("fieldSelector" in query or query.get("limit") == "1")


def _by_kind(requests: list[Seen]) -> list[tuple[str, int]]:
    """The writes by method, kind and subresource, as far as they grow with the hosts."""
    found: Counter[str] = Counter()
    for each in requests:
        if each.method in WRITES:
            _, _, place = each.path.partition(f"/{NAMESPACE}/")
            kind, _, rest = place.partition("/")
            found[" ".join((each.method, kind, *rest.split("/")[1:]))] += 1
    return [(what, count) for what, count in found.most_common() if count >= HOSTS / 10]


def _bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _writes(counted: Counter[str]) -> int:
    return sum(counted[method] for method in WRITES)


def _host(number: int) -> str:
    return f"h{number:05}"
