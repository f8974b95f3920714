"""How a process reaches the hosts of DPUs, the objects about them, and the DPU clusters."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from drivers.backends.bmc import Unreachable
from drivers.hosts.agent_host import AgentHost
from drivers.hosts.host import Host
from drivers.hosts.logged_objects import LoggedObjects
from drivers.hosts.objects import ObjectStore
from drivers.hosts.simulated_hosts import SimulatedHosts
from drivers.hosts.simulated_nodes import SimulatedDpuNodes
from drivers.hosts.task_box import TaskBox
from drivers.hosts.unmanaged_host import UnmanagedHost
from drivers.kubernetes.hosts.dpu_nodes import KubernetesDpuNodes
from drivers.kubernetes.hosts.host import KubernetesHost
from drivers.kubernetes.hosts.stored_objects import KubernetesObjects
from drivers.provisioning.cluster import DpuNodes
from eventstore.replicas.replica import Replica
from projections.resources.clusters import cluster_source
from projections.resources.state import LOCAL
from projections.resources.step_facts import HostRef
from projections.zones.dpus.install_interfaces import is_simulated
from schemas.kubernetes.api import KubernetesApi


def _no_cluster(source: str) -> KubernetesApi | None:
    return None


@dataclass(frozen=True, slots=True)
class HostConnections:
    """`apis` has the API server of a source cluster or of a DPU cluster, by the source of its objects, and None for a
    source without one. `simulated` are the simulated hosts of the process, if it has any. `box` has the tasks of the
    agent of a host, by the namespace and the name of the host."""

    apis: Callable[[str], KubernetesApi | None] = field(default=_no_cluster)
    simulated: SimulatedHosts | None = None
    box: Callable[[str, str], TaskBox] | None = None

    def store(self, replica: Replica, now_ms: Callable[[], int], rng: random.Random) -> Callable[[str], ObjectStore]:
        """The stores of objects by source."""
        local = LoggedObjects(replica, LOCAL, now_ms=now_ms, rng=rng)
        known: dict[str, KubernetesObjects] = {}

        def of(source: str) -> ObjectStore:
            if source == LOCAL:
                return local
            api, found = self._connected(source), known.get(source)
            if found is None or found.api is not api:
                found = known[source] = KubernetesObjects(api)
            return found

        return of

    def host(self, ref: HostRef, bmc_address: str) -> Host | None:
        """The host of a DPU with this BMC; None if the device stands for its host. Without an address, a simulated host
        is found by its name. Raises Unreachable while there is no connection to the host's cluster."""
        simulated = None
        if self.simulated is not None and not bmc_address:
            simulated = self.simulated.known(ref)
        elif self.simulated is not None and is_simulated(bmc_address):
            simulated = self.simulated.host(ref, bmc_address)
        if ref.is_external:
            return KubernetesHost(self._connected(ref.at.source), ref, agent=simulated or self._agent(ref))
        if simulated is not None:
            return simulated
        return None if is_simulated(bmc_address) else UnmanagedHost(ref, self._agent(ref))

    def _agent(self, ref: HostRef) -> AgentHost | None:
        return None if self.box is None else AgentHost(self.box(ref.namespace, ref.name), ref.name)

    def dpu_nodes(self, cluster: str, bmc_address: str = "") -> DpuNodes | None:
        """The nodes of a DPU cluster, by the key of its DPUCluster. In a plane that simulates clusters, a DPU with a
        BMC of its own, at this address, is the node of a simulated one."""
        if (api := self.apis(cluster_source(cluster))) is not None:
            return KubernetesDpuNodes(api)
        has_own_bmc = bool(bmc_address) and not is_simulated(bmc_address)
        return SimulatedDpuNodes() if self.simulated is not None and has_own_bmc else None

    def _connected(self, source: str) -> KubernetesApi:
        api = self.apis(source)
        if api is None:
            raise Unreachable(f"cluster: there is no connection to source cluster {source}")
        return api
