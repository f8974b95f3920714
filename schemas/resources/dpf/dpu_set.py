"""DPUSet: the DPUs that one template provisions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.resources.dpf.admission import set_faults
from schemas.resources.dpf.names import PROVISIONING, VERSION
from schemas.resources.dpf.node_effect import DRAINED, NodeEffect
from schemas.resources.dpf.types import (
    AGE,
    READY,
    Conditions,
    IntOrString,
    LabelSelector,
    Name,
    ObservedGeneration,
    StringMap,
    named,
)
from schemas.resources.kinds import Kind
from schemas.resources.model import Model, validated

FINALIZER = f"{PROVISIONING}/dpuset-protection"
CONDITIONS = ("Ready", "DPUSetPrereqsReconciled")


class RollingUpdateDPU(Model):
    """The pace of an update."""

    max_unavailable: IntOrString | None = None
    """The DPUs that may be unavailable at a time, as a number or a percentage."""


class DPUSetStrategy(Model):
    """How DPUs that exist already get a changed template."""

    type: Literal["OnDelete", "Recreate", "RollingUpdate"] = "Recreate"
    """OnDelete waits until somebody deletes a DPU; Recreate is its name in release 24.10."""
    rolling_update: RollingUpdateDPU | None = None


class ImageReference(Model):
    """The name of an image in the same namespace."""

    name: Name
    """The name of the image."""


class ClusterSpec(Model):
    """The DPU cluster that the DPUs join, and their nodes there."""

    node_labels: StringMap | None = None
    """Labels of the nodes."""
    node_annotations: StringMap | None = None
    """Annotations of the nodes."""
    selector: LabelSelector | None = None
    """Labels of the DPUCluster; empty matches every one."""


class DPUTemplateSpec(Model):
    """How a DPU is provisioned."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            ("has(self.bfb) != has(self.blueFieldSoftware)", "exactly one of bfb or blueFieldSoftware must be set"),
            (
                "has(self.dpuFlavor) != has(self.dpuFlavorTemplate)",
                "exactly one of dpuFlavor or dpuFlavorTemplate must be set",
            ),
        )
    )

    bfb: ImageReference | None = None
    blue_field_software: ImageReference | None = None
    dpu_flavor: Name | None = None
    """The DPUFlavor that configures the DPU."""
    dpu_flavor_template: Name | None = None
    """The DPUFlavorTemplate that is rendered for each DPU."""
    node_effect: Annotated[NodeEffect | None, Field(json_schema_extra=DRAINED)] = None
    """The effect on the host while the DPU is provisioned."""
    cluster: ClusterSpec | None = None
    automatic_node_reboot: bool = True
    """Whether the host is rebooted when the installation needs it (release 24.10)."""
    astra_enabled: bool | None = None
    """Whether the NICs for traffic between hosts are configured, too."""
    secure_boot: bool | None = None
    """Whether UEFI Secure Boot must be on."""


class DPUTemplate(Model):
    """The template of a DPU."""

    annotations: StringMap | None = None
    """Annotations of the DPUs."""
    spec: DPUTemplateSpec


class DPUSetSpec(Model):
    """The DPUs that the template is for: by nodes of the cluster (release 24.10), or by DPUNodes and DPUDevices."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                "!(has(self.dpuSelector) && has(self.dpuDeviceSelector))",
                "only one of dpuSelector or dpuDeviceSelector can be specified",
            ),
            (
                "!(has(self.nodeSelector) && has(self.dpuNodeSelector))",
                "only one of nodeSelector or dpuNodeSelector can be specified",
            ),
        )
    )

    strategy: DPUSetStrategy | None = None
    node_selector: LabelSelector | None = None
    """Labels of nodes (release 24.10)."""
    dpu_node_selector: LabelSelector | None = None
    """Labels of DPUNodes."""
    dpu_selector: StringMap | None = None
    """Labels of a DPU of a node, as node feature discovery names them."""
    dpu_device_selector: LabelSelector | None = None
    """Labels of DPUDevices."""
    dpu_template: DPUTemplate


class DPUSetStatus(Model):
    """The progress of the set."""

    dpu_statistics: dict[str, int] | None = None
    """DPUs by phase."""
    conditions: Conditions = None
    observed_generation: ObservedGeneration = None


class DPUSet(Model):
    """A template, and the DPUs that are provisioned from it."""

    model_config = named(63)

    spec: DPUSetSpec | None = None
    status: DPUSetStatus | None = None


DPU_SET = Kind(
    name="DPUSet",
    plural="dpusets",
    model=DPUSet,
    group=PROVISIONING,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
    admission=set_faults,
    columns=(READY, AGE),
)
