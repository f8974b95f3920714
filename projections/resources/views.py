"""Objects as users see them: those that are stated, and those that are derived from them.

An object that is stated and wanted is shown as it is wanted, with the identity that it was stated with, as Kubernetes
shows it once a controller has applied it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from msgspec.structs import replace

from projections.resources import kinds
from projections.resources.conditions import set_dpus
from projections.resources.conditions.causes import conditions_of
from projections.resources.conditions.clusters import cluster_phase
from projections.resources.conditions.condition import Condition
from projections.resources.conditions.world import World
from projections.resources.derivation import Derivation
from projections.resources.dpus import without_used
from projections.resources.state import Resource, ResourcesState, object_id

_FIRST_PHASES = {
    kinds.BFB: "Initializing",
    kinds.BLUEFIELD_SOFTWARE: "Initializing",
    kinds.DPU: "Initializing",
    kinds.DPU_CLUSTER: "Pending",
}
"""The phase of an object of which nothing has been reported, by kind. Other kinds have no phases."""
_CLUSTER_DELETING = "NotReady"
"""The phase of a DPUCluster that is being deleted: DPF has none for it."""
_NAMES_SHOWN = 3


class ObjectView(NamedTuple):
    """An object, and the key of the object that wants it, empty if a user stated it."""

    row: Resource
    owner: str = ""
    is_derived: bool = False


class ChildGroup(NamedTuple):
    """Children of one kind in the same condition. `names` are the first."""

    kind: str
    status: Literal["", "True", "False", "Unknown"]
    reason: str
    size: int
    names: tuple[str, ...]


def keys(state: ResourcesState, derivation: Derivation, source: str = "", kind: str = "") -> Iterator[str]:
    """The keys of all objects of a kind, of all kinds if it is empty; and the same for sources."""
    for collection in state.by_kind:
        its_source, _, its_kind = collection.partition("/")
        if source in ("", its_source) and kind in ("", its_kind):
            yield from state.by_kind[collection]
    for claims in (derivation.children, derivation.dpus):
        for key in claims.of_kind(source, kind):
            if key not in state.objects.rows:
                yield key


def view(key: str, world: World) -> ObjectView | None:
    """An object by its key; None if it is neither stated nor wanted."""
    stated, wanted = world.stated(key), world.wanted(key)
    if wanted is None:
        return None if stated is None else ObjectView(stated)
    as_wanted = without_used(wanted, _observed_phase(key, world)).as_row(0)
    if stated is not None:
        fields = {"labels": as_wanted.labels, "annotations": as_wanted.annotations, "spec": as_wanted.spec}
        return ObjectView(replace(stated, **fields), wanted.owner)
    owner = view(wanted.owner, world)
    uid = _uid(owner.row.uid if owner else wanted.owner, key)
    created_ms = _wanted_since_ms(key, owner, world)
    row = replace(as_wanted, uid=uid, generation=1, created_ms=created_ms, changed_ms=created_ms)
    return ObjectView(row, wanted.owner, is_derived=True)


def labels(key: str, world: World) -> Mapping[str, str]:
    """The labels of an object, without the cost of its whole view."""
    wanted, stated = world.wanted(key), world.stated(key)
    if wanted is not None:
        return wanted.labels
    return stated.labels if stated is not None else {}


def phase(key: str, row: Resource, conditions: tuple[Condition, ...], world: World) -> str:
    """The phase of an object of a kind that has phases."""
    kind = object_id(key).kind
    first = _FIRST_PHASES.get(kind, "")
    if not first:
        return ""
    if row.deleted_ms:
        return _CLUSTER_DELETING if kind == kinds.DPU_CLUSTER else "Deleting"
    seen = world.observed.get(key)
    if seen is not None and seen.phase:
        return seen.phase
    if conditions and conditions[0].holds:
        return "Ready"
    return cluster_phase(key, world) if kind == kinds.DPU_CLUSTER else first


def _observed_phase(key: str, world: World) -> str:
    seen = world.observed.get(key)
    return seen.phase if seen is not None else ""


def children(key: str, world: World) -> list[ChildGroup]:
    """The objects that an object wants, grouped by kind and by the condition `Ready`."""
    found: dict[_Group, tuple[int, list[str]]] = {}
    for child in world.derivation.children.wanted_by(key):
        _add(found, child, 1, [child], world)
    for dpus in set_dpus.groups(key, world):
        first = dpus.first(_NAMES_SHOWN)
        _add(found, first[0], len(dpus.keys), first, world)
    return [
        ChildGroup(*group, size, tuple(object_id(each).name for each in sorted(names)[:_NAMES_SHOWN]))
        for group, (size, names) in sorted(found.items())
    ]


_Group = tuple[str, Literal["", "True", "False", "Unknown"], str]
"""The first fields of a ChildGroup."""


def _add(found: dict[_Group, tuple[int, list[str]]], child: str, size: int, names: list[str], world: World) -> None:
    """Add children in the same condition as `child`, with the first of their keys."""
    ready = next(iter(conditions_of(child, world)), None)
    group = (object_id(child).kind, ready.status if ready else "", ready.reason if ready else "")
    known, others = found.get(group, (0, []))
    found[group] = (known + size, [*others, *names])


def _uid(owner: str, key: str) -> str:
    """The uid of a derived object, in the form of a UUID: the same in every process, and another for another owner."""
    text = hashlib.sha256(f"{owner}/{key}".encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-a{text[17:20]}-{text[20:32]}"


def _wanted_since_ms(key: str, owner: ObjectView | None, world: World) -> int:
    """The time since which a derived object is wanted: its owner must exist, and a DPU also needs its device. A DPU may
    be selected long after that, when a label changes; its placement follows at once."""
    device = world.stated(world.derivation.dpus.holders.get(key, "").partition("#")[0])
    placement = world.state.placements.rows.get(key)
    times = [row.created_ms for row in (owner.row if owner else None, device) if row is not None]
    return max(times + ([placement.since_ms] if placement is not None else []), default=0)
