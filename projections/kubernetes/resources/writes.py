"""The next write that brings an object of a cluster nearer to what it shall be. None if it is as it shall be."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from projections.kubernetes.resources.field_ownership import Path, changed_by, has_surplus, lacking
from projections.kubernetes.resources.live_object import LiveObject
from projections.kubernetes.resources.manifests import FIELD_MANAGER, Manifest, partial_manifest
from projections.kubernetes.resources.server_schemas import pruned
from projections.kubernetes.resources.statuses import fitting, stamped
from projections.resources import kinds
from projections.resources.services.applications import SKIP_RECONCILE
from projections.resources.state import ObjectId

STATUS = "status"
_FIXED = {kinds.DPU: ("nodeName", "dpuNodeName", "dpuDeviceName", "serialNumber", "secureBoot")}
"""Fields of a spec that the server lets nobody change, by kind. An object that must change one is made again."""


class Goal(NamedTuple):
    """What an object shall be. An object without a manifest is somebody else's: only its finalizers and its status are
    written. `is_over` means that it must be deleted, `is_released` that its finalizers may go. The status lacks the
    times of transitions. `annotations` are all that the plane sets on an object of somebody else; None leaves them as
    they are. An absent object with `first` is created so once, and is somebody else's from then on."""

    manifest: Manifest | None = None
    first: Manifest | None = None
    finalizers: Sequence[str] = ()
    status: Mapping[str, Any] | None = None
    is_over: bool = False
    is_released: bool = False
    annotations: Mapping[str, str] | None = None


NOTHING = Goal()


class Restored(NamedTuple):
    """A field of ours that others had changed."""

    path: str
    managers: tuple[str, ...]


class Write(NamedTuple):
    """A write. `digest` is that of the fields that it writes. `restored` are fields that others had changed."""

    verb: Literal["apply", "create", "status", "delete", "release"]
    body: Any
    digest: str = ""
    restored: tuple[Restored, ...] = ()


def next_write(
    at: ObjectId, goal: Goal, live: LiveObject | None, schema: Mapping[str, Any] | None, now_ms: int
) -> Write | None:
    """The next write of an object, whose kind has this schema on the server."""
    if live is None:
        if goal.first is not None:
            return Write("create", _fitted(goal.first, schema))
        return _applied(goal.manifest, None, schema) if goal.manifest is not None else None
    if live.metadata.deletion_timestamp is not None:
        return _release(live, goal) or _status(at, goal, live, schema, now_ms)
    if goal.is_over:
        return _resumed(live) or Write("delete", live.metadata.uid)
    if goal.manifest is not None:
        write = _applied(goal.manifest, live, schema)
        if write is not None and at.kind == kinds.SECRET and goal.manifest.get("type", live.type) != live.type:
            return Write("delete", live.metadata.uid)  # the server lets nobody change the type of a Secret
        if write is not None and _is_fixed(at.kind, goal.manifest, live):
            # Without its finalizers the object is gone at once. With them its deletion would be seen, and be taken for
            # that of a user, which releases the DPU to its wanted image.
            return _release(live, goal._replace(is_released=True)) or Write("delete", live.metadata.uid)
    else:
        write = _protect(at, goal, live)
    return write or _status(at, goal, live, schema, now_ms)


def _resumed(live: LiveObject) -> Write | None:
    """Let Argo CD reconcile a paused Application again: it would not remove what it has installed."""
    if SKIP_RECONCILE not in (live.metadata.annotations or {}):
        return None
    path = f"/metadata/annotations/{SKIP_RECONCILE.replace('/', '~1')}"
    operations = [{"op": "test", "path": "/metadata/uid", "value": live.metadata.uid}, {"op": "remove", "path": path}]
    return Write("release", operations)


def content_digest(document: Mapping[str, Any]) -> str:
    """A digest of the fields of an object."""
    return hashlib.sha256(msgspec.json.encode(document, order="sorted")).hexdigest()[:16]


def _applied(wanted: Manifest, live: LiveObject | None, schema: Mapping[str, Any] | None) -> Write | None:
    fitted = _fitted(wanted, schema)
    if live is None:
        return Write("apply", fitted, content_digest(fitted))
    content = {name: part for name, part in fitted.items() if name not in ("apiVersion", "kind")}
    content["metadata"] = {name: part for name, part in fitted["metadata"].items() if name not in ("name", "namespace")}
    missing = [*lacking(content, live.document())]
    if not missing and not has_surplus(live.managed(FIELD_MANAGER), fitted):
        return None
    return Write("apply", fitted, content_digest(fitted), _restored(missing, live))


def _fitted(wanted: Manifest, schema: Mapping[str, Any] | None) -> Manifest:
    """A manifest without the fields that the server does not have."""
    return {**wanted, **pruned({name: wanted[name] for name in ("spec",) if name in wanted}, schema)}


def _restored(missing: Sequence[Path], live: LiveObject, subresource: str = "") -> tuple[Restored, ...]:
    """The fields that a write takes back from others. A field that was ours before has only other owners now."""
    others = live.others(FIELD_MANAGER, subresource)
    owned = {FIELD_MANAGER: live.managed(FIELD_MANAGER, subresource)}
    if not owned[FIELD_MANAGER]:
        return ()
    found = []
    for path in missing:
        managers = changed_by(path, others)
        if managers and not changed_by(path, owned):
            found.append(Restored(".".join(path), tuple(managers)))
    return tuple(found)


def _is_fixed(kind: str, wanted: Manifest, live: LiveObject) -> bool:
    """Whether a field differs that cannot be changed."""
    fields, present = wanted.get("spec", {}), live.document()["spec"]
    return any(name in fields and name in present and fields[name] != present[name] for name in _FIXED.get(kind, ()))


def _protect(at: ObjectId, goal: Goal, live: LiveObject) -> Write | None:
    present = live.metadata.finalizers or []
    if all(each in present for each in goal.finalizers) and not _has_other_annotations(goal, live):
        return None
    metadata = {"finalizers": list(goal.finalizers), **({"annotations": goal.annotations} if goal.annotations else {})}
    body = partial_manifest(at, live.metadata.uid, metadata=metadata)
    return Write("apply", body, content_digest(body))


def _has_other_annotations(goal: Goal, live: LiveObject) -> bool:
    """Whether an object lacks an annotation that the plane sets, or has one that it sets no more."""
    if goal.annotations is None:
        return False
    present = live.metadata.annotations or {}
    owned = live.managed(FIELD_MANAGER).get("f:metadata", {}).get("f:annotations", {})
    is_surplus = any(field != "." and field.removeprefix("f:") not in goal.annotations for field in owned)
    return is_surplus or any(present.get(name) != value for name, value in goal.annotations.items())


def _release(live: LiveObject, goal: Goal) -> Write | None:
    """Remove our finalizers with a patch that fails if the list has changed."""
    if not goal.is_released:
        return None
    present = live.metadata.finalizers or []
    places = [place for place, each in enumerate(present) if each in goal.finalizers]
    if not places:
        return None
    operations: list[Any] = [{"op": "test", "path": "/metadata/uid", "value": live.metadata.uid}]
    for place in reversed(places):
        path = f"/metadata/finalizers/{place}"
        operations += [{"op": "test", "path": path, "value": present[place]}, {"op": "remove", "path": path}]
    return Write("release", operations)


def _status(at: ObjectId, goal: Goal, live: LiveObject, schema: Mapping[str, Any] | None, now_ms: int) -> Write | None:
    if goal.status is None:
        return None
    fitted = fitting(goal.status, schema)
    present = live.status_document()
    if not fitted or fitted.get("observedGeneration", 0) < present.get("observedGeneration", 0):
        return None  # another replica knows more
    status = stamped(fitted, present, now_ms)
    missing = [*lacking({STATUS: status}, {STATUS: present})]
    if not missing and not has_surplus(live.managed(FIELD_MANAGER, STATUS), {STATUS: status}):
        return None
    body = partial_manifest(at, live.metadata.uid, status=status)
    return Write("status", body, content_digest(fitted), _restored(missing, live, STATUS))
