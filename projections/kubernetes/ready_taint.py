"""The taint that keeps new workload away from a node until its DPUs are ready, as patches of the Node.

DPF's key and effect. An annotation says that the plane has set it. Without it, the taint may be that of somebody who
registers nodes with it; both are removed once the DPUs are ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from projections.resources.host_readiness import READY_MARK
from schemas.resources.dpf.names import DPU_READY

TAINT = {"key": DPU_READY, "effect": "NoSchedule"}


def patch_of_taint(node: Mapping[str, Any], *, is_wanted: bool) -> dict[str, Any] | None:
    """The merge patch that sets or removes the taint; None if the node is as wanted."""
    taints = node["spec"].get("taints") or []
    others = [each for each in taints if each.get("key") != DPU_READY]
    is_tainted = len(others) < len(taints)
    is_marked = READY_MARK in (node["metadata"].get("annotations") or {})
    if is_tainted if is_wanted else not (is_tainted or is_marked):
        return None
    metadata: dict[str, Any] = {"annotations": {READY_MARK: "true" if is_wanted else None}}
    if version := node["metadata"].get("resourceVersion"):
        metadata["resourceVersion"] = version  # the API server refuses the patch if the node has changed since
    return {"metadata": metadata, "spec": {"taints": [*others, TAINT] if is_wanted else others}}
