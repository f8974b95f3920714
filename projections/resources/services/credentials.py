"""The ServiceAccount of a DPUServiceCredentialRequest in its target cluster.

A driver requests the tokens and writes the Secret: neither is ever in the log. A Secret that is labelled for pulling
images is copied to the DPU clusters like any other.
"""

from __future__ import annotations

from projections.resources.clusters import cluster_source
from projections.resources.kinds import DPU_CLUSTER, SERVICE_ACCOUNT
from projections.resources.lookup import Lookup
from projections.resources.service_specs import CredentialRequestSpec
from projections.resources.services.applications import namespace
from projections.resources.services.pull_secrets import copies
from projections.resources.specs import Labels, read
from projections.resources.state import ObjectId, Resource, object_id
from projections.resources.wanted import Wanted
from schemas.resources.dpf.credentials import MANAGED_BY, REQUEST_NAME, REQUEST_NAMESPACE
from schemas.resources.dpf.names import IMAGE_PULL_SECRET

DEFAULT_NAMESPACE = "default"
MANAGER = "dpuservicecredentialrequest-controller"


def target_cluster(at: ObjectId, spec: CredentialRequestSpec) -> str | None:
    """The key of the DPUCluster that a request is for; None is the cluster of the hosts."""
    target = spec.target_cluster
    if target is None:
        return None
    return ObjectId(at.source, DPU_CLUSTER, target.namespace or DEFAULT_NAMESPACE, target.name).key


def request_labels(at: ObjectId) -> Labels:
    """The labels of the ServiceAccount and the Secret of a request."""
    return {MANAGED_BY: MANAGER, REQUEST_NAME: at.name, REQUEST_NAMESPACE: at.namespace}


def of_request(key: str, row: Resource, lookup: Lookup) -> list[Wanted] | str:
    """The ServiceAccount of a request, and the copies of its Secret."""
    spec, at = read(CredentialRequestSpec, row), object_id(key)
    if isinstance(spec, str):
        return spec
    target = target_cluster(at, spec)
    account_namespace = spec.service_account.namespace or DEFAULT_NAMESPACE
    source = at.source if target is None else cluster_source(target)
    account = Wanted(
        at=ObjectId(source, SERVICE_ACCOUNT, account_namespace, spec.service_account.name),
        owner=key,
        spec={},
        labels=request_labels(at),
        fields={"automountServiceAccountToken": False},
    )
    wanted = [account]
    if target is not None:
        if lookup.row(target) is None:
            return []
        wanted = [namespace(key, target, account_namespace), account]
    if spec.metadata is not None and IMAGE_PULL_SECRET in (spec.metadata.labels or {}):
        wanted += copies(key, spec.secret.namespace or DEFAULT_NAMESPACE, spec.secret.name, lookup)
    return wanted
