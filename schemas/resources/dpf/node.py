"""DPUNode and DPUNodeMaintenance: a host with DPUs, and the times at which its workload must make way."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from schemas.resources.crds import DEFAULT
from schemas.resources.dpf.names import PROVISIONING, VERSION
from schemas.resources.dpf.node_effect import NodeEffect
from schemas.resources.dpf.types import (
    Conditions,
    InstallInterface,
    Int32,
    IPv4,
    Name,
    RebootMethod,
    Time,
    immutable,
    named,
)
from schemas.resources.kinds import Kind
from schemas.resources.model import Model

FINALIZER = f"{PROVISIONING}/dpunode-protection"
CONDITIONS = (
    "Ready",
    "InvalidDPUDetails",
    "DPUNodeRebootInProgress",
    "DPUUpdateInProgress",
    "NeedHostAgentUpgrade",
    "OOBBridgeConfigured",
    "RshimAvailable",
    "DPUNodeNodeEffectInProgress",
)
MAINTENANCE_CONDITIONS = ("NodeEffectApplied",)
MAX_NAME = 48
REBOOT_METHODS = ("hostAgent", "external", "script", "none")
REBOOT_ORDER = (
    "PowerCycle",
    "SystemLevelReset",
    "SystemReboot",
    "FirmwareReset",
    "DPUWarmReboot",
    "NoAction",
    "Unknown",
)
"""Reboots from the most to the least thorough: a host gets the most thorough one that any of its DPUs needs."""


def _one_method() -> str:
    """The rule that one method is given; gNOI is the older name of hostAgent, and both may be given."""
    counted = ["(has(self.hostAgent) || has(self.gNOI) ? 1 : 0)"]
    counted += [f"(has(self.{method}) ? 1 : 0)" for method in REBOOT_METHODS[1:]]
    return f"{' + '.join(counted)} == 1"


class Nothing(Model):
    """A choice without settings."""


class Script(Model):
    """A reboot by a Job."""

    name: Name
    """The ConfigMap with the template of the Job's pod under pod-template."""


class NodeRebootMethod(Model):
    """How the host is rebooted."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {"rule": _one_method(), "message": "only one of hostAgent, external, script, none can be set"}
            ]
        }
    )

    g_noi: Annotated[Nothing | None, Field(alias="gNOI")] = None
    host_agent: Nothing | None = None
    external: Nothing | None = None
    """Somebody reboots the host when an annotation asks for it."""
    script: Script | None = None
    none: Nothing | None = None
    """The DPU has no host that must be rebooted."""


class DPUReference(Model):
    """A DPUDevice of the host."""

    name: Name
    """The name of the DPUDevice."""


class DMSAddress(Model):
    """Where the installer of the host listens. Deprecated: no longer used."""

    ip: IPv4
    """The address."""
    port: Annotated[int, Field(ge=1)]
    """The port."""


class DPUNodeSpec(Model):
    """The host."""

    node_reboot_method: Annotated[NodeRebootMethod | None, Field(json_schema_extra={DEFAULT: {"hostAgent": {}}})] = None
    node_dms_address: Annotated[DMSAddress | None, Field(alias="nodeDMSAddress")] = None
    dpus: list[DPUReference] | None = None


class DPUNodeStatus(Model):
    """The state of the host."""

    conditions: Conditions = None
    dpu_install_interface: InstallInterface | None = None
    kube_node_ref: Annotated[str | None, Field(json_schema_extra=immutable("KubeNodeRef is immutable"))] = None
    """The Node of the host, if it is a node of this cluster."""
    reboot_in_progress: bool | None = None
    reboot_method: RebootMethod | None = None


class DPUNode(Model):
    """A host with DPUs."""

    model_config = named(MAX_NAME)

    spec: DPUNodeSpec | None = None
    status: DPUNodeStatus | None = None


class DPUNodeMaintenanceSpec(Model):
    """The effect on a host, and everybody who needs it."""

    dpu_node_name: str
    """The DPUNode of the host."""
    node_effect: NodeEffect | None = None
    requestor: list[str] | None = None
    """The effect ends when nobody is left in this list."""


class DPUNodeMaintenanceStatus(Model):
    """The progress of the effect."""

    conditions: Conditions = None
    node_effect_sync_start_time: Time | None = None
    multi_dpu_operations_sync_wait_time: Annotated[str | None, Field(alias="multiDPUOperationsSyncWaitTime")] = None
    max_unavailable_dpu_nodes: Annotated[Int32 | None, Field(alias="maxUnavailableDPUNodes", ge=1)] = None


class DPUNodeMaintenance(Model):
    """A time at which the workload of a host makes way. It counts its requestors."""

    model_config = named(63)

    spec: DPUNodeMaintenanceSpec | None = None
    status: DPUNodeMaintenanceStatus | None = None


DPU_NODE = Kind(
    name="DPUNode",
    plural="dpunodes",
    model=DPUNode,
    group=PROVISIONING,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
)
DPU_NODE_MAINTENANCE = Kind(
    name="DPUNodeMaintenance",
    plural="dpunodemaintenances",
    model=DPUNodeMaintenance,
    group=PROVISIONING,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
)
