"""The DPUServiceChain of a DPUDeployment: its switches, with the interfaces of services by their labels."""

from __future__ import annotations

from projections.resources.deployments.naming import label_selector, owner_labels, revision_name, service_id
from projections.resources.deployments.specs import DPUDeploymentSpec, Port, Switch
from projections.resources.kinds import DPU_SERVICE_CHAIN
from projections.resources.specs import JSON, without_absent
from projections.resources.state import ObjectId
from projections.resources.wanted import Wanted, digest
from schemas.resources.dpf.names import CHAIN_VERSION, INTERFACE, SERVICE_ID


def chain_object(at: ObjectId, spec: DPUDeploymentSpec, clusters: JSON | None) -> Wanted | None:
    """The chain; None without switches. A new revision of a service keeps the labels of its interfaces, so the chain
    stays as it is."""
    switches = [_switch(at, each) for each in spec.switches]
    if not switches:
        return None
    version = digest(switches)
    name = revision_name(at, at.name, version, is_disruptive=spec.is_chain_disruptive)
    template = {"nodeSelector": label_selector(at, CHAIN_VERSION, name), "template": {"spec": {"switches": switches}}}
    return Wanted(
        at=ObjectId(at.source, DPU_SERVICE_CHAIN, at.namespace, name),
        owner=at.key,
        spec=without_absent({"dpuClusterSelector": clusters, "template": {"spec": template}}),
        labels=owner_labels(at),
        annotations={CHAIN_VERSION: version},
    )


def _switch(at: ObjectId, switch: Switch) -> JSON:
    return without_absent({"ports": [_port(at, port) for port in switch.ports], "serviceMTU": switch.service_mtu})


def _port(at: ObjectId, port: Port) -> JSON:
    if port.service is None:
        return {"serviceInterface": port.service_interface or {}}
    labels = {SERVICE_ID: service_id(at, port.service.name), INTERFACE: port.service.interface}
    return {"serviceInterface": without_absent({"matchLabels": labels, "ipam": port.service.ipam})}
