"""Names of Applications, and of DPU clusters in Argo CD.

DPF names an Application by cluster and service, and a cluster by its bare name, which two namespaces may share. The
names are kept for objects in the operator's namespace, where DPF puts all of them; others get names of their own.
"""

from __future__ import annotations

from projections.resources.operator_settings import OperatorSettings
from projections.resources.specs import Labels
from projections.resources.state import ObjectId, object_id
from projections.resources.wanted import suffix
from schemas.resources.dpf.names import SERVICE_NAME, SERVICE_NAMESPACE

IN_CLUSTER = "in-cluster"
"""What Argo CD calls the cluster that it runs in."""
DPU_SERVICE_MANAGER = "dpuservice-manager"
"""The name of DPF's controller of services, in labels of what it makes."""
_NAME_MAX = 63
"""Maximum length of an Application's name: it is the name of the Helm release, from which charts name Services."""


def service_labels(at: ObjectId) -> Labels:
    """The labels of objects that belong to a DPUService."""
    return {SERVICE_NAME: at.name, SERVICE_NAMESPACE: at.namespace}


def cluster_name(cluster: str, settings: OperatorSettings) -> str:
    """The name of a DPU cluster in Argo CD. A DPUCluster's own name has no dot."""
    at = object_id(cluster)
    return at.name if at.namespace == settings.namespace else f"{at.name}.{at.namespace}"


def secret_name(cluster: str, settings: OperatorSettings) -> str:
    """The name of the Secret that makes a DPU cluster known to Argo CD."""
    at = object_id(cluster)
    return f"{at.namespace}-{at.name}" if at.namespace == settings.namespace else f"{at.namespace}.{at.name}"


def application_name(cluster: str | None, service: ObjectId, settings: OperatorSettings) -> str:
    """The name of the Application of a service in a DPU cluster; None is the cluster of the hosts."""
    at = object_id(cluster) if cluster is not None else ObjectId("", "", settings.namespace, IN_CLUSTER)
    name = f"{at.name}-{service.name}"
    if {at.namespace, service.namespace} == {settings.namespace} and len(name) <= _NAME_MAX:
        return name
    ending = suffix(at.namespace, at.name, service.namespace, service.name)
    return f"{name[: _NAME_MAX - len(ending) - 1].rstrip('-.')}-{ending}"
