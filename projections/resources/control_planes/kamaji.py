"""The control plane of a DPUCluster of type kamaji: a TenantControlPlane, with keepalived in front of it.

The shapes are DPF's (internal/clustermanager/kamaji). The address of the control plane is virtual, and its port must be
known before the control plane is made. So the plane makes a Service first, which gets a free NodePort; then Kamaji
takes it over, and the plane only keeps it. While the port is unknown, the TenantControlPlane is held, that is neither
written nor deleted: its deletion destroys the whole cluster, so a missing observation must not cause one.
"""

from __future__ import annotations

from projections.resources.control_planes.keepalived import keepalived
from projections.resources.control_planes.placement import on_control_plane, tolerations
from projections.resources.control_planes.specs import DPUClusterSpec, kubeconfig_name
from projections.resources.kinds import SERVICE, TENANT_CONTROL_PLANE
from projections.resources.lookup import Lookup
from projections.resources.services.projects import cluster_secret, project
from projections.resources.specs import JSON, Labels, read
from projections.resources.state import ObjectId, Resource, object_id
from projections.resources.wanted import Wanted
from schemas.resources.dpf.cluster import KAMAJI
from schemas.resources.dpf.names import CLUSTER_NAME

VERSION = "v1.34.0"
"""The version of Kubernetes without one in the spec: images of DPUs of the current releases have a kubelet of 1.34."""
POD_NETWORK = "10.244.0.0/14"
NODE_PORT = "nodePort"
"""Field of the observation of the Service: the port on the nodes."""
_SELECTOR = "kamaji.clastix.io/name"
_TENANT = "tenant.clastix.io"


def of_cluster(key: str, row: Resource, lookup: Lookup) -> list[Wanted] | str:
    """The control plane of a DPUCluster, and what Argo CD knows of the cluster."""
    spec, at = read(DPUClusterSpec, row), object_id(key)
    if isinstance(spec, str):
        return spec
    wanted = []
    if lookup.settings(at.source).is_known:
        wanted.append(project(key, at.source, lookup))
        if name := kubeconfig_name(at.name, spec):
            wanted.append(cluster_secret(key, name, lookup))
    if spec.type == KAMAJI:
        wanted += _control_plane(at, spec, lookup)
    return wanted


def _control_plane(at: ObjectId, spec: DPUClusterSpec, lookup: Lookup) -> list[Wanted]:
    if spec.keepalived is None:
        return [_tenant(at, spec, None)]
    service, tenant = _service(at), _tenant(at, spec, None, is_held=True)
    port = (lookup.observed(service.at.key) or {}).get(NODE_PORT)
    is_taken_over = lookup.observed(tenant.at.key) is not None
    service = _service(at, is_held=is_taken_over)
    if not isinstance(port, int) or isinstance(port, bool) or port <= 0:
        return [service, tenant]
    return [service, _tenant(at, spec, port), *keepalived(at, spec.keepalived, port, lookup)]


def _service(at: ObjectId, *, is_held: bool = False) -> Wanted:
    spec = {
        "type": "NodePort",
        "selector": {_SELECTOR: at.name},
        "ports": [{"name": "kube-apiserver", "protocol": "TCP", "port": 6443}],
    }
    return Wanted(at._replace(kind=SERVICE), at.key, spec, _labels(at), is_held=is_held)


def _tenant(at: ObjectId, spec: DPUClusterSpec, port: int | None, *, is_held: bool = False) -> Wanted:
    content: JSON = {
        "dataStore": "default",
        "controlPlane": {"deployment": _deployment(at), "service": _tenant_service(at)},
        "kubernetes": {
            "version": spec.version or VERSION,
            "kubelet": {
                "cgroupfs": "systemd",
                "preferredAddressTypes": ["InternalIP", "Hostname", "ExternalIP"],
            },
            "admissionControllers": ["ResourceQuota", "LimitRanger"],
        },
        "addons": {"coreDNS": {}, "kubeProxy": {}},
    }
    if spec.keepalived is not None and port is not None:
        content["networkProfile"] = {"address": spec.keepalived.vip, "port": port, "podCidr": POD_NETWORK}
    return Wanted(at._replace(kind=TENANT_CONTROL_PLANE), at.key, content, _labels(at), is_held=is_held)


def _labels(at: ObjectId) -> Labels:
    return {_TENANT: at.name, CLUSTER_NAME: at.name}


def _tenant_service(at: ObjectId) -> JSON:
    return {"serviceType": "NodePort", "additionalMetadata": {"labels": {_TENANT: at.name}}}


def _deployment(at: ObjectId) -> JSON:
    return {
        "replicas": 3,
        "additionalMetadata": {"labels": {_TENANT: at.name}},
        "affinity": {"nodeAffinity": on_control_plane()},
        "tolerations": tolerations(),
        "resources": {
            "apiServer": _requests("250m", "512Mi"),
            "controllerManager": _requests("125m", "256Mi"),
            "scheduler": _requests("125m", "256Mi"),
        },
    }


def _requests(cpu: str, memory: str) -> JSON:
    return {"requests": {"cpu": cpu, "memory": memory}}
