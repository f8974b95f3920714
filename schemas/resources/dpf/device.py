"""DPUDevice: a DPU as hardware."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.resources.dpf.names import PROVISIONING, VERSION
from schemas.resources.dpf.types import (
    READY,
    AnyObject,
    Conditions,
    DPUMode,
    DPUType,
    Int32,
    IPv4,
    StringMap,
    Time,
    immutable,
    named,
)
from schemas.resources.kinds import Kind
from schemas.resources.model import Model

FINALIZER = f"{PROVISIONING}/dpudevice-protection"
CONDITIONS = (
    "Discovered",
    "NodeAttached",
    "ResettingBMC",
    "BMCFactoryResetReady",
    "Initialized",
    "Error",
    "Ready",
    "BMCCredentialsReady",
    "BMCServerCertificateReady",
)

FactoryReset = Literal["OnInitialization", "Never"]
BMCPort = Annotated[Int32, Field(ge=1)]


class DeviceCluster(Model):
    """Labels and annotations of the DPU's node in its DPU cluster."""

    node_labels: StringMap | None = None
    """Labels of the node."""
    node_annotations: StringMap | None = None
    """Annotations of the node."""


class DPUDeviceSpec(Model):
    """The device. Fields that later releases read from the device are deprecated here."""

    serial_number: Annotated[str, Field(min_length=1, json_schema_extra=immutable("Serial Number is immutable"))]
    """The serial number of the device."""
    psid: Annotated[str | None, Field(json_schema_extra=immutable("PSID is immutable"))] = None
    """The identity of the board's configuration. Deprecated."""
    opn: Annotated[str | None, Field(json_schema_extra=immutable("OPN is immutable"))] = None
    """The number that the board is ordered by. Deprecated."""
    bmc_ip: IPv4 | None = None
    """The address of the BMC."""
    bmc_port: Annotated[BMCPort, Field(json_schema_extra=immutable("BMCPort is immutable"))] = 443
    """The port of the BMC's Redfish service."""
    number_of_pfs: Annotated[
        int, Field(alias="numberOfPFs", ge=1, json_schema_extra=immutable("Number of PFs is immutable"))
    ] = 1
    """Physical functions of the device."""
    pf0_name: Annotated[str | None, Field(json_schema_extra=immutable("PF0 Name is immutable"))] = None
    """The name of the first physical function on the host. Deprecated."""
    bmc_credential_secret_name: str | None = None
    """The Secret with the password of this BMC; by default the one that all BMCs share."""
    bmc_factory_reset_policy: FactoryReset = "OnInitialization"
    """Whether the BMC is reset to its factory state before its first use."""
    cluster: DeviceCluster | None = None
    nic_device_count: Annotated[
        int | None, Field(ge=1, le=8, json_schema_extra=immutable("NICDeviceCount is immutable"))
    ] = None
    """NICs that the agent on the DPU configures; by default 8."""
    values: AnyObject | None = None
    """Values for a DPUFlavorTemplate."""


class BMCCertificate(Model):
    """The certificate that the BMC shows."""

    last_rotation_time: Time | None = None
    not_after: Time | None = None
    observed_manual_trigger: str | None = None


class TrustBundle(Model):
    """The certificate authorities that the BMC trusts."""

    last_update_time: Time | None = None
    observed_bundle_hash: str | None = None


class DeviceSecureBoot(Model):
    """UEFI Secure Boot of the device."""

    enabled: bool | None = None


class DPUDeviceStatus(Model):
    """The device as it was found."""

    psid: str | None = None
    serial_number: str | None = None
    opn: str | None = None
    bmc_ip: IPv4 | None = None
    bmc_port: BMCPort = 443
    pci_address: str | None = None
    pf0_name: str | None = None
    pf0_mac: Annotated[str | None, Field(pattern=r"^([0-9A-Fa-f]{2}[:-]){5}([0-9A-Fa-f]{2})$")] = None
    dpu_type: DPUType = "Unknown"
    dpu_mode: DPUMode = "dpu"
    secure_boot: DeviceSecureBoot | None = None
    bmc_credential_secret_name: str | None = None
    bmc_factory_reset_request_time: Time | None = None
    bmc_server_certificate: BMCCertificate | None = None
    ca_trust_bundle: TrustBundle | None = None
    conditions: Conditions = None


class DPUDevice(Model):
    """A DPU as hardware, from its discovery on."""

    model_config = named(63)

    spec: DPUDeviceSpec | None = None
    status: DPUDeviceStatus | None = None


DPU_DEVICE = Kind(
    name="DPUDevice",
    plural="dpudevices",
    model=DPUDevice,
    group=PROVISIONING,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
    columns=(READY,),
)
