"""The kinds of NVIDIA's DOCA Platform Framework (DPF), under its own groups and versions.

One model reads both generations of an object: release 24.10 and the current one. Old fields stand beside the new ones,
and rules state where exactly one of them must be given. Where the definitions of DPF are installed already, they stay;
those generated from these models are for clusters that never had DPF.
"""

from __future__ import annotations

from collections.abc import Mapping

from schemas.resources.dpf.chain import DPU_SERVICE_CHAIN, SERVICE_CHAIN_SET
from schemas.resources.dpf.cluster import DPU_CLUSTER
from schemas.resources.dpf.credentials import DPU_SERVICE_CREDENTIAL_REQUEST
from schemas.resources.dpf.deployment import DPU_DEPLOYMENT
from schemas.resources.dpf.device import DPU_DEVICE
from schemas.resources.dpf.discovery import DPU_DISCOVERY
from schemas.resources.dpf.dpu import DPU_KIND
from schemas.resources.dpf.dpu_set import DPU_SET
from schemas.resources.dpf.flavor import DPU_FLAVOR, DPU_FLAVOR_TEMPLATE
from schemas.resources.dpf.images import BFB_KIND, BLUEFIELD_SOFTWARE
from schemas.resources.dpf.interface import DPU_SERVICE_INTERFACE, SERVICE_INTERFACE_SET
from schemas.resources.dpf.networks import DPU_SERVICE_IPAM, DPU_SERVICE_NAD
from schemas.resources.dpf.node import DPU_NODE, DPU_NODE_MAINTENANCE
from schemas.resources.dpf.operator_config import DPF_OPERATOR_CONFIG
from schemas.resources.dpf.service import DPU_SERVICE
from schemas.resources.dpf.service_template import DPU_SERVICE_CONFIGURATION, DPU_SERVICE_TEMPLATE
from schemas.resources.kinds import Kind

KINDS: tuple[Kind, ...] = (
    DPF_OPERATOR_CONFIG,
    BFB_KIND,
    BLUEFIELD_SOFTWARE,
    DPU_FLAVOR,
    DPU_FLAVOR_TEMPLATE,
    DPU_CLUSTER,
    DPU_DEVICE,
    DPU_NODE,
    DPU_NODE_MAINTENANCE,
    DPU_DISCOVERY,
    DPU_SET,
    DPU_KIND,
    DPU_SERVICE,
    DPU_SERVICE_TEMPLATE,
    DPU_SERVICE_CONFIGURATION,
    DPU_DEPLOYMENT,
    DPU_SERVICE_CHAIN,
    DPU_SERVICE_INTERFACE,
    DPU_SERVICE_IPAM,
    DPU_SERVICE_NAD,
    DPU_SERVICE_CREDENTIAL_REQUEST,
    SERVICE_CHAIN_SET,
    SERVICE_INTERFACE_SET,
)
"""The kinds that users state, and the two last ones, which the plane writes into DPU clusters."""

DPF_KINDS: Mapping[tuple[str, str], Kind] = {(kind.group, kind.name): kind for kind in KINDS}
"""Each kind by its group and name."""

REFUSED_GROUPS: Mapping[str, str] = {
    "vpc.dpu.nvidia.com": "virtual private clouds on DPUs are not supported",
    "storage.dpu.nvidia.com": "storage services on DPUs are not supported",
    "noderesources.dpu.nvidia.com": "device plugins for the virtual functions of hosts are not supported",
}
"""Groups of DPF whose kinds the plane refuses, each with the sentence that says so."""
