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


class ChartSource(Spec, frozen=True):
    """A Helm chart in a repository."""

    repo_url: str = msgspec.field(default="", name="repoURL")
    path: str | None = None
    version: str = ""
    chart: str | None = None
    release_name: str | None = None


class HelmChart(Spec, frozen=True):
    """A Helm chart and its values."""

    source: ChartSource = ChartSource()
    values: JSON | None = None


class ConfigPort(Named, frozen=True):
    """A port of a service that hosts can reach."""

    port: int = 0
    protocol: str = "TCP"
    node_port: int | None = None


class ConfigPorts(Spec, frozen=True):
    """The ports of a service that hosts can reach."""

    service_type: str = "NodePort"
    ports: tuple[ConfigPort, ...] = ()


class DaemonSetSettings(Spec, frozen=True):
    """Settings of the DaemonSet of a chart."""

    node_selector: JSON | None = None
    update_strategy: JSON | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    resources: JSON | None = None


class ServiceSpec(ClusterSelecting, frozen=True):
    """A DPUService."""

    helm_chart: HelmChart = HelmChart()
    service_id: str | None = msgspec.field(default=None, name="serviceID")
    service_daemon_set: DaemonSetSettings = DaemonSetSettings()
    deploy_in_cluster: bool | None = None
    interfaces: tuple[str, ...] | None = None
    paused: bool | None = None
    config_ports: ConfigPorts | None = None


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
    network: str = ""
    interface_name: str = ""


class Port(Spec, frozen=True):
    """A port of the device, or a function of a NIC."""

    interface_name: str = ""
    pf_id: int = msgspec.field(default=0, name="pfID")
    vf_id: int = msgspec.field(default=0, name="vfID")


class InterfaceSpec(Spec, frozen=True):
    """The interface of each node."""

    interface_type: str = ""
    service: ServiceEnd | None = None
    physical: Port | None = None
    pf: Port | None = None
    vf: Port | None = None


class InterfaceTemplate(Spec, frozen=True):
    """The ServiceInterface of each node."""

    metadata: ObjectMeta | None = None
    spec: InterfaceSpec = InterfaceSpec()


class InterfaceSetSpec(Spec, frozen=True):
    """The `template.spec` of a DPUServiceInterface."""

    node_selector: JSON | None = None
    template: InterfaceTemplate = InterfaceTemplate()


class PortAddresses(Spec, frozen=True):
    """The pool of a port's addresses, by its labels."""

    match_labels: Labels | None = None
    default_gateway: bool | None = None
    set_default_route: bool | None = None


class InterfaceReference(Spec, frozen=True):
    """Interfaces by their labels."""

    match_labels: Labels | None = None
    ipam: PortAddresses | None = None


class ChainPort(Spec, frozen=True):
    """A port of a switch."""

    service_interface: InterfaceReference | None = None


class ChainSwitch(Spec, frozen=True):
    """Ports that are connected."""

    ports: tuple[ChainPort, ...] = ()
    service_mtu: int | None = msgspec.field(default=None, name="serviceMTU")


class ChainSpec(Spec, frozen=True):
    """The chain of each node."""

    switches: tuple[ChainSwitch, ...] = ()


class ChainTemplate(Spec, frozen=True):
    """The ServiceChain of each node."""

    spec: ChainSpec = ChainSpec()


class ChainSetSpec(Spec, frozen=True):
    """The `template.spec` of a DPUServiceChain."""

    node_selector: JSON | None = None
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

    service_account: NamespacedName = NamespacedName()
    duration: str | None = None
    target_cluster: NamespacedName | None = None
    type: str = "kubeconfig"
    secret: NamespacedName = NamespacedName()
    metadata: ObjectMeta | None = None
