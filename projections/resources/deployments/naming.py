"""Names, labels and selectors of the objects that a DPUDeployment wants, as DPF's controllers write them.

Nodes of a DPU cluster carry the revision of each service and of the chain as labels. A service, its interfaces and the
chain select the nodes with their own revision, so nodes move from one revision to the next one by one.
"""

from __future__ import annotations

from projections.resources.specs import JSON, Labels
from projections.resources.state import ObjectId
from projections.resources.wanted import suffix
from schemas.resources.dpf.names import OWNING_DEPLOYMENT, SERVICES

VERSION_ANNOTATION = f"{SERVICES}/dpuservice-version"
"""Annotation of DPUServices and DPUServiceInterfaces: the digest of the service's template and configuration."""


def owner_value(at: ObjectId) -> str:
    """The value of the label that names the deployment of an object."""
    return f"{at.namespace}_{at.name}"


def owner_labels(at: ObjectId) -> Labels:
    """The labels of an object of a deployment."""
    return {OWNING_DEPLOYMENT: owner_value(at)}


def service_id(at: ObjectId, service: str) -> str:
    """The identity of a service in chains and interfaces."""
    return f"dpudeployment_{at.name}_{service}"


def revision_name(at: ObjectId, name: str, version: str, *, is_disruptive: bool) -> str:
    """The name of a service or chain. A disruptive change makes an object with a new name; other changes keep it."""
    return f"{name}-{suffix(at.namespace, at.name, name, version if is_disruptive else None)}"


def node_selector(at: ObjectId, label: str, revision: str) -> JSON:
    """The NodeSelector of a DaemonSet for the nodes with this revision."""
    return {"nodeSelectorTerms": [{"matchExpressions": _expressions(at, label, revision)}]}


def label_selector(at: ObjectId, label: str, revision: str) -> JSON:
    """The LabelSelector of a set for the nodes with this revision."""
    return {"matchExpressions": _expressions(at, label, revision)}


def _expressions(at: ObjectId, label: str, revision: str) -> list[JSON]:
    return [
        {"key": label, "operator": "In", "values": [revision]},
        {"key": OWNING_DEPLOYMENT, "operator": "In", "values": [owner_value(at)]},
    ]
