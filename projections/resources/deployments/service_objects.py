"""The DPUService of each service of a DPUDeployment, and the DPUServiceInterfaces of the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from projections.resources.deployments.naming import (
    VERSION_ANNOTATION,
    label_selector,
    node_selector,
    owner_labels,
    revision_name,
    service_id,
)
from projections.resources.deployments.prerequisites import ServiceParts
from projections.resources.deployments.specs import DeploymentSet, InterfaceTemplate
from projections.resources.deployments.values import merged, with_service_names
from projections.resources.kinds import DPU_SERVICE, DPU_SERVICE_INTERFACE
from projections.resources.specs import JSON, without_absent
from projections.resources.state import ObjectId
from projections.resources.wanted import Wanted, digest
from schemas.resources.dpf.names import CONSUMED_BY, DEPLOYMENT_SERVICE, INTERFACE, SERVICE_ID, service_version


class ServiceRevision(NamedTuple):
    """The wanted revision of a service. `values` are the Helm values."""

    service: str
    name: str
    version: str
    values: JSON
    parts: ServiceParts

    @property
    def is_in_cluster(self) -> bool:
        """Whether the service runs in the cluster of the hosts."""
        return bool(self.parts.configuration.service_configuration.deploy_in_cluster)


def revisions(at: ObjectId, services: Mapping[str, ServiceParts]) -> dict[str, ServiceRevision]:
    """The revision of each service. `services` are in order of dependency."""
    found: dict[str, ServiceRevision] = {}
    for service, parts in services.items():
        settings = parts.configuration.service_configuration
        names = {name: each.name for name, each in found.items()}
        values = with_service_names((settings.helm_chart or {}).get("values") or {}, names, parts.delimiters)
        values = merged(values, parts.template.helm_chart.get("values") or {})
        configuration = msgspec.structs.replace(parts.configuration, upgrade_policy=None)
        version = digest(msgspec.to_builtins(configuration), msgspec.to_builtins(parts.template), values)
        name = revision_name(at, service, version, is_disruptive=parts.configuration.is_disruptive)
        found[service] = ServiceRevision(service, name, version, values, parts)
    return found


def service_objects(
    at: ObjectId, revision: ServiceRevision, sets: tuple[DeploymentSet, ...], clusters: JSON | None
) -> Iterator[Wanted]:
    """The DPUService of a revision, and its DPUServiceInterfaces."""
    interfaces = {_interface_name(at, revision, each): each for each in revision.parts.configuration.interfaces or ()}
    template, settings = revision.parts.template, revision.parts.configuration.service_configuration
    if revision.is_in_cluster:
        where = without_absent({"deployInCluster": True})
    else:
        where = without_absent({"dpuClusterSelector": clusters, "security": template.security or {"privileged": False}})
    yield Wanted(
        at=ObjectId(at.source, DPU_SERVICE, at.namespace, revision.name),
        owner=at.key,
        spec=without_absent(
            {
                "helmChart": without_absent(
                    {"source": template.helm_chart.get("source"), "values": revision.values or None}
                ),
                "serviceID": service_id(at, revision.service),
                "serviceDaemonSet": _daemon_set(at, revision, sets),
                "interfaces": sorted(interfaces) or None,
                "configPorts": settings.config_ports,
                **where,
            }
        ),
        labels=owner_labels(at) | {DEPLOYMENT_SERVICE: revision.service},
        annotations={VERSION_ANNOTATION: revision.version},
    )
    for name in sorted(interfaces):
        yield _interface(at, revision, name, interfaces[name], clusters)


def _daemon_set(at: ObjectId, revision: ServiceRevision, sets: tuple[DeploymentSet, ...]) -> JSON:
    given = revision.parts.configuration.service_configuration.service_daemon_set or {}
    labels = {**(given.get("labels") or {}), DEPLOYMENT_SERVICE: revision.service}
    if revision.is_in_cluster:
        selector = _host_selector(sets)
    else:
        selector = node_selector(at, service_version(revision.service), revision.name)
    return without_absent({**given, "labels": labels, "nodeSelector": selector})


def _host_selector(sets: tuple[DeploymentSet, ...]) -> JSON | None:
    """The NodeSelector of the hosts of all DPUSets: one term for each set; None if a set selects every host."""
    terms = []
    for each in sets:
        selector = each.dpu_node_selector or each.node_selector or {}
        labels = selector.get("matchLabels") or {}
        expressions = [{"key": key, "operator": "In", "values": [labels[key]]} for key in sorted(labels)]
        expressions += selector.get("matchExpressions") or []
        if not expressions:
            return None
        terms.append({"matchExpressions": expressions})
    return {"nodeSelectorTerms": terms} if terms else None


def _interface_name(at: ObjectId, revision: ServiceRevision, interface: InterfaceTemplate) -> str:
    name = f"{revision.service}-{interface.name.replace('_', '-')}"
    is_disruptive = revision.parts.configuration.is_disruptive
    return revision_name(at, name, revision.version, is_disruptive=is_disruptive)


def _interface(
    at: ObjectId, revision: ServiceRevision, name: str, interface: InterfaceTemplate, clusters: JSON | None
) -> Wanted:
    identity = service_id(at, revision.service)
    end = {
        "serviceID": identity,
        "network": interface.network,
        "interfaceName": interface.name,
        "virtualNetwork": interface.virtual_network,
    }
    template = {
        "metadata": {"labels": {SERVICE_ID: identity, INTERFACE: interface.name}},
        "spec": {"interfaceType": "service", "service": without_absent(end)},
    }
    selector = None
    if not revision.is_in_cluster:
        selector = label_selector(at, service_version(revision.service), revision.name)
    return Wanted(
        at=ObjectId(at.source, DPU_SERVICE_INTERFACE, at.namespace, name),
        owner=at.key,
        spec=without_absent(
            {
                "dpuClusterSelector": clusters,
                "template": {"spec": without_absent({"nodeSelector": selector, "template": template})},
            }
        ),
        labels=owner_labels(at),
        annotations={VERSION_ANNOTATION: revision.version, CONSUMED_BY: revision.name},
    )
