"""DPUService: a Helm chart on the nodes of DPU clusters, or on the cluster of the hosts."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from schemas.resources.dpf.helm import ConfigPort, ConfigPorts, HelmChart, Security, ServiceDaemonSet
from schemas.resources.dpf.names import SERVICES, SHARED, VERSION
from schemas.resources.dpf.types import (
    AGE,
    PHASE_OF_READY,
    READY,
    Conditions,
    LabelSelector,
    ObservedGeneration,
    named,
)
from schemas.resources.kinds import Kind
from schemas.resources.model import Model, validated

FINALIZER = f"{SHARED}/dpuservice"
CONDITIONS = (
    "Ready",
    "ApplicationPrereqsReconciled",
    "ApplicationsReconciled",
    "ApplicationsReady",
    "DPUServiceInterfaceReconciled",
    "ConfigPortsReconciled",
)

_IN_CLUSTER = "has(self.deployInCluster) && self.deployInCluster"


class DPUServiceSpec(Model):
    """A service. Later releases demand security.privileged; here it may be absent, and then it is false."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            ("!has(self.interfaces) || has(self.serviceID)", "serviceID must be provided when interfaces are provided"),
            (
                f"!({_IN_CLUSTER} && has(self.configPorts))",
                "configPorts cannot be set when deployInCluster is true",
            ),
            (
                f"!({_IN_CLUSTER} && has(self.dpuClusterSelector))",
                "dpuClusterSelector cannot be set when deployInCluster is true",
            ),
            (
                f"!({_IN_CLUSTER} && has(self.security) && has(self.security.privileged))",
                "security.privileged must not be set when deployInCluster is true",
            ),
        )
    )

    dpu_cluster_selector: LabelSelector | None = None
    """The DPU clusters that get the service; by default all."""
    helm_chart: HelmChart
    service_id: Annotated[str | None, Field(alias="serviceID")] = None
    """The identity of the service in chains and interfaces."""
    service_daemon_set: ServiceDaemonSet | None = None
    deploy_in_cluster: bool | None = None
    """Whether the chart is for the cluster of the hosts."""
    interfaces: Annotated[list[str] | None, Field(min_length=1, max_length=50)] = None
    """Names of the DPUServiceInterfaces that the service uses."""
    paused: bool | None = None
    """Whether changes wait."""
    config_ports: ConfigPorts | None = None
    security: Security | None = None


class DPUServiceStatus(Model):
    """The state of a service."""

    conditions: Conditions = None
    observed_generation: ObservedGeneration = None
    config_ports: dict[str, list[ConfigPort]] | None = None
    """Ports that hosts can reach, by DPU cluster."""
    service_id: Annotated[str | None, Field(alias="serviceID")] = None


class DPUService(Model):
    """A service on DPUs."""

    model_config = named(63)

    spec: DPUServiceSpec | None = None
    status: DPUServiceStatus | None = None


DPU_SERVICE = Kind(
    name="DPUService",
    plural="dpuservices",
    model=DPUService,
    group=SERVICES,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
    columns=(READY, PHASE_OF_READY, AGE),
)
