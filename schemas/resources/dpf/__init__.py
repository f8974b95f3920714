"""The kinds of NVIDIA's DOCA Platform Framework (DPF), under its own groups and versions.

One model reads both generations of an object: release 24.10 and the current one. Old fields stand beside the new ones,
and rules state where exactly one of them must be given. Where the definitions of DPF are installed already, they stay;
those generated from these models are for clusters that never had DPF.
"""

from __future__ import annotations

from collections.abc import Mapping

from schemas.resources.dpf.cluster import DPU_CLUSTER
from schemas.resources.dpf.device import DPU_DEVICE
from schemas.resources.dpf.dpu_set import DPU_SET
from schemas.resources.dpf.flavor import DPU_FLAVOR, DPU_FLAVOR_TEMPLATE
from schemas.resources.dpf.images import BFB_KIND, BLUEFIELD_SOFTWARE
from schemas.resources.dpf.node import DPU_NODE, DPU_NODE_MAINTENANCE
from schemas.resources.kinds import Kind

KINDS: tuple[Kind, ...] = (
    BFB_KIND,
    BLUEFIELD_SOFTWARE,
    DPU_FLAVOR,
    DPU_FLAVOR_TEMPLATE,
    DPU_CLUSTER,
    DPU_DEVICE,
    DPU_NODE,
    DPU_NODE_MAINTENANCE,
    DPU_SET,
)

DPF_KINDS: Mapping[tuple[str, str], Kind] = {(kind.group, kind.name): kind for kind in KINDS}
"""Each kind by its group and name."""

REFUSED_GROUPS: Mapping[str, str] = {
    "vpc.dpu.nvidia.com": "virtual private clouds on DPUs are not supported",
    "storage.dpu.nvidia.com": "storage services on DPUs are not supported",
    "noderesources.dpu.nvidia.com": "device plugins for the virtual functions of hosts are not supported",
}
"""Groups of DPF whose kinds the plane refuses, each with the sentence that says so."""
