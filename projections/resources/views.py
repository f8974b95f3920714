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
from projections.resources.conditions.causes import conditions_of
from projections.resources.conditions.condition import Condition
from projections.resources.conditions.world import World
from projections.resources.derivation import Derivation
from projections.resources.state import Resource, ResourcesState, object_id
from projections.resources.wanted import Wanted

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
    for winners in (derivation.children.winners, derivation.dpus.winners):
        for key, wanted in winners.items():
            if source in ("", wanted.at.source) and kind in ("", wanted.at.kind) and key not in state.objects.rows:
                yield key


def view(key: str, world: World) -> ObjectView | None:
    """An object by its key; None if it is neither stated nor wanted."""
    stated, wanted = world.stated(key), world.wanted(key)
    if wanted is None:
        return None if stated is None else ObjectView(stated)
    as_wanted = wanted.as_row(0)
    if stated is not None:
        fields = {"labels": as_wanted.labels, "annotations": as_wanted.annotations, "spec": as_wanted.spec}
        return ObjectView(replace(stated, **fields), wanted.owner)
    owner = view(wanted.owner, world)
    uid = _uid(owner.row.uid if owner else wanted.owner, key)
    times = [row.created_ms for row in (owner.row if owner else None, _device(key, world)) if row is not None]
    created_ms = max(times, default=0)
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
    return "Ready" if conditions and conditions[0].holds else first


def children(key: str, world: World) -> list[ChildGroup]:
    """What an object wants, grouped by kind and by the condition `Ready`."""
    groups: dict[tuple[str, Literal["", "True", "False", "Unknown"], str], list[str]] = {}
    for child in _wanted_by(key, world):
        ready = next(iter(conditions_of(child.at.key, world)), None)
        group = (child.at.kind, ready.status if ready else "", ready.reason if ready else "")
        groups.setdefault(group, []).append(child.at.name)
    return [
        ChildGroup(*group, len(names), tuple(sorted(names)[:_NAMES_SHOWN])) for group, names in sorted(groups.items())
    ]


def _uid(owner: str, key: str) -> str:
    """The uid of a derived object, in the form of a UUID: the same in every process, and another for another owner."""
    text = hashlib.sha256(f"{owner}/{key}".encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-a{text[17:20]}-{text[20:32]}"


def _wanted_by(key: str, world: World) -> Iterator[Wanted]:
    derivation = world.derivation
    for child in derivation.children.of_owner(key):
        if derivation.children.holders[child] == key:
            yield derivation.children.winners[child]
    for device in derivation.selection.members(key):
        for dpu in derivation.dpus.of_owner(device):
            found = derivation.dpus.winners[dpu]
            if found.owner == key and derivation.dpus.holders[dpu] == device:
                yield found


def _device(key: str, world: World) -> Resource | None:
    """The object of the device of a DPU."""
    return world.stated(world.derivation.dpus.holders.get(key, "").partition("#")[0])
