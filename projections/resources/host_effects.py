"""The effect of work on a DPU on its host, as values: what a DPU asks for, and the objects that count who needs it.

A DPUNodeMaintenance is the shared claim on a host: its requestors are the DPUs that need the effect. A maintenance
without requestors is being lifted, so no DPU joins it. It is deleted afterwards, and the next DPU makes a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from projections.resources.kinds import DPU_NODE_MAINTENANCE
from projections.resources.specs import JSON, Labels, read_json
from projections.resources.state import ObjectId, Resource
from projections.resources.wanted import suffix
from schemas.resources.dpf.names import WAIT_FOR_NODE_EFFECT
from schemas.resources.dpf.node_effect import EFFECTS

NO_EFFECT, DRAIN, TAINT, CUSTOM_LABEL, CUSTOM_ACTION, HOLD = (
    "noEffect",
    "drain",
    "taint",
    "customLabel",
    "customAction",
    "hold",
)
NAME_MAX = 63
_RELEASED = "false"
_LABELS_OF = "dpuplane.io/labels-of/"
_SUFFIX_MAX = 8
"""At most this many characters at the end of a name that was too long are not those of the host."""


class Effect(NamedTuple):
    """An effect on a host. `settings` is its value: a taint, labels, or the name of a ConfigMap."""

    kind: str = DRAIN
    settings: Any = True
    force: bool = False
    applies_on_label_change: bool = False
    additional_requestors: tuple[str, ...] = ()

    def as_json(self) -> JSON:
        """The effect as in a spec."""
        found: JSON = {self.kind: self.settings}
        if self.force:
            found["force"] = True
        if self.additional_requestors:
            found["nodeMaintenanceAdditionalRequestors"] = [*self.additional_requestors]
        return found


def effect_of(spec: JSON | None) -> Effect:
    """The effect in a spec. Without one, the host is drained, as in release 24.10."""
    given = spec or {}
    kind = next((name for name in EFFECTS if _is_effect(name, given.get(name))), DRAIN)
    requestors = given.get("nodeMaintenanceAdditionalRequestors") or ()
    return Effect(
        kind,
        given.get(kind, True),
        bool(given.get("force")),
        bool(given.get("applyOnLabelChange")),
        tuple(each for each in requestors if isinstance(each, str)),
    )


def _is_effect(kind: str, value: Any) -> bool:
    """Whether a value of a spec has an effect: false and empty ones have none. Release 24.10 writes `drain: {}`."""
    return value not in (None, False, "") and (kind == DRAIN or value != {})


class Maintenance(NamedTuple):
    """A DPUNodeMaintenance. `version` is the version of the object that this value was read from."""

    at: ObjectId
    uid: str
    version: str
    node: str
    effect: Effect
    requestors: tuple[str, ...]
    labels: Labels
    annotations: Labels
    created_ms: int

    @property
    def is_held(self) -> bool:
        """Whether the effect waits until somebody removes the annotation, or sets it to false."""
        value = self.annotations.get(WAIT_FOR_NODE_EFFECT, _RELEASED)
        return self.effect.kind == HOLD and value.lower() != _RELEASED

    @property
    def is_lifting(self) -> bool:
        return not self.requestors

    def spec(self) -> JSON:
        return {"dpuNodeName": self.node, "nodeEffect": self.effect.as_json(), "requestor": [*self.requestors]}


def maintenance_id(source: str, namespace: str, node: str, kind: str) -> ObjectId:
    """The identity of the maintenance of a host: `<host>-<effect>`. A longer name is cut, and ends in a digest."""
    name = f"{node}-{kind}".lower()
    if len(name) > NAME_MAX:
        end = suffix(name)
        name = f"{name[: NAME_MAX - len(end) - 1].rstrip('-.')}-{end}"
    return ObjectId(source, DPU_NODE_MAINTENANCE, namespace, name)


def name_begin(node: str) -> str:
    """How the names of all maintenances of a host begin."""
    return f"{node}-".lower()[: NAME_MAX - _SUFFIX_MAX]


def new_maintenance(at: ObjectId, node: str, effect: Effect, requestor: str) -> Maintenance:
    """A maintenance that does not exist yet."""
    annotations = {WAIT_FOR_NODE_EFFECT: "true"} if effect.kind == HOLD else {}
    return Maintenance(at, "", "", node, effect, (requestor,), {}, annotations, 0)


def read_maintenance(at: ObjectId, metadata: Mapping[str, Any], spec: JSON) -> Maintenance:
    """The maintenance in an object. A field of another type counts as absent: users may edit the object."""
    requestors = spec.get("requestor")
    effect = spec.get("nodeEffect")
    return Maintenance(
        at,
        metadata["uid"],
        metadata["version"],
        str(spec.get("dpuNodeName", "")),
        effect_of(effect if isinstance(effect, dict) else None),
        tuple(each for each in requestors if isinstance(each, str)) if isinstance(requestors, list) else (),
        metadata["labels"],
        metadata["annotations"],
        metadata["created_ms"],
    )


def maintenance_of(at: ObjectId, row: Resource) -> Maintenance:
    """The maintenance in a row."""
    metadata = {
        "uid": row.uid,
        "version": str(row.changed_offset),
        "labels": row.labels,
        "annotations": row.annotations,
        "created_ms": row.created_ms,
    }
    return read_maintenance(at, metadata, read_json(row))


def label_requestor(dpu: str) -> str:
    """The requestor of a maintenance in which the labels of a DPU change. It is not the name of a DPU of the host."""
    return _LABELS_OF + dpu


def dpu_of_labels(requestor: str) -> str | None:
    """The DPU of such a requestor; None for another one."""
    return requestor.removeprefix(_LABELS_OF) if requestor.startswith(_LABELS_OF) else None


def joined(found: Maintenance, requestor: str) -> Maintenance:
    """The maintenance with one more requestor."""
    assert found.requestors, "a maintenance without requestors is being lifted"
    return found._replace(requestors=(*found.requestors, requestor))


def left(found: Maintenance, requestors: Iterable[str]) -> Maintenance:
    """The maintenance without these requestors."""
    gone = set(requestors)
    return found._replace(requestors=tuple(each for each in found.requestors if each not in gone))


def admitted(found: Iterable[Maintenance], hosts_max: int) -> frozenset[str]:
    """The keys of the maintenances of a source that have a place: those of the first hosts, in this order. A host with
    several maintenances counts once, until the last of them is gone: an effect lasts while it is being lifted. A
    forced maintenance needs no place, and takes one."""
    hosts: set[tuple[str, str]] = set()
    keys = set()
    for each in found:
        host = (each.at.namespace, each.node)
        if each.effect.force or len(hosts) - (host in hosts) < hosts_max:
            keys.add(each.at.key)
        if each.effect.kind != NO_EFFECT:
            hosts.add(host)
    return frozenset(keys)
