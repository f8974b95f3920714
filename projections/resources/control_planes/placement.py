"""Pods on the nodes of the control plane of the hosts' cluster."""

from __future__ import annotations

from projections.resources.specs import JSON

_ROLES = ("node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane")


def on_control_plane() -> JSON:
    """The affinity to nodes of the control plane of the hosts' cluster."""
    terms = [{"matchExpressions": [{"key": role, "operator": "Exists"}]} for role in _ROLES]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def tolerations() -> list[JSON]:
    """Tolerations of the taints of these nodes."""
    return [{"key": role, "operator": "Exists", "effect": "NoSchedule"} for role in _ROLES]
