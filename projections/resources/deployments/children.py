"""All objects that a DPUDeployment wants: DPUServices, DPUServiceInterfaces, the DPUServiceChain and DPUSets.

With a prerequisite missing, only the DPUSets are derived, and held: their DPUs stay as they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from projections.resources.deployments.chain_objects import chain_object
from projections.resources.deployments.naming import owner_labels, owner_value
from projections.resources.deployments.prerequisites import Prerequisites
from projections.resources.deployments.service_objects import revisions, service_objects
from projections.resources.deployments.specs import STRATEGY, DeploymentSet, DPUDeploymentSpec
from projections.resources.kinds import DPU_SET
from projections.resources.specs import JSON, Labels, without_absent
from projections.resources.state import ObjectId
from projections.resources.wanted import Wanted
from schemas.resources.dpf.names import CHAIN_VERSION, OWNING_DEPLOYMENT, service_version

_NODE_EFFECT = {"drain": {"automaticNodeReboot": True}}
"""What release 24.10 does without this field; later releases demand them."""


class Derived(NamedTuple):
    """The prerequisites of a deployment, and what it wants: services with their interfaces, the chain, then DPUSets."""

    spec: DPUDeploymentSpec
    prerequisites: Prerequisites
    children: tuple[Wanted, ...]


def derived(at: ObjectId, spec: DPUDeploymentSpec, needed: Prerequisites, annotations: Labels) -> Derived:
    """The objects that a deployment wants. `annotations` are those that its DPUSets get from it."""
    found = _derived(at, spec, needed)
    children = (replace(each, annotations=annotations) if each.at.kind == DPU_SET else each for each in found.children)
    return found._replace(children=tuple(children)) if annotations else found


def _derived(at: ObjectId, spec: DPUDeploymentSpec, needed: Prerequisites) -> Derived:
    sets = spec.dpus.dpu_sets or ()
    if not needed.is_complete:
        held = (_dpu_set(at, spec, each, {}, applies_on_change=False, is_held=True) for each in sets)
        return Derived(spec, needed, tuple(held))
    clusters = _clusters(sets)
    found = revisions(at, needed.services)
    chain = chain_object(at, spec, clusters)
    labels = {service_version(each.service): each.name for each in found.values() if not each.is_in_cluster}
    if chain is not None:
        labels[CHAIN_VERSION] = chain.at.name
    is_disruptive = any(each.parts.configuration.is_disruptive for each in found.values()) or (
        chain is not None and spec.is_chain_disruptive
    )
    children = [child for each in found.values() for child in service_objects(at, each, sets, clusters)]
    children += [chain] if chain is not None else []
    children += [_dpu_set(at, spec, each, labels, applies_on_change=is_disruptive) for each in sets]
    return Derived(spec, needed, tuple(children))


def _dpu_set(
    at: ObjectId,
    spec: DPUDeploymentSpec,
    given: DeploymentSet,
    versions: Labels,
    *,
    applies_on_change: bool,
    is_held: bool = False,
) -> Wanted:
    dpus = spec.dpus
    effect = {**(dpus.node_effect or _NODE_EFFECT), "applyOnLabelChange": applies_on_change}
    cluster: JSON = {"nodeLabels": {**versions, OWNING_DEPLOYMENT: owner_value(at)}}
    if given.dpu_cluster_selector:
        cluster["selector"] = {"matchLabels": given.dpu_cluster_selector}
    template = {
        "bfb": {"name": dpus.bfb} if dpus.bfb else None,
        "blueFieldSoftware": {"name": dpus.blue_field_software} if dpus.blue_field_software else None,
        "dpuFlavor": dpus.flavor,
        "dpuFlavorTemplate": dpus.flavor_template,
        "nodeEffect": effect,
        "cluster": cluster,
        "astraEnabled": dpus.astra_enabled,
        "secureBoot": dpus.secure_boot,
    }
    content = {
        "strategy": dpus.dpu_set_strategy or STRATEGY,
        "nodeSelector": given.node_selector,
        "dpuNodeSelector": given.dpu_node_selector,
        "dpuSelector": given.dpu_selector,
        "dpuDeviceSelector": given.dpu_device_selector,
        "dpuTemplate": without_absent({"annotations": given.dpu_annotations, "spec": without_absent(template)}),
    }
    return Wanted(
        at=ObjectId(at.source, DPU_SET, at.namespace, f"{at.name}-{given.name_suffix}"),
        owner=at.key,
        spec=without_absent(content),
        labels=owner_labels(at),
        is_held=is_held,
    )


def _clusters(sets: tuple[DeploymentSet, ...]) -> JSON | None:
    """The selector of the DPU clusters of all DPUSets, if they agree. Otherwise objects go to every DPU cluster, where
    their node selectors pick the right nodes."""
    found = {tuple(sorted((each.dpu_cluster_selector or {}).items())) for each in sets}
    labels = dict(found.pop()) if len(found) == 1 else {}
    return {"matchLabels": labels} if labels else None
