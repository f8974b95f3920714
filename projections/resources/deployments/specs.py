"""The fields of DPUDeployments, DPUServiceTemplates and DPUServiceConfigurations that derivations use."""

from __future__ import annotations

from typing import Any

import msgspec

from projections.resources.specs import JSON, Labels, Named, Spec

STRATEGY = {"type": "RollingUpdate"}
"""The strategy of the DPUSets of a deployment that states none, as in release 24.10; later releases demand one."""


class DeploymentSet(Spec, frozen=True):
    """A DPUSet of a deployment."""

    name_suffix: str = ""
    node_selector: JSON | None = None
    dpu_selector: Labels | None = None
    dpu_node_selector: JSON | None = None
    dpu_device_selector: JSON | None = None
    dpu_cluster_selector: Labels | None = None
    dpu_annotations: Labels | None = None


class DeploymentDPUs(Spec, frozen=True):
    """The DPUs of a deployment."""

    bfb: str | None = None
    blue_field_software: str | None = None
    flavor: str | None = None
    flavor_template: str | None = None
    astra_enabled: bool | None = None
    dpu_sets: tuple[DeploymentSet, ...] | None = None
    node_effect: JSON | None = None
    dpu_set_strategy: JSON | None = None
    secure_boot: bool | None = None


class DeploymentService(Spec, frozen=True):
    """A service of a deployment."""

    service_template: str = ""
    service_configuration: str = ""
    depends_on: tuple[Named, ...] | None = None


class ServicePort(Spec, frozen=True):
    """A port for an interface of a service."""

    name: str = ""
    interface: str = ""
    ipam: JSON | None = None


class Port(Spec, frozen=True):
    """A port of a switch: for a service of the deployment, or for interfaces with these labels."""

    service: ServicePort | None = None
    service_interface: JSON | None = None


class Switch(Spec, frozen=True):
    """Ports that are connected with each other."""

    ports: tuple[Port, ...] = ()
    service_mtu: int | None = msgspec.field(default=None, name="serviceMTU")


class UpgradePolicy(Spec, frozen=True):
    """Whether the node effect is applied to the host before a change."""

    apply_node_effect: bool = True


class ServiceChains(Spec, frozen=True):
    """The switches of the chain."""

    upgrade_policy: UpgradePolicy | None = None
    switches: tuple[Switch, ...] = ()


class DPUDeploymentSpec(Spec, frozen=True):
    """A deployment. Release 24.10 has a list of switches as `serviceChains`."""

    dpus: DeploymentDPUs = DeploymentDPUs()
    services: dict[str, DeploymentService] = msgspec.field(default_factory=dict)
    service_chains: ServiceChains | tuple[Switch, ...] | None = None
    revision_history_limit: int | None = None

    @property
    def switches(self) -> tuple[Switch, ...]:
        chains = self.service_chains
        return chains.switches if isinstance(chains, ServiceChains) else chains or ()

    @property
    def is_chain_disruptive(self) -> bool:
        chains = self.service_chains
        return not isinstance(chains, ServiceChains) or (chains.upgrade_policy or UpgradePolicy()).apply_node_effect


class TemplateSpec(Spec, frozen=True):
    """The part of a service that is the same in every deployment."""

    deployment_service_name: str = ""
    helm_chart: JSON = msgspec.field(default_factory=dict)
    resource_requirements: dict[str, Any] | None = None
    security: JSON | None = None


class InterfaceTemplate(Spec, frozen=True):
    """An interface of a service."""

    name: str = ""
    network: str = ""
    virtual_network: str | None = None


class ServiceSettings(Spec, frozen=True):
    """Settings of the DPUService."""

    helm_chart: JSON | None = None
    service_daemon_set: JSON | None = None
    deploy_in_cluster: bool | None = None
    config_ports: JSON | None = None


class ConfigurationSpec(Spec, frozen=True):
    """The part of a service that belongs to one deployment."""

    deployment_service_name: str = ""
    service_configuration: ServiceSettings = ServiceSettings()
    interfaces: tuple[InterfaceTemplate, ...] | None = None
    upgrade_policy: UpgradePolicy | None = None

    @property
    def is_disruptive(self) -> bool:
        return (self.upgrade_policy or UpgradePolicy()).apply_node_effect


class FlavorSpec(Spec, frozen=True):
    """The resources of a DPU, of a DPUFlavor or a DPUFlavorTemplate."""

    dpu_resources: dict[str, Any] | None = None
    system_reserved_resources: dict[str, Any] | None = None
