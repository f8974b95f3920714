"""The API servers of the DPU clusters of a run, the Secrets with their kubeconfigs, and how processes reach them.

A control plane has an API server of its own: one that is deleted and made anew has another address, and no Nodes. A
process finds the address in the kubeconfig that the Secret has, as in production.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial

from deploy.composition.dpu_clusters import ConnectCluster
from drivers.kubernetes.client import ReadKubeconfig
from projections.kubernetes.dpu_node import is_ready
from projections.resources.clusters import cluster_source
from projections.resources.state import object_id
from schemas.kubernetes.api import ApiError, KubernetesApi
from schemas.resources.dpf.names import KUBECONFIG_KEY
from tests.simulation.history import DpuNodeCommitted, FinalControlPlane, FinalDpuNode, History
from tests.simulation.network import Wire
from tests.simulation.wired_api import WiredApi
from tests.support.kubernetes.requests import create, create_namespace, get
from tests.support.kubernetes.simulated.api import SimulatedApi
from tests.support.kubernetes.simulated.kinds import Collection, Object
from tests.support.virtual_loop import current_loop

NODES = "/api/v1/nodes"


class ClusterServers:
    """The API servers by address, and that of the source, which has the Secrets."""

    def __init__(self, history: History, rng: random.Random, *, epoch_s: int) -> None:
        self.secrets = SimulatedApi(random.Random(f"{rng.random()}"), epoch_s=epoch_s)
        self.addresses: dict[str, str] = {}
        """The address of the present control plane of each DPUCluster, by its key."""
        self.servers: dict[str, SimulatedApi] = {}
        self._nowhere = SimulatedApi(random.Random(0), epoch_s=epoch_s)
        self._nowhere.go_down()
        self._history = history
        self._rng = rng
        self._epoch_s = epoch_s

    def server(self, cluster: str) -> SimulatedApi | None:
        """The API server of a DPUCluster; None while it has no control plane."""
        address = self.addresses.get(cluster)
        return None if address is None else self.servers[address]

    async def serve(self, cluster: str) -> None:
        """Start the control plane of a DPUCluster, or end its outage."""
        at = object_id(cluster)
        if cluster not in self.addresses:
            address = f"https://{cluster_source(cluster)}-{len(self.servers)}:6443"
            server = SimulatedApi(random.Random(f"{self._rng.random()}"), epoch_s=self._epoch_s)
            server.on_write = partial(self._record, cluster)
            self.addresses[cluster], self.servers[address] = address, server
            await create_namespace(self.secrets, at.namespace)
            await create(self.secrets, f"/api/v1/namespaces/{at.namespace}/secrets", _secret(at.name, address))
        self.servers[self.addresses[cluster]].faults.is_down = False

    def stop(self, cluster: str) -> None:
        """Begin an outage of a control plane."""
        server = self.server(cluster)
        if server is not None and not server.faults.is_down:
            server.go_down()

    async def remove(self, cluster: str) -> None:
        """Delete a control plane with everything in it."""
        self.stop(cluster)
        if self.addresses.pop(cluster, None) is None:
            return
        at = object_id(cluster)
        path = f"/api/v1/namespaces/{at.namespace}/secrets/{_secret_name(at.name)}"
        with suppress(ApiError):
            await self.secrets.delete(path, uid=(await get(self.secrets, path))["metadata"]["uid"])

    def source(self, wire: Wire, writer: str) -> KubernetesApi:
        """The API server with the Secrets, as an instance of a process reaches it."""
        return WiredApi(self.secrets, wire, writer)

    def connector(self, wire: Wire, writer: str) -> ConnectCluster:
        """Opens connections of an instance of a process to DPU clusters."""

        def connect(read: ReadKubeconfig, name: str, source: str) -> AbstractAsyncContextManager[KubernetesApi]:
            return self._connected(read, wire, writer)

        return connect

    @asynccontextmanager
    async def _connected(self, read: ReadKubeconfig, wire: Wire, writer: str) -> AsyncIterator[KubernetesApi]:
        content = await read()
        yield WiredApi(self.servers[content["clusters"][0]["cluster"]["server"]], wire, writer)

    def unreachable(self, wire: Wire, writer: str) -> KubernetesApi:
        """An API server that never answers: that of a cluster to which an instance has no connection yet."""
        return WiredApi(self._nowhere, wire, writer)

    def final(self) -> list[FinalControlPlane | FinalDpuNode]:
        """The control planes and their Nodes at rest."""
        found: list[FinalControlPlane | FinalDpuNode] = []
        for cluster, address in self.addresses.items():
            server = self.servers[address]
            found.append(FinalControlPlane(cluster, not server.faults.is_down))
            for name, node in server.objects(NODES).items():
                labels = dict(node["metadata"].get("labels") or {})
                found.append(FinalDpuNode(cluster, name, is_ready(node), labels))
        return found

    def _record(self, cluster: str, collection: Collection, before: Object | None, after: Object | None) -> None:
        if collection.plural != "nodes" or before == after:
            return
        node = after if after is not None else before
        assert node is not None, "a write has an object before it or after it"
        was_ready, now_ready = before is not None and is_ready(before), after is not None and is_ready(after)
        at_s, name = current_loop().time(), node["metadata"]["name"]
        boots = [_boot_of(each) for each in (before, after)]
        if before is None:
            self._history.note(at_s, "DPU joined its cluster", name)
        elif after is None:
            self._history.note(at_s, "Node of a DPU deleted", name)
        elif boots[0] and boots[0] != boots[1]:
            self._history.note(at_s, "Node of a DPU with another boot", name, boots[1])
        elif was_ready and not now_ready:
            self._history.note(at_s, "Node of a DPU not ready", name)
        self._history.add(DpuNodeCommitted(at_s, cluster, name, after is not None, now_ready))


def _boot_of(node: Mapping[str, object] | None) -> str:
    status = (node or {}).get("status") or {}
    assert isinstance(status, dict)
    return str((status.get("nodeInfo") or {}).get("bootID", ""))


def _secret_name(cluster: str) -> str:
    return f"{cluster}-admin-kubeconfig"


def _secret(cluster: str, address: str) -> Object:
    """The Secret that Kamaji makes of a control plane."""
    kubeconfig = {
        "clusters": [{"name": cluster, "cluster": {"server": address}}],
        "users": [{"name": "admin", "user": {"token": "simulated"}}],
    }
    text = base64.b64encode(json.dumps(kubeconfig).encode()).decode()
    return {"metadata": {"name": _secret_name(cluster)}, "data": {KUBECONFIG_KEY: text}}
