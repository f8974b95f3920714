"""The status of a DPU: its phase, its conditions and what the agent inside it reports."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.resources.dpf.flavor import ServiceReadinessGate
from schemas.resources.dpf.types import (
    ConditionMap,
    Conditions,
    DeploymentMode,
    DPUMode,
    DPUType,
    InstallInterface,
    Int32,
    ObservedGeneration,
    RebootMethod,
    Time,
    immutable,
)
from schemas.resources.model import Model, validated

Phase = Literal[
    "Initializing",
    "Pending",
    "Node Effect",
    "DMS Deployment",
    "Initialize Interface",
    "Perform ARM Force Restart",
    "Update Firmware",
    "Config FW Parameters",
    "Prepare BFB",
    "OS Installing",
    "DPU Config",
    "Checking Host Reboot Required",
    "Rebooting",
    "Host Network Configuration",
    "DPU Cluster Config",
    "Service Readiness",
    "Node Effect Removal",
    "Ready",
    "Error",
    "Deleting",
]
"""The phases of both generations; DMS Deployment is of release 24.10 only."""
RebootPhase = Literal["WaitForShutdown", "Pending", "Succeeded", "Failed", "Unknown"]


class Outdated(Model):
    """The difference between the DPU and the template of its DPUSet."""

    time_stamp: Time
    reason: str
    """One of OUTDATED_REASONS."""
    message: str


class Firmware(Model):
    """Versions of the firmware."""

    bmc: str | None = None
    nic: str | None = None
    uefi: str | None = None


class NodeAddress(Model):
    """An address of the DPU's node."""

    type: str
    address: str


class NVConfigEntry(Model):
    """A firmware setting that waits for a reset."""

    name: str | None = None
    default: str | None = None
    current: str | None = None
    next_boot: Annotated[str | None, Field(alias="next_boot")] = None


class NVConfigDevice(Model):
    """The waiting settings of a port."""

    device: str | None = None
    entries: list[NVConfigEntry]


class PendingNVConfig(Model):
    """The waiting settings at the start of the DPU."""

    boot_id: Annotated[str | None, Field(alias="bootID")] = None
    devices: list[NVConfigDevice] | None = None


class PreInstall(Model):
    """Work of the agent before the system is installed again."""

    agent_reported: Time | None = None
    conditions: ConditionMap = None


class Clock(Model):
    """Two readings of the same moment: a DPU whose clock is wrong cannot verify certificates."""

    dpu_time: Time
    host_time: Time


class Spiffe(Model):
    """The heartbeat of the agent's identity."""

    last_probe_time: Time | None = None
    last_probe_message: Annotated[str | None, Field(max_length=256)] = None


class HostOSInitSkipped(Model):
    """The host was not held."""

    reason: str | None = None
    message: str | None = None


class HostOSInitSucceeded(Model):
    """The host was released."""

    gate: ServiceReadinessGate | None = None


class HostOSInit(Model):
    """The release of a host that waits for the DPU's services while it starts."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            ("has(self.skipped) != has(self.succeeded)", "exactly one of skipped or succeeded must be set")
        )
    )

    skipped: HostOSInitSkipped | None = None
    succeeded: HostOSInitSucceeded | None = None


class AgentStatus(Model):
    """The report of the agent inside the DPU."""

    last_startup_time: Time | None = None
    initial_boot_id: Annotated[str | None, Field(alias="initialBootID")] = None
    reboot_method: RebootMethod | None = None
    last_observed_pending_nvconfig: PendingNVConfig | None = None
    reboot_sequence_count: Annotated[Int32 | None, Field(ge=0)] = None
    kubelet_version: str | None = None
    pre_install: PreInstall | None = None
    trust_bundle_hash: str | None = None
    trust_bundle_last_update_time: Time | None = None
    clock: Clock | None = None
    conditions: Conditions = None
    spiffe: Spiffe | None = None
    host_os_init: Annotated[HostOSInit | None, Field(alias="hostOSInit")] = None


class RebootStatus(Model):
    """The progress of a reboot of the host."""

    phase: RebootPhase | None = None
    method: RebootMethod | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: Time | None = None


class SecureBootStatus(Model):
    """UEFI Secure Boot of the DPU."""

    enabled: bool | None = None


class DPUStatus(Model):
    """The state of a DPU."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                "!has(oldSelf.identityMode) || (has(self.identityMode) && self.identityMode == oldSelf.identityMode)",
                "identityMode is immutable once set: can only transition from unset to a value",
            )
        )
    )

    phase: Phase = "Initializing"
    previous_phase: Phase | None = None
    outdated: Outdated | None = None
    conditions: Conditions = None
    operational_conditions: ConditionMap = None
    """The health of the DPU in service."""
    bfb_file: str | None = None
    bf_cfg_file: Annotated[str | None, Field(alias="bfCFGFile")] = None
    bfb_version: str | None = None
    dpf_version: Annotated[str | None, Field(json_schema_extra=immutable())] = None
    pci_device: str | None = None
    required_reset: bool | None = None
    firmware: Firmware | None = None
    addresses: list[NodeAddress] | None = None
    dpu_install_interface: InstallInterface | None = None
    post_provisioning_node_effect: bool | None = None
    observed_generation: ObservedGeneration = None
    dpu_type: DPUType = "Unknown"
    agent_last_startup_time: Time | None = None
    agent_status: AgentStatus | None = None
    reboot_status: RebootStatus | None = None
    dpu_mode: DPUMode = "dpu"
    deployment_mode: DeploymentMode | None = None
    hostless: bool | None = None
    secure_boot: SecureBootStatus | None = None
    identity_mode: Literal["spiffe", "bootstrap-token"] | None = None
    redfish_task_id: str | None = None
