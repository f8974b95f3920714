"""DPUServiceIPAM and DPUServiceNAD: the addresses and the networks of services."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.resources.dpf.address_pools import pool_faults
from schemas.resources.dpf.names import SERVICES, VERSION
from schemas.resources.dpf.types import (
    AGE,
    PHASE_OF_READY,
    READY,
    AnyObject,
    Conditions,
    Int32,
    LabelSelector,
    NodeSelector,
    ObjectMeta,
    ObservedGeneration,
    ServiceMTU,
    StringMap,
    named,
)
from schemas.resources.kinds import Kind
from schemas.resources.model import Model, validated

IPAM_FINALIZER = f"{SERVICES}/dpuserviceipam"
IPAM_CONDITIONS = ("Ready", "DPUIPAMObjectReconciled", "DPUIPAMObjectReady")
IPAM_CHILD_NAME = f"{SERVICES}/dpuserviceipam-child-object-name-override"
"""Annotation of a DPUServiceIPAM: another name for the pool in the DPU clusters."""
NAD_CONDITIONS = ("Ready", "DPUNADObjectReconciled", "DPUNADObjectReady")
TRUSTED_FUNCTIONS = "dpuservicenad.svc.dpu.nvidia.com/use-trusted-sfs"
"""Annotation of a DPUServiceNAD: its scalable functions are trusted ones."""


class IPRange(Model):
    """Addresses from the first to the last one, both included."""

    start_ip: Annotated[str, Field(alias="startIP")]
    """The first address."""
    end_ip: Annotated[str, Field(alias="endIP")]
    """The last address."""


class Route(Model):
    """A route through the pool's gateway."""

    dst: str
    """The destination as a CIDR."""


class Network(Model):
    """A network that is split into a subnet for each node, each with a gateway of its own."""

    network: str
    """The network that is split."""
    gateway_index: Int32 | None = None
    """The place of the gateway in a subnet; none in networks of two addresses."""
    prefix_size: Int32
    """The prefix length of each node's subnet."""
    exclusions: list[str] | None = None
    """The older form of excludeRanges: single addresses."""
    exclude_ranges: list[IPRange] | None = None
    allocations: StringMap | None = None
    """Fixed subnets by node."""
    default_gateway: bool | None = None
    """Whether the gateway is a gateway of the pods."""
    routes: list[Route] | None = None
    subnets_per_dpu_cluster: Annotated[Int32 | None, Field(alias="subnetsPerDPUCluster")] = None
    """The subnets of each DPU cluster; without it, one cluster gets the whole network."""


class Subnet(Model):
    """A subnet that is split into a block for each node, all with one gateway."""

    subnet: str
    """The subnet that is split."""
    gateway: str
    """The address of the gateway."""
    per_node_ip_count: Annotated[int, Field(alias="perNodeIPCount")]
    """The addresses of each node's block."""
    exclude_ranges: list[IPRange] | None = None
    default_gateway: bool | None = None
    """Whether the gateway is a gateway of the pods."""
    routes: list[Route] | None = None
    blocks_per_dpu_cluster: Annotated[Int32 | None, Field(alias="blocksPerDPUCluster")] = None
    """The blocks of each DPU cluster; without it, one cluster gets the whole subnet."""


class DPUServiceIPAMSpec(Model):
    """A pool of addresses: a network or a subnet. The fields for IPv4 are older; the others take IPv6, too."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                "[has(self.ipv4Network), has(self.ipv4Subnet), has(self.network), has(self.subnet)]"
                ".exists_one(given, given)",
                "exactly one of ipv4Network, ipv4Subnet, network or subnet must be specified",
            )
        )
    )

    metadata: ObjectMeta | None = None
    """Labels and annotations of the pool in the DPU clusters."""
    ipv4_network: Network | None = None
    ipv4_subnet: Subnet | None = None
    network: Network | None = None
    subnet: Subnet | None = None
    cluster_selector: LabelSelector | None = None
    """The older name of dpuClusterSelector."""
    dpu_cluster_selector: LabelSelector | None = None
    node_selector: NodeSelector | None = None


class ClusterAllocation(Model):
    """The part of the pool that a DPU cluster has."""

    dpu_cluster: str
    """The DPUCluster as NAMESPACE/NAME."""
    ip_ranges: list[IPRange] | None = None


class DPUServiceIPAMStatus(Model):
    """The state of a pool."""

    conditions: Conditions = None
    observed_generation: ObservedGeneration = None
    dpu_cluster_allocations: Annotated[
        list[ClusterAllocation] | None,
        Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["dpuCluster"]}),
    ] = None


class DPUServiceIPAM(Model):
    """A pool of addresses for services on DPUs."""

    model_config = named(63)

    spec: DPUServiceIPAMSpec | None = None
    status: DPUServiceIPAMStatus | None = None


class CNIPlugin(Model):
    """A plugin after the one for the virtual switch."""

    type: Literal["rdma"]
    """The plugin."""
    config: AnyObject | None = None
    """Settings of the plugin."""


class DPUServiceNADSpec(Model):
    """A network."""

    metadata: ObjectMeta | None = None
    """Deprecated: unused."""
    dpu_cluster_selector: LabelSelector | None = None
    resource_type: Literal["vf", "sf", "veth"]
    """The sort of interface that a pod gets."""
    bridge: str | None = None
    """The bridge that interfaces are connected to."""
    service_mtu: Annotated[ServiceMTU, Field(alias="serviceMTU")] = 1500
    """The MTU of interfaces that no chain connects."""
    ipam: bool | None = None
    """Whether interfaces get an address, from the pool that their chain names."""
    chained_cnis: Annotated[list[CNIPlugin] | None, Field(alias="chainedCNIs")] = None


class DPUServiceNADStatus(Model):
    """The state of a network."""

    conditions: Conditions = None


class DPUServiceNAD(Model):
    """A network for services: it becomes a NetworkAttachmentDefinition in the DPU clusters."""

    model_config = named(63)

    spec: DPUServiceNADSpec | None = None
    status: DPUServiceNADStatus | None = None


DPU_SERVICE_IPAM = Kind(
    name="DPUServiceIPAM",
    plural="dpuserviceipams",
    model=DPUServiceIPAM,
    group=SERVICES,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
    columns=(READY, PHASE_OF_READY, AGE),
    admission=pool_faults,
)
DPU_SERVICE_NAD = Kind(
    name="DPUServiceNAD",
    plural="dpuservicenads",
    model=DPUServiceNAD,
    group=SERVICES,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
)
