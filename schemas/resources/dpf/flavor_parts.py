"""The lists of a DPUFlavor: firmware settings, files, packages, services and network functions of a DPU."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.resources.dpf.types import MAX_MTU, MIN_MTU, Int32, Name
from schemas.resources.model import Model, validated

PORT = r"^(\*|[pP][0-9]+|[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])$"
POOL = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
MAC = r"^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$"
CPU_LIST = r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"

Parameter = Annotated[str, Field(max_length=200, pattern=r"^[^=\s]+=[^\s]*$")]
Text253 = Annotated[str, Field(min_length=1, max_length=253)]
Port = Annotated[str, Field(pattern=PORT)]
Pool = Annotated[str, Field(max_length=63, pattern=POOL)]
Mac = Annotated[str, Field(pattern=MAC)]

_ONE_MAC = ("!has(self.options) || !has(self.options.macAddress) || self.count == 1", "macAddress requires count == 1")
_ENABLED = "has(self.spectrumXOptimized) && self.spectrumXOptimized.enabled"


class NVConfig(Model):
    """Firmware settings of a port."""

    device: Literal["*", "p0", "p1", "P0", "P1"] | None = None
    """The port; by default all of them."""
    parameters: Annotated[
        list[Parameter] | None,
        Field(min_length=1, max_length=64, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = None
    """Settings as KEY=VALUE."""
    force: bool | None = None
    """Whether the settings are written even where the firmware does not show them."""
    host_power_cycle_required: bool | None = None
    """Whether the settings need a power cycle of the host (release 24.10)."""


class ConfigMapKey(Model):
    """A key of a ConfigMap."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: str = ""
    """The name of the ConfigMap."""
    key: str
    """The key with the content."""
    optional: bool | None = None
    """Whether the ConfigMap or the key may be missing."""


class ContentFrom(Model):
    """The source of a file's content."""

    config_map_key_ref: ConfigMapKey | None = None


class ConfigFile(Model):
    """A file on the DPU."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            ("!(has(self.raw) && has(self.contentFrom))", "only one of raw or contentFrom can be specified"),
            (
                "!has(self.contentFrom) || has(self.contentFrom.configMapKeyRef)",
                "contentFrom.configMapKeyRef must be specified",
            ),
            ("self.type != 'cloud-init' || !has(self.contentFrom)", "type cloud-init supports raw only"),
            ("self.type != 'agent-applied' || has(self.contentFrom)", "type agent-applied supports contentFrom only"),
        )
    )

    type: Literal["cloud-init", "agent-applied"] = "cloud-init"
    """When the file is written: with the installation, or later by the agent on the DPU."""
    path: str | None = None
    """The path of the file on the DPU."""
    operation: Literal["override", "append"] | None = None
    """Whether the content replaces the file or is added at its end."""
    raw: str | None = None
    """The content."""
    content_from: ContentFrom | None = None
    permissions: str | None = None
    """The permissions of the file, such as 0644."""


class PackageVersion(Model):
    """The version that a package must have."""

    value: Name
    """The version."""
    match_policy: Literal["Exact", "AtLeast"] = "AtLeast"
    """Whether exactly this version is needed, or a later one will do."""


class Package(Model):
    """A package that must be on the DPU."""

    name: Text253
    """The name of the package."""
    version: PackageVersion | None = None
    repo_file_ref: str | None = None
    """The repository file that the package must come from."""


class SystemdService(Model):
    """A service of the system that must be started or enabled."""

    name: Text253
    """The name of the service."""
    operation: Literal["Start", "Enable", "EnableAndStart"]
    """Whether the service is started, enabled or both."""


class HostInterface(Model):
    """A port of the DPU as the host sees it."""

    port_number: Annotated[Int32, Field(ge=0, le=1)]
    """The number of the port."""
    mtu: Annotated[Int32 | None, Field(ge=MIN_MTU, le=MAX_MTU)] = None
    """The MTU of the interface."""
    dhcp: bool | None = None
    """Whether the interface gets its address by DHCP."""
    nvconfig: NVConfig | None = None


class SpectrumX(Model):
    """Settings of a Spectrum-X network."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                "(self.multiplaneMode == 'none') == (self.numberOfPlanes == 1)",
                "numberOfPlanes must be 1 if and only if multiplaneMode is none",
            ),
            (
                "!(self.version in ['RA1.3', 'RA2.0']) || self.multiplaneMode == 'none'",
                "versions RA1.3 and RA2.0 need the multiplaneMode none",
            ),
        )
    )

    enabled: bool
    """Whether the NICs are tuned for Spectrum-X."""
    version: Literal["RA1.3", "RA2.0", "RA2.1", "RA2.2"]
    """The version of the reference architecture."""
    overlay: Literal["l3", "none"] = "none"
    """The overlay network."""
    multiplane_mode: Literal["none", "swplb", "hwplb", "uniplane"] = "none"
    """How traffic is spread over planes."""
    number_of_planes: Literal[1, 2, 4] = 1
    """The number of planes."""


class NICParameter(Model):
    """A firmware setting of a NIC."""

    name: str
    """The name of the setting."""
    value: str
    """The value of the setting."""


class NetworkBay(Model):
    """The configuration of a card with several NICs."""

    conf: Name
    """The configuration of the card."""


class NICConfiguration(Model):
    """The configuration of NICs for traffic between hosts."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                f"!({_ENABLED}) || ((!has(self.linkType) || self.linkType == 'Ethernet') && self.numVfs == 1)",
                "spectrumXOptimized needs the linkType Ethernet, or none with networkBay, and one virtual function",
            ),
            ("has(self.networkBay) != has(self.linkType)", "exactly one of networkBay or linkType must be set"),
        )
    )

    num_vfs: int
    """The number of virtual functions."""
    link_type: Literal["Ethernet", "Infiniband"] | None = None
    """The type of the link; a card with networkBay has its own."""
    spectrum_x_optimized: Annotated[SpectrumX | None, Field(alias="spectrumXOptimized")] = None
    raw_nv_config: list[NICParameter] | None = None
    network_bay: NetworkBay | None = None
    force: bool = False
    """Whether settings are written even if they depend on others."""


class FunctionOptions(Model):
    """Settings of virtual functions."""

    mac_address: Mac | None = None
    """The MAC address, for a single function."""


class ScalableFunctionOptions(FunctionOptions):
    """Settings of scalable functions."""

    sf_num_start: Annotated[Int32 | None, Field(ge=0, le=65_535)] = None
    """The number of the first function."""
    trusted: bool | None = None
    """Whether the functions are trusted."""
    controller: Annotated[Int32 | None, Field(ge=0, le=15)] = None
    """The controller that the functions belong to."""
    cpu_list: Annotated[str | None, Field(max_length=200, pattern=CPU_LIST)] = None
    """The processors that serve the functions, such as 0-3."""
    disable_roce: Annotated[bool | None, Field(alias="disableRoCE")] = None
    """Whether RDMA over Ethernet is off."""
    disable_netdev: bool | None = None
    """Whether the functions have no network interface."""


class VirtualFunction(Model):
    """Virtual functions to create on each selected port."""

    model_config = ConfigDict(json_schema_extra=validated(_ONE_MAC))

    count: Annotated[Int32, Field(ge=0)]
    """The number of functions on each port."""
    device: Port | None = None
    """The port: a name such as p0, a PCI address, or * for all."""
    pool_name: Pool | None = None
    """The resource that pods ask for."""
    options: FunctionOptions | None = None


class ScalableFunction(Model):
    """Scalable functions to create on each selected port."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            _ONE_MAC,
            (
                "!has(self.hostDevice) || !self.hostDevice || !has(self.poolName)",
                "poolName must not be set when hostDevice is true",
            ),
        )
    )

    count: Annotated[Int32, Field(ge=0)]
    """The number of functions on each port."""
    device: Port | None = None
    """The port: a name such as p0, a PCI address, or * for all."""
    host_device: bool | None = None
    """Whether the functions are created on the host."""
    pool_name: Pool | None = None
    """The resource that pods ask for."""
    options: ScalableFunctionOptions | None = None
