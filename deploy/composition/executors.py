"""Executors of lifecycle steps by name: on the device, on its host, in its DPU cluster, and at the end of a DPU."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from deploy.composition.host_connections import HostConnections
from drivers.backends.bmc import Connect
from drivers.hosts.objects import Stores
from drivers.provisioning.attempts import Executor
from drivers.provisioning.cluster import ClusterExecutor, ClusterNodes
from drivers.provisioning.device import DeviceExecutor, UrlOf, no_url
from drivers.provisioning.installers import Installers
from drivers.provisioning.maintenance import Maintenances
from drivers.provisioning.node import NodeExecutor
from drivers.provisioning.object_facts import ObjectFacts
from drivers.provisioning.release import ReleaseExecutor
from eventstore.replicas.replica import Replica
from projections.resources.state import LOCAL
from projections.zones.dpus.install_interfaces import step_of
from projections.zones.dpus.phases import CLUSTER, DEVICE, NODE, RELEASE
from projections.zones.rows import Dpu


@dataclass(frozen=True, slots=True)
class StepParts:
    """The parts that the executors of a process share. `has_devices` tells whether the process does steps on devices:
    simulated ones exist in such a process only."""

    device: Executor
    facts: ObjectFacts
    hosts: HostConnections
    stores: Stores
    maintenances: Maintenances
    nodes: ClusterNodes
    has_devices: bool = True


def parts_of(
    replica: Replica,
    connect: Connect,
    hosts: HostConnections,
    url_of: UrlOf = no_url,
    *,
    installers: Mapping[str, Executor] = MappingProxyType({}),
    now_ms: Callable[[], int],
    rng: random.Random,
) -> StepParts:
    """The parts of the executors of a process. `installers` are those of real devices, by the scheme of addresses."""
    facts, stores = ObjectFacts(replica), hosts.store(replica, now_ms, rng)
    return StepParts(
        Installers(DeviceExecutor(connect, url_of), installers),
        facts,
        hosts,
        stores,
        Maintenances(stores, hosts.host, facts, now_ms),
        ClusterNodes(hosts.dpu_nodes, lambda source: hosts.apis(source) is not None),
    )


def accepts_of(parts: StepParts) -> Callable[[str, Dpu], bool]:
    """The steps that a process can execute: those on devices if it reaches them, and those on hosts in clusters that it
    is connected to. A step in a DPU cluster is left to a replica that is connected to the cluster: another replica
    would wait until the deadline of the step."""

    def accepts(dpu: str, row: Dpu) -> bool:
        executor = step_of(row.bmc_address, row.phase).executor
        if executor == DEVICE:
            return parts.has_devices
        sources = parts.facts.sources_of(dpu, row) - {LOCAL}
        if not sources or not all(parts.hosts.apis(source) is not None for source in sources):
            return parts.has_devices and not sources
        if executor != CLUSTER or parts.has_devices:
            return True
        cluster = parts.facts.cluster_of(dpu, row)
        return not cluster or parts.nodes.of(cluster, row.bmc_address) is not None

    return accepts


def sweeps_of(hosts: HostConnections, *, with_device: bool) -> Callable[[str], bool]:
    """The sources whose hosts a process can keep in order: those that it is connected to, and the log's own if it does
    the steps on hosts without Kubernetes."""

    def accepts(source: str) -> bool:
        return with_device if source == LOCAL else hosts.apis(source) is not None

    return accepts


def _device(parts: StepParts) -> Executor:
    return parts.device


def _node(parts: StepParts) -> Executor:
    return NodeExecutor(parts.facts, parts.maintenances, parts.hosts.host, parts.stores, parts.device)


def _cluster(parts: StepParts) -> Executor:
    return ClusterExecutor(parts.facts, parts.nodes, parts.device if parts.has_devices else None)


def _release(parts: StepParts) -> Executor:
    return ReleaseExecutor(parts.facts, parts.maintenances, parts.nodes, parts.device if parts.has_devices else None)


EXECUTORS: Mapping[str, Callable[[StepParts], Executor]] = {
    DEVICE: _device,
    NODE: _node,
    CLUSTER: _cluster,
    RELEASE: _release,
}
"""Makers of executors. A simulated device stands for its host and its node where the plane has no other."""
