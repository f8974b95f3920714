"""DPUServiceChain, and the ServiceChainSet that it becomes in each DPU cluster: how interfaces are connected."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.resources.dpf.names import SERVICES, SHARED, VERSION
from schemas.resources.dpf.types import (
    AGE,
    READY,
    REASON,
    Conditions,
    ConditionsStatus,
    Int32,
    LabelSelector,
    ObjectMeta,
    ObservedGeneration,
    ServiceMTU,
    StringMap,
    named,
)
from schemas.resources.kinds import Kind
from schemas.resources.model import Model

FINALIZER = f"{SERVICES}/dpuservicechain"
SET_FINALIZER = f"{SHARED}/servicechainset"
CONDITIONS = ("Ready", "ServiceChainSetReconciled", "ServiceChainSetReady")
SET_CONDITIONS = ("Ready", "ServiceChainsReconciled", "ServiceChainsReady")
MAX_SWITCHES = 50
MAX_PORTS = 50

Matched = Annotated[StringMap, Field(min_length=1, max_length=50)]


class IPAM(Model):
    """Where the addresses of a service's interface come from."""

    match_labels: Matched
    """Labels of the pool."""
    default_gateway: bool | None = None
    """Whether the gateway of the pool is a gateway of the pod."""
    set_default_route: bool | None = None
    """Whether the pod's default route goes through this interface."""


class InterfaceReference(Model):
    """An interface by its labels."""

    match_labels: Matched
    """Labels of the DPUServiceInterface."""
    ipam: IPAM | None = None


class Port(Model):
    """A port of a switch."""

    service_interface: InterfaceReference


class Switch(Model):
    """Ports that are connected with each other."""

    ports: Annotated[list[Port], Field(min_length=1, max_length=MAX_PORTS)]
    service_mtu: Annotated[ServiceMTU, Field(alias="serviceMTU")] = 1500
    """The MTU of every port."""


class ServiceChainSpec(Model):
    """The switches of one node."""

    node: str | None = None
    """The node, in an object for one node."""
    switches: Annotated[list[Switch], Field(min_length=1, max_length=MAX_SWITCHES)]


class ServiceChainTemplate(Model):
    """The chain of each selected node."""

    metadata: ObjectMeta | None = None
    spec: ServiceChainSpec


class ServiceChainSetSpec(Model):
    """A chain for the selected nodes."""

    node_selector: LabelSelector | None = None
    template: ServiceChainTemplate


class SetStatus(Model):
    """The progress of a set."""

    conditions: Conditions = None
    observed_generation: ObservedGeneration = None
    number_applied: Int32 | None = None
    """Selected nodes."""
    number_ready: Int32 | None = None
    """Selected nodes that are ready."""


class ServiceChainSet(Model):
    """A chain for the nodes of a DPU cluster."""

    model_config = named(63)

    spec: ServiceChainSetSpec | None = None
    status: SetStatus | None = None


class ServiceChainSetTemplate(Model):
    """The ServiceChainSet of each selected DPU cluster."""

    metadata: ObjectMeta | None = None
    spec: ServiceChainSetSpec


class DPUServiceChainSpec(Model):
    """A chain for the selected DPU clusters."""

    cluster_selector: LabelSelector | None = None
    """The older name of dpuClusterSelector."""
    dpu_cluster_selector: LabelSelector | None = None
    template: ServiceChainSetTemplate


class DPUServiceChain(Model):
    """A chain for DPUs of several clusters."""

    model_config = named(63)

    spec: DPUServiceChainSpec | None = None
    status: ConditionsStatus | None = None


DPU_SERVICE_CHAIN = Kind(
    name="DPUServiceChain",
    plural="dpuservicechains",
    model=DPUServiceChain,
    group=SERVICES,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
    columns=(READY, REASON, AGE),
)
SERVICE_CHAIN_SET = Kind(
    name="ServiceChainSet",
    plural="servicechainsets",
    model=ServiceChainSet,
    group=SERVICES,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
)
