"""The fields of DPUClusters that derivations use."""

from __future__ import annotations

import msgspec

from projections.resources.specs import Labels, Spec
from schemas.resources.dpf.cluster import KAMAJI


class Keepalived(Spec, frozen=True):
    """A virtual address in front of the control plane."""

    vip: str = ""
    virtual_router_id: int = msgspec.field(default=0, name="virtualRouterID")
    interface: str = ""
    node_selector: Labels | None = None


class ClusterEndpoint(Spec, frozen=True):
    """The entry point of the cluster."""

    keepalived: Keepalived | None = None


class DPUClusterSpec(Spec, frozen=True):
    """A DPUCluster."""

    type: str = ""
    max_nodes: int = 1000
    kubeconfig: str | None = None
    cluster_endpoint: ClusterEndpoint | None = None
    version: str | None = None

    @property
    def keepalived(self) -> Keepalived | None:
        return self.cluster_endpoint.keepalived if self.cluster_endpoint else None


def kubeconfig_name(name: str, spec: DPUClusterSpec) -> str:
    """The name of the Secret with the kubeconfig: the given one, else the one that Kamaji makes; empty if there is
    none."""
    if spec.kubeconfig:
        return spec.kubeconfig
    return f"{name}-admin-kubeconfig" if spec.type == KAMAJI else ""
