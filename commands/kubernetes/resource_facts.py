"""An object of a source cluster as an item of the resources topic. Pure.

Only what folds use counts as a change: the status, and the annotation in which kubectl keeps a copy of the object, do
not.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from commands.requests.validation import TIME_MS_MAX
from projections.kubernetes.object_names import OWN_LABELS
from projections.resources import kinds
from projections.resources.devices import FEATURE_PREFIX
from projections.resources.host_readiness import READY_MARK
from projections.resources.items import applied_items
from projections.resources.stale import REMOVAL_ORDER
from projections.resources.state import ObjectId
from schemas.events import Envelope, ResourcesApplied
from schemas.kubernetes.objects import Custom, Metadata, Node, version_number
from schemas.resources.dpf.names import DPU_READY, OPERATOR, OWNING_DEPLOYMENT, PROVISIONING, SERVICES, SHARED
from schemas.resources.kinds import GROUP

DPU_NODE_MAINTENANCE = f"DPUNodeMaintenance.{PROVISIONING}"
SHARED_KINDS = frozenset((kinds.DPU_NODE, kinds.DPU_DEVICE, DPU_NODE_MAINTENANCE))
"""Kinds whose objects are users' input also if the plane made them: people answer in their annotations and labels."""
_IGNORED_PREFIX = "kubectl.kubernetes.io/"
_USED_PREFIXES = tuple(f"{group}/" for group in (PROVISIONING, SERVICES, OPERATOR, SHARED, GROUP))
"""Prefixes of the annotations of Nodes that count: other programs write theirs every few seconds."""
_ENVELOPE = Envelope("", "", "", 0)

T = TypeVar("T")

_spec = msgspec.json.Decoder(dict[str, Any])


class ResourceFacts(NamedTuple):
    """An object as its cluster has it."""

    at: ObjectId
    uid: str
    generation: int
    created_ms: int
    deleted_ms: int
    labels: dict[str, str]
    annotations: dict[str, str]
    spec: str
    version: int
    """The version in which the cluster reported the object. It also grows by changes that do not count."""

    def is_same(self, other: ResourceFacts | None) -> bool:
        """Whether another state of the object differs in nothing that counts."""
        return other is not None and self[:-1] == other[:-1]


def is_stated(kind: str, item: Custom) -> bool:
    """Whether an object is stated. Objects that the plane wrote are derived, and not stated again. Children of
    DPUDeployments are the exception, because an older revision has effect until it is deleted."""
    labels = item.metadata.labels or {}
    if kind in REMOVAL_ORDER and OWNING_DEPLOYMENT in labels:
        return True
    return kind in SHARED_KINDS or any(labels.get(key) != value for key, value in OWN_LABELS.items())


def is_deleted_dpu(kind: str, item: Custom) -> bool:
    """Whether a user deletes the object of a DPU that the plane wrote. The writer waits for the log to know it."""
    return kind == kinds.DPU and item.metadata.deletion_timestamp is not None and not is_stated(kind, item)


def read_resource(source: str, kind: str, item: Custom) -> ResourceFacts | str:
    """The facts of an object, or why it cannot be stated, in one sentence."""
    try:
        spec = msgspec.json.encode(_spec.decode(item.spec), order="sorted").decode()
    except (msgspec.DecodeError, RecursionError):
        return "spec: must be a JSON object"
    annotations = {
        key: value for key, value in (item.metadata.annotations or {}).items() if not key.startswith(_IGNORED_PREFIX)
    }
    return _checked(_facts(source, kind, item.metadata, annotations, spec))


def has_devices(node: Node) -> bool:
    """Whether a Node says that its host has DPUs, as node feature discovery labels it, or the plane keeps workload away
    from it."""
    return READY_MARK in (node.metadata.annotations or ()) or any(
        key.startswith(FEATURE_PREFIX) for key in node.metadata.labels or ()
    )


def read_host(source: str, node: Node) -> ResourceFacts | str:
    """The facts of a Node whose host has DPUs, or why it cannot be stated. The only fact of its spec is the taint that
    keeps workload away until the DPUs are ready."""
    annotations = {
        key: value for key, value in (node.metadata.annotations or {}).items() if key.startswith(_USED_PREFIXES)
    }
    taints = [{"key": each.key, "effect": each.effect} for each in node.spec.taints or () if each.key == DPU_READY]
    spec = msgspec.json.encode({"taints": taints}).decode() if taints else "{}"
    return _checked(_facts(source, kinds.NODE, node.metadata, annotations, spec))


def _facts(source: str, kind: str, about: Metadata, annotations: dict[str, str], spec: str) -> ResourceFacts:
    deleted = about.deletion_timestamp
    return ResourceFacts(
        ObjectId(source, kind, about.namespace, about.name),
        about.uid,
        max(1, about.generation),  # built-in kinds have none
        about.created_ms,
        round(deleted.timestamp() * 1000) if deleted else 0,
        dict(sorted((about.labels or {}).items())),
        dict(sorted(annotations.items())),
        spec,
        version_number(about.resource_version),
    )


def _checked(facts: ResourceFacts) -> ResourceFacts | str:
    """The facts, or the reason for which the fold would refuse them."""
    items = applied_items(applied(facts.at.source, _ENVELOPE, [facts], [-1]), TIME_MS_MAX)
    return items if isinstance(items, str) else facts


def applied(source: str, envelope: Envelope, found: list[ResourceFacts], expected: list[int]) -> ResourcesApplied:
    """The record about these objects. `expected` are the generations that objects older than the log replace."""
    return ResourcesApplied(
        envelope,
        source,
        _column([each.at.kind for each in found]),
        _column([each.at.namespace for each in found]),
        [each.at.name for each in found],
        [each.uid for each in found],
        [each.generation for each in found],
        [each.created_ms for each in found],
        _column([each.deleted_ms for each in found]),
        _column([each.labels for each in found]),
        _column([each.annotations for each in found]),
        [each.spec for each in found],
        _column(expected),
        [],
        [each.version for each in found],
    )


def _column(values: list[T]) -> list[T]:
    """A column of one entry if all items have the same value."""
    return values[:1] if values.count(values[0]) == len(values) else values


def size_of(facts: ResourceFacts) -> int:
    """An upper limit of the bytes of an object in a record."""
    texts = (*facts.at, facts.uid, facts.spec, *facts.annotations.values(), *facts.labels.values())
    keys = (*facts.annotations, *facts.labels)
    return sum(len(text.encode()) for text in texts) + sum(map(len, keys)) + 100
