"""DPUCluster: a Kubernetes cluster that DPUs join as nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.resources.crds import DEFAULT
from schemas.resources.dpf.names import PROVISIONING, VERSION
from schemas.resources.dpf.types import AGE, READY, AnyObject, Conditions, Name, StringMap, named
from schemas.resources.kinds import Column, Kind
from schemas.resources.model import Model, validated

FINALIZERS = (f"{PROVISIONING}/cluster-manager-clean-up", f"{PROVISIONING}/cluster-manager-internal-clean-up")
CONDITIONS = (
    "Created",
    "Ready",
    "KeepalivedReady",
    "Upgraded",
    "EtcdEncryptionRotationInProgress",
    "EtcdEncryptionRotationBlocked",
)
STATIC = "static"
"""The type of a cluster that somebody else runs: its kubeconfig must be given."""
KAMAJI = "kamaji"
"""The type of a cluster that the plane makes with Kamaji."""
MAX_NODES = 3000

Phase = Literal["Pending", "Creating", "Ready", "NotReady", "Failed"]

_DNS_1035 = "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"
_SAME_NAME = "(oldSelf.hasValue() && oldSelf.value().metadata.name == self.metadata.name)"


class Keepalived(Model):
    """A virtual address in front of the control plane."""

    vip: str
    """The virtual address."""
    virtual_router_id: Annotated[int, Field(alias="virtualRouterID", ge=1, le=255)]
    """The id of the virtual router, unique in its network."""
    interface: Name
    """The interface of the control plane's nodes that gets the address."""
    node_selector: StringMap | None = None
    """Labels of the control plane's nodes that may have the address."""


class ClusterEndpoint(Model):
    """The entry point of the cluster."""

    keepalived: Keepalived | None = None


class DPUClusterSpec(Model):
    """The cluster."""

    type: Annotated[str, Field(pattern=r"kamaji|static|[^/]+/.*")]
    """static, kamaji, or PREFIX/TYPE of another cluster manager."""
    max_nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = 1000
    """DPUs that may join."""
    kubeconfig: Annotated[
        str | None,
        Field(json_schema_extra=validated(('oldSelf==""||self==oldSelf', "kubeconfig is immutable"))),
    ] = None
    """The Secret with the kubeconfig of an administrator under admin.conf: one cluster, one user."""
    cluster_endpoint: ClusterEndpoint | None = None
    cluster_manager_config: AnyObject | None = None
    """Settings for the cluster manager that the type names."""
    version: str | None = None
    """The version of Kubernetes (release 24.10)."""


class ObservedKey(Model):
    """A version of a key in a Secret."""

    name: Name
    key: Name
    namespace: Name
    uid: Name
    resource_version: Name


class StaticKeyStatus(Model):
    """The key in use."""

    active_key_ref: ObservedKey | None = None


class EncryptionStatus(Model):
    """The encryption of what the cluster stores."""

    provider: Literal["staticKey", "vaultKMS"]
    static_key: StaticKeyStatus | None = None


class DPUClusterStatus(Model):
    """The state of the cluster."""

    phase: Phase = "Pending"
    version: str | None = None
    nodes_count: Annotated[int | None, Field(ge=0)] = None
    etcd_encryption_at_rest: EncryptionStatus | None = None
    conditions: Conditions = None


_NAME = {
    "rule": f"{_DNS_1035} || {_SAME_NAME}",
    "optionalOldSelf": True,
    "message": (
        "name must be a DNS-1035 label: start with a lowercase letter, contain only lowercase alphanumerics or '-', "
        "and end with an alphanumeric"
    ),
}


class DPUCluster(Model):
    """A Kubernetes cluster for DPUs."""

    model_config = named(63, {"x-kubernetes-validations": [_NAME]})

    spec: DPUClusterSpec
    status: Annotated[DPUClusterStatus | None, Field(json_schema_extra={DEFAULT: {"phase": "Pending"}})] = None


DPU_CLUSTER = Kind(
    name="DPUCluster",
    plural="dpuclusters",
    model=DPUCluster,
    group=PROVISIONING,
    version=VERSION,
    is_namespaced=True,
    keeps_definition=True,
    columns=(
        READY,
        Column("Phase", ".status.phase", description="phase of the cluster"),
        Column("Type", ".spec.type", description="type of the cluster"),
        Column("MaxNodes", ".spec.maxNodes", "integer", description="max amount of nodes"),
        Column("Version", ".status.version", description="Kubernetes version of the control plane"),
        Column("NodesCount", ".status.nodesCount", "integer", description="DPUs of the cluster"),
        AGE,
    ),
)
