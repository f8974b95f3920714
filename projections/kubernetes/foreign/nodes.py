"""Node of a DPU cluster: a DPU that has joined its cluster."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from projections.kubernetes.foreign.kind import Condition, ForeignKind, condition, decoded, told
from projections.resources.kinds import NODE
from schemas.kubernetes.objects import Custom, Fields, NodeAddress
from schemas.resources.dpf.dpu import NODE_PROBLEMS
from schemas.resources.dpf.names import OPERATOR, PROVISIONING, SERVICES, SHARED
from schemas.resources.kinds import GROUP

_USED_PREFIXES = tuple(f"{group}/" for group in (PROVISIONING, SERVICES, OPERATOR, SHARED, GROUP))
_USED_ADDRESSES = ("InternalIP", "Hostname")


class _Spec(Fields, frozen=True):
    unschedulable: bool = False


class _Info(Fields, frozen=True, gc=False):
    kubelet_version: str = ""


class _Status(Fields, frozen=True):
    addresses: list[NodeAddress] | None = None
    conditions: list[Condition] | None = None
    node_info: _Info | None = None


_spec = msgspec.json.Decoder(_Spec)
_status = msgspec.json.Decoder(_Status)


def observe(item: Custom) -> Mapping[str, object]:
    """The fields of the observation of a Node. Heartbeats, images and annotations of other programs are left out.
    `checks` are the conditions of node-problem-detector, each with its problem, empty if there is none."""
    spec, status = decoded(_spec, item.spec, _Spec()), decoded(_status, item.status, _Status())
    ready = condition(status.conditions, "Ready")
    is_ready = ready is not None and ready.status == "True"
    message = told(ready.message if ready else "", "its kubelet reports nothing yet")
    annotations = item.metadata.annotations or {}
    return {
        "ready": is_ready,
        "message": "" if is_ready else message,
        "labels": dict(sorted((item.metadata.labels or {}).items())),
        "annotations": {key: annotations[key] for key in sorted(annotations) if key.startswith(_USED_PREFIXES)},
        "addresses": [
            {"type": each.type, "address": each.address}
            for each in status.addresses or ()
            if each.type in _USED_ADDRESSES
        ],
        "version": (status.node_info or _Info()).kubelet_version,
        "cordoned": spec.unschedulable,
        "checks": {
            each.type: "" if each.status == "False" else told(each.reason, each.status, "Unknown")
            for each in sorted(status.conditions or (), key=lambda each: each.type)
            if each.type in NODE_PROBLEMS
        },
        "deleting": item.metadata.deletion_timestamp is not None,
    }


CLUSTER_NODE = ForeignKind(NODE, "v1", "nodes", observe)
