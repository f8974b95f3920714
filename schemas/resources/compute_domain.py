"""ComputeDomain and ComputeDomainClique of kubernetes-sigs/dra-driver-nvidia-gpu, as its release 25.12 defines them.

They are installed where the driver's own definitions are missing, and accept the same objects. A clique
has neither spec nor status: `daemons` is a field of the object, and several programs write it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.resources.kinds import Kind
from schemas.resources.model import Model, validated

GROUP = "resource.nvidia.com"
VERSION = "v1beta1"
DOMAIN_LABEL = f"{GROUP}/computeDomain"
"""Label of daemon pods and cliques: the uid of their domain."""
CLIQUE_LABEL = f"{GROUP}/computeDomain.cliqueID"
"""Label of daemon pods and cliques: the clique's id; empty on a pod of a node without a fabric."""

Readiness = Literal["Ready", "NotReady"]


class ChannelTemplate(Model):
    """The ResourceClaimTemplate that the driver makes for the domain."""

    name: str


class Channel(Model):
    """How workloads get a channel of the domain."""

    resource_claim_template: ChannelTemplate
    allocation_mode: Literal["All", "Single"] = "Single"
    """All channels of the domain, or precisely one."""


class ComputeDomainSpec(Model):
    """The nodes that a workload of several nodes runs on."""

    model_config = ConfigDict(
        json_schema_extra=validated(("self == oldSelf", "A computeDomain.spec is immutable")),
    )

    num_nodes: Annotated[int, Field(ge=0)] = 0
    """The domain is ready if it has at least this many daemons and all are ready. Deprecated upstream."""
    channel: Channel


class ComputeDomainNode(Model):
    """A node of the domain."""

    name: str
    ip_address: str
    clique_id: Annotated[str, Field(alias="cliqueID")]
    index: int | None = None
    """The node's index in its clique; -1 for a node without a fabric."""
    status: Readiness = "NotReady"


class ComputeDomainStatus(Model):
    """The nodes of the domain, and whether enough of them are ready."""

    model_config = ConfigDict(json_schema_extra={"required": ["status"]})

    status: Readiness = "NotReady"
    nodes: Annotated[
        list[ComputeDomainNode] | None,
        Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
    ] = None


class ComputeDomain(Model):
    """A set of nodes that share GPU memory."""

    spec: ComputeDomainSpec | None = None
    status: ComputeDomainStatus | None = None


class ComputeDomainDaemon(Model):
    """The row of a daemon."""

    node_name: str
    ip_address: str
    clique_id: Annotated[str, Field(alias="cliqueID")]
    index: int | None = None
    """The index of the node in the clique, from which its DNS name follows. No other daemon of the clique has it."""
    status: Readiness = "NotReady"


class ComputeDomainClique(Model):
    """The daemons of one clique of a ComputeDomain. It is named DOMAIN_UID.CLIQUE_ID, in the driver's namespace."""

    daemons: Annotated[
        list[ComputeDomainDaemon] | None,
        Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["nodeName"]}),
    ] = None


COMPUTE_DOMAIN = Kind(
    name="ComputeDomain",
    plural="computedomains",
    model=ComputeDomain,
    group=GROUP,
    version=VERSION,
    is_namespaced=True,
)

COMPUTE_DOMAIN_CLIQUE = Kind(
    name="ComputeDomainClique",
    plural="computedomaincliques",
    model=ComputeDomainClique,
    group=GROUP,
    version=VERSION,
    is_namespaced=True,
    has_status=False,
)

UPSTREAM_KINDS = (COMPUTE_DOMAIN, COMPUTE_DOMAIN_CLIQUE)
"""Kinds of other projects; the plane writes objects of these kinds."""
