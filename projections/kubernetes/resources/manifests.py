"""A wanted object as the manifest that server-side apply sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from projections.kubernetes.object_names import OWN_LABELS
from projections.kubernetes.resources.api_kinds import API_KINDS
from projections.kubernetes.resources.live_object import LiveObject
from projections.resources.state import ObjectId, object_id
from projections.resources.wanted import Wanted
from schemas.kubernetes.objects import Metadata, OwnerReference

FIELD_MANAGER = "dpuplane"
OWNER = "dpuplane.io/owner"
"""Annotation of an object that the plane writes: the key of the object that wants it."""
_LABEL, _VALUE = next(iter(OWN_LABELS.items()))
OWN_SELECTOR = f"{_LABEL}={_VALUE}"
"""The label selector of the objects that the plane writes."""

Manifest = dict[str, Any]


def manifest(
    wanted: Wanted,
    *,
    owner: OwnerReference | None = None,
    finalizers: Sequence[str] = (),
    content: Mapping[str, Any] | None = None,
) -> Manifest:
    """The manifest of a wanted object. `content` are fields that are known only when it is written: those of a Secret.
    Its source is not part of it: the caller writes it into that cluster."""
    metadata: Manifest = {
        "name": wanted.at.name,
        "labels": {**wanted.labels, **OWN_LABELS},
        "annotations": {**wanted.annotations, OWNER: wanted.owner},
    }
    if wanted.at.namespace:
        metadata["namespace"] = wanted.at.namespace
    if owner is not None:
        metadata["ownerReferences"] = [msgspec.to_builtins(owner)]
    if finalizers or wanted.finalizers:
        metadata["finalizers"] = [*finalizers, *wanted.finalizers]
    kind = API_KINDS[wanted.at.kind]
    found = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
    if wanted.spec:
        found["spec"] = wanted.spec
    return {**found, **wanted.fields, **(content or {})}


def stated_manifest(
    at: ObjectId, labels: Mapping[str, str], annotations: Mapping[str, str], spec: str, finalizers: Sequence[str]
) -> Manifest:
    """The manifest of an object that the plane states as a user would: nothing says later that it is the plane's."""
    kind = API_KINDS[at.kind]
    metadata: Manifest = {"name": at.name, "labels": dict(labels), "annotations": dict(annotations)}
    if at.namespace:
        metadata["namespace"] = at.namespace
    if finalizers:
        metadata["finalizers"] = [*finalizers]
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": msgspec.json.decode(spec)}


def partial_manifest(at: ObjectId, uid: str, **fields: Any) -> Manifest:
    """A manifest of some fields of an object that exists, such as its status. With the uid, server-side apply creates
    no object."""
    kind = API_KINDS[at.kind]
    metadata = {"name": at.name, "uid": uid, **fields.pop("metadata", {})}
    if at.namespace:
        metadata["namespace"] = at.namespace
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **fields}


def namespace_manifest(name: str) -> Manifest:
    """The manifest of a namespace that objects of ours need. It stays when they are gone."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(OWN_LABELS)}}


def owner_reference(owner: ObjectId, uid: str) -> OwnerReference:
    """The reference to the controller of an object. It must be in the same namespace."""
    kind = API_KINDS[owner.kind]
    return OwnerReference(kind.api_version, kind.name, owner.name, uid, controller=True, block_owner_deletion=True)


def can_refer(at: ObjectId, owner: ObjectId) -> bool:
    """Whether an object may have a reference to its owner: both are in one namespace of one cluster."""
    return (at.source, at.namespace) == (owner.source, owner.namespace) and bool(at.namespace)


def is_own(metadata: Metadata) -> bool:
    """Whether the plane writes an object, by its label."""
    return (metadata.labels or {}).get(_LABEL) == _VALUE


def owner_of(found: LiveObject) -> ObjectId | None:
    """The object that wanted an object when the plane wrote it; None for objects of others."""
    key = (found.metadata.annotations or {}).get(OWNER, "")
    return object_id(key) if is_own(found.metadata) and key.count("/") == 3 else None
