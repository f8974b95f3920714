"""DPUFlavor and DPUFlavorTemplate: how the system on a DPU is configured.

Some fields of a flavor may be edited in place, as in the current release; release 24.10 refuses every edit. DPUs of an
edited flavor are installed anew in the waves of their rollouts. The other fields never change: another flavor is the
way.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.resources.dpf.admission import flavor_faults
from schemas.resources.dpf.flavor_parts import (
    ConfigFile,
    HostInterface,
    NICConfiguration,
    NVConfig,
    Package,
    ScalableFunction,
    SystemdService,
    VirtualFunction,
)
from schemas.resources.dpf.names import PROVISIONING, VERSION
from schemas.resources.dpf.types import DPUMode, Name, Quantities
from schemas.resources.kinds import Kind
from schemas.resources.model import Model, validated

SPECIAL_PARAMETERS = ("NUM_OF_VFS", "PF_TOTAL_SF")
"""Parameters of nvconfig that the plane reads: the virtual functions of the host, and the scalable functions of the DPU
that are created when it starts."""

ServiceReadinessGate = Literal["DPUServiceCriticalPodsReady", "OperationalReady"]

_ATOMIC = {"x-kubernetes-list-type": "atomic"}
_DEVICE = "(has({0}.device) ? {0}.device.lowerAscii() : '*')"
_NVCONFIG = validated(
    (
        "size(self) == 0 || !self.exists(x, has(x.device) && x.device == '*') || size(self) == 1",
        "when device is '*', it must be the only nvconfig entry",
    ),
    (
        "size(self) == 0 || !self.exists(x, !has(x.device)) || size(self) == 1",
        "when device is unspecified (defaults to '*'), it must be the only nvconfig entry",
    ),
    (
        f"self.all(p1, self.exists_one(p2, {_DEVICE.format('p1')} == {_DEVICE.format('p2')}))",
        "each nvconfig.device (including unspecified as '*') must be unique (case-insensitive)",
    ),
)


_INLINE_FILES = "(has({0}.configFiles) ? {0}.configFiles.filter(f, !has(f.type) || f.type == 'cloud-init') : [])"


def _fixed(name: str) -> tuple[str, str]:
    """The rule that a field is neither changed, nor added, nor removed."""
    absent = f"(!has(self.{name}) && !has(oldSelf.{name}))"
    same = f"(has(self.{name}) && has(oldSelf.{name}) && self.{name} == oldSelf.{name})"
    return f"{absent} || {same}", f"{name} is immutable"


_FIXED = validated(
    *map(
        _fixed,
        ("dpuMode", "bfcfgParameters", "dpuResources", "systemReservedResources", "hostNetworkInterfaceConfigs"),
    ),
    (
        f"{_INLINE_FILES.format('self')} == {_INLINE_FILES.format('oldSelf')}",
        "configFiles with type cloud-init (the default) are immutable",
    ),
)


def _unique(what: str) -> dict[str, object]:
    return validated(("self.all(x, self.exists_one(y, x.name == y.name))", f"{what} names must be unique"))


class Grub(Model):
    """The boot loader."""

    kernel_parameters: list[str] | None = None
    """Parameters of the kernel's command line."""


class Sysctl(Model):
    """Settings of the kernel."""

    parameters: list[str] | None = None
    """Settings as KEY=VALUE."""


class OVS(Model):
    """The virtual switch of the DPU."""

    raw_config_script: str | None = None
    """A script that runs once, after the installation."""


class Containerd(Model):
    """The container runtime of the DPU."""

    registry_endpoint: str | None = None
    """The mirror that images are pulled from."""


class DMA(Model):
    """The function that moves memory for storage services."""

    enabled: bool | None = None
    """Whether the function is created."""


class ServiceReadiness(Model):
    """What must be ready before the DPU is put into service."""

    gate: ServiceReadinessGate | None = None
    """The condition of the DPU that must be true; without one, nothing is waited for."""


class DPUFlavorSpec(Model):
    """The configuration of a DPU."""

    model_config = ConfigDict(json_schema_extra=_FIXED)

    grub: Grub | None = None
    sysctl: Sysctl | None = None
    nvconfig: Annotated[list[NVConfig] | None, Field(max_length=3, json_schema_extra={**_NVCONFIG, **_ATOMIC})] = None
    """Firmware settings, by port."""
    ovs: OVS | None = None
    bfcfg_parameters: list[str] | None = None
    """Lines for bf.cfg as KEY=VALUE."""
    config_files: Annotated[list[ConfigFile] | None, Field(max_length=1_024)] = None
    """Files on the DPU. Their number has a limit because an API server refuses the rule about them without one."""
    packages: Annotated[list[Package] | None, Field(max_length=64, json_schema_extra=_unique("package"))] = None
    systemd_services: Annotated[
        list[SystemdService] | None, Field(max_length=64, json_schema_extra=_unique("systemd service"))
    ] = None
    containerd_config: Containerd | None = None
    dpu_resources: Quantities | None = None
    """The resources that a DPU must have for this flavor."""
    system_reserved_resources: Quantities | None = None
    """The part of dpuResources that services cannot use."""
    dpu_mode: DPUMode | None = None
    """The mode of the device; later releases take it from DPFOperatorConfig."""
    host_network_interface_configs: list[HostInterface] | None = None
    ew_nic_configurations: Annotated[list[NICConfiguration] | None, Field(max_length=16, json_schema_extra=_ATOMIC)] = (
        None
    )
    """NICs for traffic between hosts; the first entry is applied."""
    scalable_functions: Annotated[list[ScalableFunction] | None, Field(max_length=16, json_schema_extra=_ATOMIC)] = None
    virtual_functions: Annotated[list[VirtualFunction] | None, Field(max_length=16, json_schema_extra=_ATOMIC)] = None
    dma: DMA | None = None
    service_readiness: ServiceReadiness | None = None


class DPUFlavor(Model):
    """The configuration of DPUs of one sort."""

    spec: DPUFlavorSpec | None = None


class DPUFlavorTemplateSpec(Model):
    """A flavor that is rendered for each DPU with the values of its DPUDevice."""

    template: Name
    """The spec of a DPUFlavor as text with the actions of Go templates."""
    dpu_resources: Quantities | None = None
    """The resources that a DPU must have for these flavors."""
    system_reserved_resources: Quantities | None = None
    """The part of dpuResources that services cannot use."""


class DPUFlavorTemplate(Model):
    """A template for flavors."""

    spec: DPUFlavorTemplateSpec | None = None


DPU_FLAVOR = Kind(
    name="DPUFlavor",
    plural="dpuflavors",
    model=DPUFlavor,
    group=PROVISIONING,
    version=VERSION,
    is_namespaced=True,
    has_status=False,
    keeps_definition=True,
    admission=flavor_faults,
)
DPU_FLAVOR_TEMPLATE = Kind(
    name="DPUFlavorTemplate",
    plural="dpuflavortemplates",
    model=DPUFlavorTemplate,
    group=PROVISIONING,
    version=VERSION,
    is_namespaced=True,
    has_status=False,
    keeps_definition=True,
)
