"""The fields of DPUServices, chains, interfaces, address pools and networks that derivations use."""

from __future__ import annotations

import msgspec

from projections.resources.specs import JSON, Labels, Named, Spec


class ObjectMeta(Spec, frozen=True):
    """Labels and annotations of objects that are made from a template."""

    labels: Labels | None = None
    annotations: Labels | None = None


class ClusterSelecting(Spec, frozen=True):
    """A spec for the DPU clusters with these labels; `clusterSelector` is the older name."""

    cluster_selector: JSON | None = None
    dpu_cluster_selector: JSON | None = None

    @property
    def clusters(self) -> JSON | None:
        return self.dpu_cluster_selector or self.cluster_selector


class ServiceSpec(ClusterSelecting, frozen=True):
    """A DPUService."""

    service_id: str | None = msgspec.field(default=None, name="serviceID")
    deploy_in_cluster: bool | None = None
    interfaces: tuple[str, ...] | None = None


class SetTemplate(Spec, frozen=True):
    """The ServiceChainSet or ServiceInterfaceSet of each DPU cluster."""

    metadata: ObjectMeta | None = None
    spec: JSON = msgspec.field(default_factory=dict)


class SetSpec(ClusterSelecting, frozen=True):
    """A DPUServiceChain or DPUServiceInterface."""

    template: SetTemplate = SetTemplate()


class ServiceEnd(Spec, frozen=True):
    """An interface of a service's pod."""

    service_id: str = msgspec.field(default="", name="serviceID")


class InterfaceSpec(Spec, frozen=True):
    """The interface of each node."""

    interface_type: str = ""
    service: ServiceEnd | None = None


class InterfaceTemplate(Spec, frozen=True):
    """The ServiceInterface of each node."""

    metadata: ObjectMeta | None = None
    spec: InterfaceSpec = InterfaceSpec()


class InterfaceSetSpec(Spec, frozen=True):
    """The `template.spec` of a DPUServiceInterface."""

    template: InterfaceTemplate = InterfaceTemplate()


class InterfaceReference(Spec, frozen=True):
    """Interfaces by their labels."""

    match_labels: Labels | None = None


class ChainPort(Spec, frozen=True):
    """A port of a switch."""

    service_interface: InterfaceReference | None = None


class ChainSwitch(Spec, frozen=True):
    """Ports that are connected."""

    ports: tuple[ChainPort, ...] = ()


class ChainSpec(Spec, frozen=True):
    """The chain of each node."""

    switches: tuple[ChainSwitch, ...] = ()


class ChainTemplate(Spec, frozen=True):
    """The ServiceChain of each node."""

    spec: ChainSpec = ChainSpec()


class ChainSetSpec(Spec, frozen=True):
    """The `template.spec` of a DPUServiceChain."""

    template: ChainTemplate = ChainTemplate()


class IPRange(Spec, frozen=True):
    """Addresses from the first to the last one."""

    start_ip: str = msgspec.field(default="", name="startIP")
    end_ip: str = msgspec.field(default="", name="endIP")


class IPv4Network(Spec, frozen=True):
    """A network that is split into a subnet for each node."""

    network: str = ""
    gateway_index: int | None = None
    prefix_size: int = 0
    exclusions: tuple[str, ...] | None = None
    exclude_ranges: tuple[IPRange, ...] | None = None
    allocations: Labels | None = None
    default_gateway: bool | None = None
    routes: list[JSON] | None = None
    subnets_per_dpu_cluster: int | None = msgspec.field(default=None, name="subnetsPerDPUCluster")


class IPv4Subnet(Spec, frozen=True):
    """A subnet that is split into a block for each node."""

    subnet: str = ""
    gateway: str = ""
    per_node_ip_count: int = msgspec.field(default=0, name="perNodeIPCount")
    exclude_ranges: tuple[IPRange, ...] | None = None
    default_gateway: bool | None = None
    routes: list[JSON] | None = None
    blocks_per_dpu_cluster: int | None = msgspec.field(default=None, name="blocksPerDPUCluster")


class IPAMSpec(ClusterSelecting, frozen=True):
    """A DPUServiceIPAM."""

    metadata: ObjectMeta | None = None
    ipv4_network: IPv4Network | None = None
    ipv4_subnet: IPv4Subnet | None = None
    node_selector: JSON | None = None


class CNIPlugin(Spec, frozen=True):
    """A plugin after the one for the virtual switch."""

    type: str = ""
    config: JSON | None = None


class NADSpec(ClusterSelecting, frozen=True):
    """A DPUServiceNAD."""

    resource_type: str = ""
    bridge: str | None = None
    service_mtu: int | None = msgspec.field(default=None, name="serviceMTU")
    ipam: bool | None = None
    chained_cnis: tuple[CNIPlugin, ...] | None = msgspec.field(default=None, name="chainedCNIs")


class NamespacedName(Named, frozen=True):
    """An object; without a namespace it is in `default`."""

    namespace: str | None = None


class CredentialRequestSpec(Spec, frozen=True):
    """A DPUServiceCredentialRequest."""

    target_cluster: NamespacedName | None = None
