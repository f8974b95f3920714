"""The kinds that the plane observes, by the cluster that they are in."""

from __future__ import annotations

from projections.kubernetes.foreign.address_pools import POOLS
from projections.kubernetes.foreign.applications import APPLICATION
from projections.kubernetes.foreign.control_planes import TENANT_CONTROL_PLANE
from projections.kubernetes.foreign.daemon_sets import DAEMON_SET
from projections.kubernetes.foreign.kind import ForeignKind
from projections.kubernetes.foreign.networks import NETWORK
from projections.kubernetes.foreign.node_maintenances import NODE_MAINTENANCE
from projections.kubernetes.foreign.nodes import CLUSTER_NODE
from projections.kubernetes.foreign.pods import UNREADY_POD
from projections.kubernetes.foreign.services import CHART_SERVICE, CLUSTER_SERVICE
from projections.kubernetes.foreign.sets import SETS

IN_SOURCE_CLUSTER: tuple[ForeignKind, ...] = (APPLICATION, TENANT_CONTROL_PLANE, NODE_MAINTENANCE, CLUSTER_SERVICE)
IN_DPU_CLUSTER: tuple[ForeignKind, ...] = (
    CLUSTER_NODE,
    UNREADY_POD,
    DAEMON_SET,
    CHART_SERVICE,
    NETWORK,
    *POOLS,
    *SETS,
)
