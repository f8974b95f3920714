"""The parts that DPUService, DPUServiceTemplate and DPUServiceConfiguration share: charts, DaemonSets and ports."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.resources.dpf.types import AnyObject, Name, NodeSelector, Quantities, StringMap, UpdateStrategy, immutable
from schemas.resources.model import Model, validated

REPOSITORY = r"^(oci://|https://).+$"
MAX_SERVICE_NAME = 28


class ChartSource(Model):
    """A Helm chart in a repository."""

    repo_url: Annotated[str, Field(alias="repoURL", pattern=REPOSITORY)]
    """The repository, as oci:// or https://."""
    path: str | None = None
    """The path of the chart in the repository."""
    version: Name
    """The version of the chart."""
    chart: str | None = None
    """The name of the chart."""
    release_name: str | None = None
    """The name of the Helm release."""


class HelmChart(Model):
    """A Helm chart and its values."""

    source: ChartSource
    values: AnyObject | None = None
    """Values for the chart."""


class Identity(Model):
    """An identity of the service. It has no settings."""


class Security(Model):
    """What the pods of a service may do."""

    privileged: bool | None = None
    """Whether containers may be privileged."""
    spiffe: Identity | None = None
    """Given if the service gets an identity from SPIRE."""


class ServiceDaemonSet(Model):
    """Settings of the DaemonSet of a service's chart."""

    node_selector: NodeSelector | None = None
    update_strategy: UpdateStrategy | None = None
    labels: StringMap | None = None
    """Labels of the pods."""
    annotations: StringMap | None = None
    """Annotations of the pods."""
    resources: Quantities | None = None
    """Resources of the pods."""


class ConfigPort(Model):
    """A port of a service."""

    name: Annotated[str, Field(min_length=1, pattern=r"^[a-z0-9-]+$")]
    """The name of the port."""
    port: int
    """The port of the service."""
    protocol: Literal["TCP", "UDP"]
    """The protocol of the port."""
    node_port: int | None = None
    """The port on the nodes, for the type NodePort."""


class ConfigPorts(Model):
    """The ports through which a host configures the service on its DPU."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                "!(self.serviceType != 'NodePort' && self.ports.exists(p, has(p.nodePort)))",
                "nodePort can only be set when serviceType is NodePort",
            )
        )
    )

    service_type: Annotated[Literal["NodePort", "ClusterIP", "None"], Field(json_schema_extra=immutable())] = "NodePort"
    """The type of the Kubernetes Service."""
    ports: list[ConfigPort]


class UpgradePolicy(Model):
    """How a changed service or chain replaces the older one."""

    apply_node_effect: bool = True
    """Whether the host gives way first: then the change makes a new revision."""
