"""DPUDeployment: an image, a flavor, services and their chain for a set of DPUs, changed together."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from schemas.resources.crds import DEFAULT
from schemas.resources.dpf.admission import deployment_faults
from schemas.resources.dpf.chain import IPAM, MAX_PORTS, MAX_SWITCHES, InterfaceReference
from schemas.resources.dpf.dpu_set import DPUSetStrategy
from schemas.resources.dpf.helm import MAX_SERVICE_NAME, UpgradePolicy
from schemas.resources.dpf.names import SERVICES, SHARED, VERSION
from schemas.resources.dpf.node_effect import NodeAction
from schemas.resources.dpf.service_template import Entries, InterfaceName, ServiceName
from schemas.resources.dpf.types import (
    AGE,
    PHASE_OF_READY,
    READY,
    ConditionsStatus,
    Int32,
    LabelSelector,
    Name,
    ServiceMTU,
    StringMap,
    named,
)
from schemas.resources.kinds import Kind
from schemas.resources.model import Model, validated

FINALIZER = f"{SHARED}/dpudeployment"
CONDITIONS = (
    "Ready",
    "PrerequisitesReady",
    "ResourceFittingReady",
    "VersionMatchingReady",
    "DPUSetsReconciled",
    "DPUSetsReady",
    "DPUServicesReconciled",
    "DPUServicesReady",
    "DPUServiceChainsReconciled",
    "DPUServiceChainsReady",
    "DPUServiceInterfacesReconciled",
    "DPUServiceInterfacesReady",
)
MAX_NAME = 20

_FOREIGN = (
    "!(has(self.dpuAnnotations) && self.dpuAnnotations.exists(key, "
    "(key.contains('dpu.nvidia.com/') || key.endsWith('dpu.nvidia.com')) && "
    "!key.startsWith('noderesources.dpu.nvidia.com') && key != 'provisioning.dpu.nvidia.com/force-fw-update'))"
)


class DeploymentSet(Model):
    """A DPUSet of the deployment."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (_FOREIGN, "dpuAnnotations should not contain dpu.nvidia.com/ and should not end with dpu.nvidia.com"),
            (
                "!(has(self.nodeSelector) && has(self.dpuNodeSelector))",
                "only one of nodeSelector or dpuNodeSelector can be specified",
            ),
            (
                "!(has(self.dpuSelector) && has(self.dpuDeviceSelector))",
                "only one of dpuSelector or dpuDeviceSelector can be specified",
            ),
        )
    )

    name_suffix: Annotated[str, Field(min_length=1, max_length=24)]
    """The end of the DPUSet's name, after the name of the deployment."""
    node_selector: LabelSelector | None = None
    """The older form of dpuNodeSelector."""
    dpu_selector: StringMap | None = None
    """The older form of dpuDeviceSelector."""
    dpu_node_selector: LabelSelector | None = None
    dpu_device_selector: LabelSelector | None = None
    dpu_cluster_selector: StringMap | None = None
    """Labels of the DPUCluster that the DPUs join."""
    dpu_annotations: Entries | None = None
    """Annotations of the DPUs."""


class DeploymentDPUs(Model):
    """The DPUs of the deployment, and how they are provisioned."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                "has(self.bfb) != has(self.blueFieldSoftware)",
                "exactly one of bfb or blueFieldSoftware must be specified",
            ),
            ("has(self.flavor) != has(self.flavorTemplate)", "exactly one of flavor or flavorTemplate must be set"),
        )
    )

    bfb: Name | None = None
    """The BFB that is installed."""
    blue_field_software: Name | None = None
    """The BlueFieldSoftware that is installed."""
    flavor: Name | None = None
    """The DPUFlavor that configures the DPUs."""
    flavor_template: Name | None = None
    """The DPUFlavorTemplate that is rendered for each DPU."""
    astra_enabled: bool | None = None
    """Whether the NICs for traffic between hosts are configured, too."""
    dpu_sets: Annotated[
        list[DeploymentSet] | None,
        Field(
            min_length=1,
            max_length=50,
            json_schema_extra=validated(
                (
                    "self.all(x, self.exists_one(y, y.nameSuffix == x.nameSuffix))",
                    "DPUSet.NameSuffix values must be unique",
                )
            ),
        ),
    ] = None
    node_effect: NodeAction | None = None
    """Later releases demand it; release 24.10 drains the node."""
    dpu_set_strategy: DPUSetStrategy | None = None
    """Later releases demand it; release 24.10 uses RollingUpdate."""
    secure_boot: bool | None = None
    """Whether UEFI Secure Boot must be on."""


class Dependency(Model):
    """Another service of the deployment."""

    name: str
    """The name of the service."""


class DeploymentService(Model):
    """A service of the deployment."""

    service_template: str
    """The DPUServiceTemplate."""
    service_configuration: str
    """The DPUServiceConfiguration."""
    depends_on: Annotated[list[Dependency] | None, Field(min_length=1)] = None


class ServicePort(Model):
    """A port for an interface of a service of the deployment."""

    name: ServiceName
    """The service, as services names it."""
    interface: InterfaceName
    """The interface, as the DPUServiceConfiguration names it."""
    ipam: IPAM | None = None


class DeploymentPort(Model):
    """A port of a switch: of a service of the deployment, or another one. The API server evaluates no CEL below a field
    without a type, as `serviceChains` is."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["service"]}, {"required": ["serviceInterface"]}]}
    )

    service: ServicePort | None = None
    service_interface: InterfaceReference | None = None


class DeploymentSwitch(Model):
    """Ports that are connected with each other."""

    ports: Annotated[list[DeploymentPort], Field(min_length=1, max_length=MAX_PORTS)]
    service_mtu: Annotated[ServiceMTU, Field(alias="serviceMTU")] = 1500
    """The MTU of every port."""


Switches = Annotated[list[DeploymentSwitch], Field(min_length=1, max_length=MAX_SWITCHES)]


class ServiceChains(Model):
    """The switches of the chain, and how a changed chain replaces the older one."""

    upgrade_policy: Annotated[UpgradePolicy | None, Field(json_schema_extra={DEFAULT: {}})] = None
    switches: Switches


class DPUDeploymentSpec(Model):
    """The deployment."""

    dpus: DeploymentDPUs
    services: Annotated[
        dict[str, DeploymentService],
        Field(
            min_length=1,
            max_length=50,
            json_schema_extra=validated(
                (
                    f"self.all(key, key.size() <= {MAX_SERVICE_NAME})",
                    f"service names can't be bigger than {MAX_SERVICE_NAME} chars",
                )
            ),
        ),
    ]
    """The services by their names."""
    service_chains: ServiceChains | Switches | None = None
    """The chain; release 24.10 has the list of its switches here."""
    revision_history_limit: Annotated[Int32, Field(ge=1)] = 10
    """Revisions of a service that may exist during an update."""


class DPUDeployment(Model):
    """Everything that a set of DPUs runs, changed together."""

    model_config = named(MAX_NAME)

    spec: DPUDeploymentSpec | None = None
    status: ConditionsStatus | None = None


DPU_DEPLOYMENT = Kind(
    name="DPUDeployment",
    plural="dpudeployments",
    model=DPUDeployment,
    group=SERVICES,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
    admission=deployment_faults,
    columns=(READY, PHASE_OF_READY, AGE),
)
