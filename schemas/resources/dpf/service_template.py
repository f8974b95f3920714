"""DPUServiceTemplate and DPUServiceConfiguration: from both of them together, a DPUDeployment makes a DPUService."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from schemas.resources.crds import DEFAULT
from schemas.resources.dpf.helm import MAX_SERVICE_NAME, ConfigPorts, HelmChart, Security, UpgradePolicy
from schemas.resources.dpf.names import SERVICES, SHARED, VERSION
from schemas.resources.dpf.types import (
    AnyObject,
    Conditions,
    ObservedGeneration,
    Quantities,
    StringMap,
    UpdateStrategy,
)
from schemas.resources.kinds import Kind
from schemas.resources.model import Model, validated

TEMPLATE_FINALIZER = f"{SHARED}/dpuservicetemplate"
TEMPLATE_CONDITIONS = ("Ready", "DPUServiceTemplateReconciled")
DELIMITERS = f"{SERVICES}/template-delimiter"
"""Annotation of a DPUServiceConfiguration: the delimiters of the templates in its values."""
MAX_INTERFACE_NAME = 15

ServiceName = Annotated[str, Field(min_length=1, max_length=MAX_SERVICE_NAME)]
InterfaceName = Annotated[str, Field(min_length=1, max_length=MAX_INTERFACE_NAME)]
Entries = Annotated[StringMap, Field(max_length=50)]

_OURS = "key.contains('dpu.nvidia.com/') || key.endsWith('dpu.nvidia.com')"


class DPUServiceTemplateSpec(Model):
    """The part of a service that is the same in every deployment."""

    deployment_service_name: ServiceName
    """The service: its key in the DPUDeployment."""
    helm_chart: HelmChart
    resource_requirements: Quantities | None = None
    """The resources that the service needs on each DPU."""
    security: Security | None = None


class DPUServiceTemplateStatus(Model):
    """The state of a template."""

    conditions: Conditions = None
    observed_generation: ObservedGeneration = None
    versions: StringMap | None = None
    """Versions that the service needs, by component."""


class DPUServiceTemplate(Model):
    """The part of a service that is the same in every deployment."""

    spec: DPUServiceTemplateSpec | None = None
    status: DPUServiceTemplateStatus | None = None


class ConfigurationChart(Model):
    """Values for the chart; they win over those of the template."""

    values: AnyObject | None = None
    """Values for the chart. They may refer to services that this one depends on."""


class ConfigurationDaemonSet(Model):
    """Settings of the DaemonSet of the service's chart."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                f"!(has(self.labels) && self.labels.exists(key, ({_OURS}) && "
                "!key.matches('svc.dpu.nvidia.com/custom-flows')))",
                "labels should not contain dpu.nvidia.com/ and should not end with dpu.nvidia.com",
            ),
            (
                f"!(has(self.annotations) && self.annotations.exists(key, {_OURS}))",
                "annotations should not contain dpu.nvidia.com/ and should not end with dpu.nvidia.com",
            ),
        )
    )

    update_strategy: UpdateStrategy | None = None
    labels: Entries | None = None
    """Labels of the pods."""
    annotations: Entries | None = None
    """Annotations of the pods."""
    resources: Quantities | None = None
    """Resources of the pods."""


class ServiceSettings(Model):
    """Settings of the DPUService that is made."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                "!(has(self.deployInCluster) && self.deployInCluster && has(self.configPorts))",
                "configPorts cannot be set when deployInCluster is true",
            )
        )
    )

    helm_chart: ConfigurationChart | None = None
    service_daemon_set: ConfigurationDaemonSet | None = None
    deploy_in_cluster: bool | None = None
    """Whether the chart is for the cluster of the hosts."""
    config_ports: ConfigPorts | None = None


class InterfaceTemplate(Model):
    """An interface of the service."""

    name: InterfaceName
    """The name of the interface in the pod."""
    network: str
    """The NetworkAttachmentDefinition, as NAMESPACE/NAME or NAME."""
    virtual_network: str | None = None
    """The virtual network of the interface."""


class DPUServiceConfigurationSpec(Model):
    """The part of a service that belongs to one deployment."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                "!has(self.interfaces) || !has(self.serviceConfiguration) || "
                "!has(self.serviceConfiguration.deployInCluster) || !self.serviceConfiguration.deployInCluster",
                "interfaces are not supported when deploying in cluster",
            )
        )
    )

    deployment_service_name: ServiceName
    """The service: its key in the DPUDeployment."""
    service_configuration: ServiceSettings | None = None
    interfaces: Annotated[list[InterfaceTemplate] | None, Field(min_length=1, max_length=50)] = None
    upgrade_policy: Annotated[UpgradePolicy | None, Field(json_schema_extra={DEFAULT: {}})] = None


class NoStatus(Model):
    """A status without fields."""


class DPUServiceConfiguration(Model):
    """The part of a service that belongs to one deployment."""

    spec: DPUServiceConfigurationSpec | None = None
    status: NoStatus | None = None


DPU_SERVICE_TEMPLATE = Kind(
    name="DPUServiceTemplate",
    plural="dpuservicetemplates",
    model=DPUServiceTemplate,
    group=SERVICES,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
)
DPU_SERVICE_CONFIGURATION = Kind(
    name="DPUServiceConfiguration",
    plural="dpuserviceconfigurations",
    model=DPUServiceConfiguration,
    group=SERVICES,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
)
