"""What a change of objects would do to devices and services, step by step, in the order in which it would happen.

A plan compares two derivations: of the present objects, and of those that an apply would leave. Objects whose owner
lacks a prerequisite are held, so they have no step.

Chains and services leave before the DPUs that carry them, as finalizers on a DPU would otherwise wait for them forever;
new ones come after the DPUs. Within a DPUSet the order of DPUs is that of their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec

from projections.resources.derivation import Derivation
from projections.resources.dpus import outdated_reason
from projections.resources.kinds import DPU, DPU_SERVICE, DPU_SERVICE_CHAIN, DPU_SERVICE_INTERFACE, short_name
from projections.resources.specs import JSON
from projections.resources.state import Resource, ResourcesState, object_id
from projections.resources.wanted import Wanted

_RUNNING = (DPU_SERVICE, DPU_SERVICE_CHAIN, DPU_SERVICE_INTERFACE)


class Action(IntEnum):
    """What happens to an object. The order is that of the steps."""

    CUT = 1
    """A chain is removed: traffic no longer passes its services."""
    DETACH = 2
    """An interface of a service is removed."""
    STOP = 3
    """A service is removed."""
    REMOVE = 4
    """A DPU is removed: its host gives way, and it leaves its DPU cluster."""
    REFLASH = 5
    """A DPU is installed anew."""
    CREATE = 6
    """A DPU is installed for the first time."""
    RELABEL = 7
    """The labels or annotations of a DPU change, or those of its node; its services may move to another revision."""
    UPDATE = 8
    """Other fields of a DPU change, such as the effect on its host; they count at its next installation."""
    ATTACH = 9
    """An interface of a service is added."""
    START = 10
    """A service is added."""
    RESTART = 11
    """The pods of a service are replaced by those of a changed one."""
    CONNECT = 12
    """A chain is added."""
    RECONNECT = 13
    """The switches of a chain or an interface change in place: its traffic is interrupted."""


class Step(NamedTuple):
    """One step of a plan. `owner` is the object that causes it; `changes` are the old and new value by field."""

    action: Action
    key: str
    owner: str
    changes: Mapping[str, tuple[Any, Any]]

    @property
    def text(self) -> str:
        """The step as a line, without its changes."""
        return f"{self.action.name.lower()} {short_name(self.key)}"


def plan(before: tuple[ResourcesState, Derivation], after: tuple[ResourcesState, Derivation]) -> list[Step]:
    """The steps from one state to another, in order."""
    old, new = _objects(*before), _objects(*after)
    steps = []
    for key in sorted({*old, *new}):
        if key in old and _is_kept(old[key], before[1], after[1]):
            continue
        step = _step(key, old.get(key), new.get(key))
        if step is not None:
            steps.append(step)
    return sorted(steps, key=lambda step: (step.action, step.owner, step.key))


def _objects(state: ResourcesState, derivation: Derivation) -> dict[str, Wanted]:
    """DPUs, services, interfaces and chains: those that are wanted, and those that a user states."""
    found = {each.at.key: each for each in derivation.wanted() if each.at.kind in (DPU, *_RUNNING)}
    for kinds in sorted(state.by_kind):
        if kinds.partition("/")[2] in _RUNNING:
            for key in state.by_kind[kinds]:
                row = state.objects.rows[key]
                if key not in found and not row.deleted_ms and not derivation.is_abandoned(key, row):
                    found[key] = _stated(key, row)
    return found


def _stated(key: str, row: Resource) -> Wanted:
    return Wanted(object_id(key), key, msgspec.json.decode(row.spec), row.labels, row.annotations)


def _is_kept(old: Wanted, before: Derivation, after: Derivation) -> bool:
    """Whether an object belongs to a deployment that lacks a prerequisite afterwards."""
    return after.holds(before.children.holders.get(old.owner, old.owner))


def _step(key: str, old: Wanted | None, new: Wanted | None) -> Step | None:
    found = new or old
    if found is None or found.is_held:
        return None
    kind = found.at.kind
    if old is None or new is None:
        action = _ADDED[kind] if old is None else _REMOVED[kind]
        return Step(action, key, found.owner, dict(_differences(old.spec if old else {}, new.spec if new else {})))
    changes = dict(_differences(old.spec, new.spec))
    if kind == DPU:
        return _dpu_step(key, old, new, changes)
    if not changes:
        return None
    return Step(Action.RESTART if kind == DPU_SERVICE else Action.RECONNECT, key, new.owner, changes)


_ADDED = {
    DPU: Action.CREATE,
    DPU_SERVICE: Action.START,
    DPU_SERVICE_CHAIN: Action.CONNECT,
    DPU_SERVICE_INTERFACE: Action.ATTACH,
}
_REMOVED = {
    DPU: Action.REMOVE,
    DPU_SERVICE: Action.STOP,
    DPU_SERVICE_CHAIN: Action.CUT,
    DPU_SERVICE_INTERFACE: Action.DETACH,
}


def _dpu_step(key: str, old: Wanted, new: Wanted, changes: dict[str, tuple[Any, Any]]) -> Step | None:
    for name, before, after in (
        ("labels", old.labels, new.labels),
        ("annotations", old.annotations, new.annotations),
    ):
        if before != after:
            changes[name] = (before, after)
    if not changes:
        return None
    if outdated_reason(old.spec, new.spec) is not None:
        return Step(Action.REFLASH, key, new.owner, changes)
    is_relabelled = not changes.keys().isdisjoint(("labels", "annotations", "cluster"))
    return Step(Action.RELABEL if is_relabelled else Action.UPDATE, key, new.owner, changes)


def _differences(old: JSON, new: JSON) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield name, (old.get(name), new.get(name))
