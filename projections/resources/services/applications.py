"""The Applications of a DPUService: one for each DPU cluster that it selects, or one for the cluster of the hosts.

They have DPF's names, labels and finalizer (internal/argocd), so that Argo CD continues with what DPF has made.
"""

from __future__ import annotations

from projections.resources.clusters import in_cluster
from projections.resources.kinds import APPLICATION, NAMESPACE
from projections.resources.lookup import Lookup
from projections.resources.service_specs import ServiceSpec
from projections.resources.services.config_ports import config_ports
from projections.resources.services.helm_values import helm_values
from projections.resources.services.naming import (
    DPU_SERVICE_MANAGER,
    IN_CLUSTER,
    application_name,
    cluster_name,
    service_labels,
)
from projections.resources.services.projects import PROJECT_DPU, PROJECT_HOST, project
from projections.resources.services.secret_copies import labelled_copies
from projections.resources.specs import JSON, Labels, read, without_absent
from projections.resources.state import ObjectId, Resource, object_id
from projections.resources.wanted import Wanted
from schemas.resources.dpf.names import CLUSTER_NAME, CLUSTER_NAMESPACE, COMPONENT

FINALIZER = "resources-finalizer.argocd.argoproj.io"
"""Argo CD removes what an Application has made before the Application goes."""
SKIP_RECONCILE = "argocd.argoproj.io/skip-reconcile"
_OCI = "oci://"


def of_service(key: str, row: Resource, lookup: Lookup) -> list[Wanted] | str:
    """The Applications of a DPUService, their project, the namespace in each DPU cluster with the Secrets for pulling
    images, and the ports for hosts."""
    spec, at = read(ServiceSpec, row), object_id(key)
    if isinstance(spec, str):
        return spec
    if not lookup.settings(at.source).is_known:
        return []
    if spec.deploy_in_cluster:
        found = _application(at, spec, row.labels, None, lookup)
        return found if isinstance(found, str) else [found, project(key, at.source, lookup, is_host=True)]
    clusters = lookup.clusters(at.source, spec.clusters)
    if isinstance(clusters, str):
        return clusters
    wanted = [project(key, at.source, lookup)] if clusters else []
    for cluster in clusters:
        found = _application(at, spec, row.labels, cluster, lookup)
        if isinstance(found, str):
            return found
        wanted += [namespace(key, cluster, at.namespace), *labelled_copies(at, cluster, lookup), found]
    return [*wanted, *config_ports(at, spec, row.labels, clusters, lookup)]


def namespace(owner: str, cluster: str, name: str) -> Wanted:
    """A namespace in a DPU cluster. It stays when its owner goes: others may have objects in it."""
    return Wanted(in_cluster(cluster, NAMESPACE, "", name), owner, {}, outlives_owner=True)


def _application(at: ObjectId, spec: ServiceSpec, labels: Labels, cluster: str | None, lookup: Lookup) -> Wanted | str:
    settings = lookup.settings(at.source)
    name = IN_CLUSTER if cluster is None else cluster_name(cluster, settings)
    values = helm_values(at, spec, labels, IN_CLUSTER if cluster is None else object_id(cluster).name, lookup)
    if isinstance(values, str):
        return values
    where = {CLUSTER_NAME: IN_CLUSTER}
    if cluster is not None:
        where = {CLUSTER_NAME: object_id(cluster).name, CLUSTER_NAMESPACE: object_id(cluster).namespace}
    return Wanted(
        at=ObjectId(at.source, APPLICATION, settings.namespace, application_name(cluster, at, settings)),
        owner=at.key,
        spec={
            "project": PROJECT_HOST if cluster is None else PROJECT_DPU,
            "source": _source(spec, values),
            "destination": {"name": name, "namespace": at.namespace},
            "syncPolicy": {"automated": {"prune": True, "selfHeal": True}},
        },
        labels={**service_labels(at), **where, COMPONENT: DPU_SERVICE_MANAGER},
        annotations={SKIP_RECONCILE: "true"} if spec.paused else {},
        finalizers=(FINALIZER,),
    )


def _source(spec: ServiceSpec, values: JSON) -> JSON:
    """The chart. Argo CD wants a registry without its scheme."""
    given = spec.helm_chart.source
    return without_absent(
        {
            "repoURL": given.repo_url.removeprefix(_OCI),
            "chart": given.chart,
            "path": given.path,
            "targetRevision": given.version,
            "helm": without_absent({"releaseName": given.release_name, "valuesObject": values}),
        }
    )
