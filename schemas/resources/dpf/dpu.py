"""DPU: one DPU from its selection by a DPUSet until it is deleted. Its node in its DPU cluster has the same name."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from schemas.resources.crds import DEFAULT
from schemas.resources.dpf.dpu_set import ClusterSpec
from schemas.resources.dpf.dpu_status import DPUStatus
from schemas.resources.dpf.names import PROVISIONING, VERSION
from schemas.resources.dpf.node_effect import DRAINED, NodeEffect
from schemas.resources.dpf.types import AGE, READY, Name, immutable
from schemas.resources.kinds import Column, Kind
from schemas.resources.model import Model, validated

FINALIZER = f"{PROVISIONING}/dpu-protection"
CONDITIONS = (
    "Initialized",
    "Pending",
    "BFBReady",
    "BlueFieldSoftwareReady",
    "DPUFlavorExists",
    "DPUFlavorRendered",
    "NodeEffectReady",
    "BFBPrepared",
    "InterfaceInitialized",
    "FWConfigured",
    "FWArmRestarted",
    "FwBundleSubmitted",
    "FwBundleUpdated",
    "FwBundleActivated",
    "FwBundleArmShutdown",
    "BFBTransferred",
    "IsoTransferred",
    "ConfigTransferred",
    "VirtualMediaInserted",
    "ChangeBootTarget",
    "ChassisReset",
    "OSInstalled",
    "Rebooted",
    "HostNetworkReady",
    "DPUClusterReady",
    "DPUConfig",
    "ServiceReadiness",
    "NodeEffectRemoved",
    "Deleting",
    "Ready",
    "Error",
    "ArmForceRestarted",
)
OLD_CONDITIONS = ("DMSRunning",)
"""Conditions of release 24.10 only."""
OPERATIONAL_CONDITIONS = (
    "OperationalReady",
    "NodeProblemsReady",
    "DPUServiceCriticalPodsReady",
    "DPUServiceNonCriticalPodsReady",
    "DPUServiceInterfacesReady",
    "DPUServiceChainsReady",
)
NODE_PROBLEMS = (
    "KernelDeadlock",
    "ReadonlyFilesystem",
    "OVSvSwitchdHealthy",
    "OVSDBHealthy",
    "OVSHealthy",
    "UplinkHealthy",
    "PFRepresentorsHealthy",
    "MTUConfigured",
)
"""Conditions of a DPU's node that node-problem-detector reports."""
OUTDATED_REASONS = ("OutdatedBFB", "OutdatedDPUFlavor", "OutdatedSecureBoot", "OutdatedBlueFieldSoftware")
"""Reasons why a DPU differs from its template; the first of several is reported."""


class DPUClusterReference(ClusterSpec):
    """The DPU cluster of the DPU. The allocator fills in its name and namespace."""

    name: Annotated[str | None, Field(json_schema_extra=immutable())] = None
    """The name of the DPUCluster."""
    namespace: Annotated[str | None, Field(json_schema_extra=immutable())] = None
    """The namespace of the DPUCluster."""


class DPUSpec(Model):
    """A DPU and how it is provisioned. Release 24.10 names its node, later releases its DPUNode and DPUDevice."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            ("has(self.bfb) != has(self.blueFieldSoftware)", "exactly one of bfb or blueFieldSoftware must be set"),
            ("has(self.dpuNodeName) != has(self.nodeName)", "exactly one of dpuNodeName or nodeName must be set"),
            (
                "has(self.nodeName) || (has(self.dpuDeviceName) && has(self.serialNumber) && has(self.dpuFlavor))",
                "dpuDeviceName, serialNumber and dpuFlavor must be set with dpuNodeName",
            ),
        )
    )

    node_name: Annotated[str | None, Field(json_schema_extra=immutable())] = None
    """The node of the cluster that the DPU is in (release 24.10)."""
    dpu_node_name: Annotated[str | None, Field(json_schema_extra=immutable())] = None
    """The DPUNode that the DPU is in."""
    dpu_device_name: Annotated[str | None, Field(min_length=1, json_schema_extra=immutable())] = None
    """The DPUDevice of the DPU."""
    bfb: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """The BFB that is installed."""
    blue_field_software: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """The BlueFieldSoftware that is installed."""
    serial_number: Annotated[str | None, Field(min_length=1, json_schema_extra=immutable())] = None
    """The serial number of the device."""
    pci_address: Annotated[str | None, Field(pattern=r"^([0-9a-fA-F]{4}[-])?[0-9a-fA-F]{2}[-][0-9a-fA-F]{2}$")] = None
    """The address of the device in the host, such as 0000-03-00."""
    node_effect: Annotated[NodeEffect | None, Field(json_schema_extra=DRAINED)] = None
    cluster: DPUClusterReference | None = None
    dpu_flavor: Annotated[Name | None, Field(json_schema_extra=immutable())] = None
    """The DPUFlavor that configures the DPU."""
    automatic_node_reboot: bool = True
    """Whether the host is rebooted when the installation needs it (release 24.10)."""
    astra_enabled: bool | None = None
    """Whether the NICs for traffic between hosts are configured, too."""
    secure_boot: Annotated[bool | None, Field(json_schema_extra=immutable())] = None
    """Whether UEFI Secure Boot must be on."""
    bmc_ip: Annotated[str | None, Field(alias="bmcIP")] = None
    """Deprecated: the DPUDevice has the address."""


class DPU(Model):
    """A DPU in the cluster's care."""

    spec: DPUSpec | None = None
    status: Annotated[DPUStatus | None, Field(json_schema_extra={DEFAULT: {"phase": "Initializing"}})] = None


DPU_KIND = Kind(
    name="DPU",
    plural="dpus",
    model=DPU,
    group=PROVISIONING,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
    columns=(
        READY,
        Column("Operational", ".status.operationalConditions[?(@.type=='OperationalReady')].status"),
        Column("Phase", ".status.phase", description="phase of the dpu"),
        AGE,
    ),
)
