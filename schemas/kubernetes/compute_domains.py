"""ComputeDomain and ComputeDomainClique as the plane reads them; schemas/resources has their models."""

from __future__ import annotations

import msgspec

from schemas.kubernetes.objects import Fields, Metadata

READY = "Ready"
NOT_READY = "NotReady"


class DaemonRow(Fields, frozen=True, gc=False):
    """The row of a daemon in a clique."""

    node_name: str = ""
    ip_address: str = ""
    clique_id: str = msgspec.field(default="", name="cliqueID")
    index: int | None = None
    status: str = NOT_READY


class CliqueObject(Fields, frozen=True):
    """A ComputeDomainClique."""

    metadata: Metadata
    daemons: list[DaemonRow] | None = None

    def row(self, node: str) -> DaemonRow | None:
        """The row of a node."""
        return next((row for row in self.daemons or () if row.node_name == node), None)


class DomainSpec(Fields, frozen=True, gc=False):
    num_nodes: int = 0


class NodeRow(Fields, frozen=True, gc=False):
    """The row of a node in the status of a domain."""

    name: str = ""
    ip_address: str = ""
    clique_id: str = msgspec.field(default="", name="cliqueID")
    index: int | None = None
    status: str = NOT_READY


class DomainStatus(Fields, frozen=True):
    status: str = NOT_READY
    nodes: list[NodeRow] | None = None


class DomainObject(Fields, frozen=True):
    """A ComputeDomain."""

    metadata: Metadata
    spec: DomainSpec = DomainSpec()
    status: DomainStatus | None = None
