"""What Argo CD knows of DPU clusters: two projects, and a Secret for each cluster with the access to it.

The Secret's content is made from the cluster's kubeconfig when it is written, so no credential is derived here.
"""

from __future__ import annotations

from projections.resources.kinds import APP_PROJECT, SECRET
from projections.resources.lookup import Lookup
from projections.resources.services.naming import DPU_SERVICE_MANAGER, IN_CLUSTER, cluster_name, secret_name
from projections.resources.state import ObjectId, object_id
from projections.resources.wanted import SecretSource, Wanted
from schemas.resources.dpf.names import CLUSTER_NAME, CLUSTER_NAMESPACE, COMPONENT

PROJECT_DPU = "doca-platform-project-dpu"
PROJECT_HOST = "doca-platform-project-host"
SECRET_TYPE = "argocd.argoproj.io/secret-type"


def project(owner: str, source: str, lookup: Lookup, *, is_host: bool = False) -> Wanted:
    """A project: Applications of DPU clusters, or of the cluster of the hosts, from any repository."""
    settings = lookup.settings(source)
    clusters = lookup.clusters(source)
    assert isinstance(clusters, list), "a selector that is absent has no fault"
    names = [IN_CLUSTER] if is_host else [cluster_name(each, settings) for each in clusters]
    spec = {
        "description": "Services of DPUs",
        "sourceRepos": ["*"],
        "sourceNamespaces": [settings.namespace],
        "destinations": [{"name": each, "namespace": "*"} for each in sorted(names)],
        "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
        "orphanedResources": {},
    }
    at = ObjectId(source, APP_PROJECT, settings.argo_cd_namespace, PROJECT_HOST if is_host else PROJECT_DPU)
    return Wanted(at, owner, spec, {COMPONENT: DPU_SERVICE_MANAGER})


def cluster_secret(cluster: str, kubeconfig: str, lookup: Lookup) -> Wanted:
    """The Secret that makes a DPU cluster known to Argo CD. `kubeconfig` is the name of the cluster's own Secret."""
    at = object_id(cluster)
    settings = lookup.settings(at.source)
    return Wanted(
        at=ObjectId(at.source, SECRET, settings.argo_cd_namespace, secret_name(cluster, settings)),
        owner=cluster,
        spec={},
        labels={SECRET_TYPE: "cluster", CLUSTER_NAME: at.name, CLUSTER_NAMESPACE: at.namespace},
        secret=SecretSource(
            ObjectId(at.source, SECRET, at.namespace, kubeconfig), "argocd-cluster", cluster_name(cluster, settings)
        ),
    )
