"""DPUServiceInterface, and the ServiceInterfaceSet that it becomes in each DPU cluster: ports of the virtual switch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.resources.dpf.chain import SetStatus
from schemas.resources.dpf.names import SERVICES, VERSION
from schemas.resources.dpf.service_template import InterfaceName
from schemas.resources.dpf.types import (
    AGE,
    READY,
    REASON,
    ConditionsStatus,
    Int32,
    LabelSelector,
    ObjectMeta,
    StringMap,
    named,
)
from schemas.resources.kinds import Column, Kind
from schemas.resources.model import Model, validated

FINALIZER = f"{SERVICES}/dpuserviceinterface"
CONDITIONS = (
    "Ready",
    "ServiceInterfaceSetReconciled",
    "ServiceInterfaceSetReady",
    "ServiceInterfacePreReqsReady",
)
SET_CONDITIONS = ("Ready", "ServiceInterfacesReconciled", "ServiceInterfacesReady")
PCI_ADDRESS = r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]{1}$"

FunctionNumber = Annotated[int, Field(ge=0, le=255)]

_NEEDED = " || ".join(
    f"(self.interfaceType == '{name}' && has(self.{name}))"
    for name in ("vlan", "pf", "vf", "physical", "service", "patch")
)
_SAME_NETWORK = validated(
    (
        "has(self.virtualNetwork) == has(oldSelf.virtualNetwork) && "
        "(!has(self.virtualNetwork) || self.virtualNetwork == oldSelf.virtualNetwork)",
        "virtualNetwork is immutable",
    )
)


class Physical(Model):
    """A port of the device."""

    interface_name: str
    """The name of the port, such as p0."""


class VLAN(Model):
    """A VLAN of another interface."""

    vlan_id: Annotated[int, Field(alias="vlanID")]
    """The number of the VLAN."""
    parent_interface_ref: str
    """The interface that carries the VLAN."""


class PCISelector(Model):
    """A NIC by the address of one of its functions on the DPU."""

    address: Annotated[str, Field(pattern=PCI_ADDRESS)]
    """The address, such as 0000:03:00.0."""


class NICSelector(Model):
    """The NIC of a function."""

    model_config = ConfigDict(
        json_schema_extra=validated(("self.type != 'pci' || has(self.pci)", "for type=pci, pci must be set"))
    )

    type: Literal["dpu", "pci"]
    """Whether the NIC is that of the DPU, or another one by its address."""
    pci: PCISelector | None = None
    controller_number: Annotated[Int32 | None, Field(ge=0, le=255)] = None
    """0 is the DPU itself, 1 (the default) and more are hosts."""


class Function(Model):
    """A function of a NIC."""

    nic_selector: NICSelector | None = None
    pf_id: Annotated[FunctionNumber, Field(alias="pfID")]
    """The number of the physical function."""
    virtual_network: str | None = None
    """The virtual network of the interface."""


class VirtualFunction(Function):
    """A virtual function of a NIC."""

    vf_id: Annotated[FunctionNumber, Field(alias="vfID")]
    """The number of the virtual function."""
    parent_interface_ref: str | None = None
    """The port of the function (release 24.10)."""


class ServiceEnd(Model):
    """An interface of a service's pod."""

    service_id: Annotated[str, Field(alias="serviceID")]
    """The serviceID of the DPUService."""
    network: str
    """The NetworkAttachmentDefinition, as NAMESPACE/NAME or NAME."""
    interface_name: InterfaceName
    """The name of the interface in the pod."""
    virtual_network: str | None = None
    """The virtual network of the interface."""


class OVN(Model):
    """A connection with the bridge of OVN. Deprecated: use a patch."""

    external_bridge: str = "br-ovn"
    """The bridge of OVN."""


class Patch(Model):
    """A connection with another bridge of the DPU."""

    peer_bridge: str
    """The other bridge."""
    peer_patch_name: str | None = None
    """The name of the port on the other bridge; by default it is generated."""
    peer_external_ids: Annotated[StringMap | None, Field(alias="peerExternalIDs")] = None
    """External ids of the port on the other bridge."""


class ServiceInterfaceSpec(Model):
    """An interface of one type."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": f"self.interfaceType == 'ovn' || {_NEEDED}",
                    "message": "the field with the name of the interfaceType must be set",
                    "messageExpression": (
                        "'for interfaceType=' + self.interfaceType + ', ' + self.interfaceType + ' must be set'"
                    ),
                }
            ]
        }
    )

    node: str | None = None
    """The node, in an object for one node."""
    interface_type: Literal["vlan", "physical", "pf", "vf", "ovn", "patch", "service"]
    """The type; the field of the same name describes the interface."""
    physical: Physical | None = None
    vlan: VLAN | None = None
    vf: Annotated[VirtualFunction | None, Field(json_schema_extra=_SAME_NETWORK)] = None
    pf: Annotated[Function | None, Field(json_schema_extra=_SAME_NETWORK)] = None
    service: Annotated[ServiceEnd | None, Field(json_schema_extra=_SAME_NETWORK)] = None
    ovn: OVN | None = None
    patch: Patch | None = None


class ServiceInterfaceTemplate(Model):
    """The interface of each selected node."""

    metadata: ObjectMeta | None = None
    spec: ServiceInterfaceSpec


class ServiceInterfaceSetSpec(Model):
    """An interface for the selected nodes."""

    node_selector: LabelSelector | None = None
    template: ServiceInterfaceTemplate


class ServiceInterfaceSet(Model):
    """An interface for the nodes of a DPU cluster."""

    model_config = named(63)

    spec: ServiceInterfaceSetSpec | None = None
    status: SetStatus | None = None


class ServiceInterfaceSetTemplate(Model):
    """The ServiceInterfaceSet of each selected DPU cluster."""

    metadata: ObjectMeta | None = None
    spec: ServiceInterfaceSetSpec


class DPUServiceInterfaceSpec(Model):
    """An interface for the selected DPU clusters."""

    cluster_selector: LabelSelector | None = None
    """The older name of dpuClusterSelector."""
    dpu_cluster_selector: LabelSelector | None = None
    template: ServiceInterfaceSetTemplate


class DPUServiceInterface(Model):
    """An interface for DPUs of several clusters."""

    model_config = named(63)

    spec: DPUServiceInterfaceSpec | None = None
    status: ConditionsStatus | None = None


_NODE_SPEC = ".spec.template.spec"

DPU_SERVICE_INTERFACE = Kind(
    name="DPUServiceInterface",
    plural="dpuserviceinterfaces",
    model=DPUServiceInterface,
    group=SERVICES,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
    columns=(
        Column("IfType", f"{_NODE_SPEC}.template.spec.interfaceType"),
        Column("IfName", f"{_NODE_SPEC}.template.spec['service','physical'].interfaceName"),
        READY,
        REASON,
        AGE,
    ),
)
SERVICE_INTERFACE_SET = Kind(
    name="ServiceInterfaceSet",
    plural="serviceinterfacesets",
    model=ServiceInterfaceSet,
    group=SERVICES,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
    columns=(
        Column("IfType", f"{_NODE_SPEC}.interfaceType"),
        Column("IfName", f"{_NODE_SPEC}['service','physical'].interfaceName"),
        AGE,
    ),
)
