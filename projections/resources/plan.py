"""The effects of a change of objects on devices and services: the steps, in the order in which they would happen.

A plan compares two derivations: of the present objects, and of those that an apply would leave. Objects whose owner
lacks a prerequisite are held, so they have no step.

Chains and services leave before the DPUs that carry them, as finalizers on a DPU would otherwise wait for them forever;
new ones come after the DPUs. Within a DPUSet the order of DPUs is that of their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

import msgspec

from projections.resources.derivation import Derivation
from projections.resources.dpus import outdated_reason
from projections.resources.install_identity import INSTALLED, installed_fields
from projections.resources.kinds import DPU, DPU_SERVICE, DPU_SERVICE_CHAIN, DPU_SERVICE_INTERFACE, short_name
from projections.resources.specs import JSON
from projections.resources.state import Resource, ResourcesState, object_id
from projections.resources.wanted import Wanted

_RUNNING = (DPU_SERVICE, DPU_SERVICE_CHAIN, DPU_SERVICE_INTERFACE)

_Named: TypeAlias = tuple[str, str, str, str]
"""An object by its source, its namespace, the field of a DPU that names it, and its name."""


class Action(IntEnum):
    """The effect of a step on an object. The order is that of the steps."""

    CUT = 1
    """A chain is removed: traffic no longer passes its services."""
    DETACH = 2
    """An interface of a service is removed."""
    STOP = 3
    """A service is removed."""
    REMOVE = 4
    """A DPU is removed: its node effect is applied to the host, and it leaves its DPU cluster."""
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


class PlanStep(NamedTuple):
    """One step of a plan. `owner` is the object that causes it; `changes` are the old and new value by field."""

    action: Action
    key: str
    owner: str
    changes: Mapping[str, tuple[Any, Any]]

    @property
    def text(self) -> str:
        """The step as a line, without its changes."""
        return f"{self.action.name.lower()} {short_name(self.key)}"


class PlannedObjects:
    """The DPUs, services, interfaces and chains of a state: those that are wanted, and those that a user states.

    It is a copy: a derivation that is updated later leaves it as it is.
    """

    def __init__(self, state: ResourcesState, derivation: Derivation) -> None:
        children = derivation.children
        self._dpus = dict(derivation.dpus.winners)
        self._others = {key: each for key, each in children.winners.items() if each.at.kind in _RUNNING}
        self._others |= _stated_objects(state, derivation, self._others)
        self._deployments = dict(children.holders)
        self._contents = {
            key: row.spec
            for collection in sorted(state.by_kind)
            if collection.partition("/")[2] in INSTALLED.values()
            for key in state.by_kind[collection]
            for row in (state.objects.rows[key],)
        }

    @property
    def keys(self) -> Iterator[str]:
        """The keys of all objects."""
        yield from self._dpus
        yield from self._others

    @property
    def others(self) -> Iterable[str]:
        """The keys of objects that are no DPUs."""
        return self._others

    def get(self, key: str) -> Wanted | None:
        """An object by its key."""
        return self._dpus.get(key) or self._others.get(key)

    def deployment(self, owner: str) -> str:
        """The deployment of an owner of objects, else the owner."""
        return self._deployments.get(owner, owner)

    def edits(self, after: PlannedObjects) -> dict[_Named, JSON]:
        """The images and flavors that are edited in place: the fields that are installed, with old and new value."""
        found: dict[_Named, JSON] = {}
        for key, spec in self._contents.items():
            newer = after._contents.get(key, spec)
            if newer != spec:
                at = object_id(key)
                fields = _differences(installed_fields(at.kind, spec), installed_fields(at.kind, newer))
                for field, kind in INSTALLED.items():
                    if at.kind == kind and (changes := {f"{field}.{name}": values for name, values in fields}):
                        found[at.source, at.namespace, field, at.name] = changes
        return found


class Planning:
    """Compares two states, in slices. The keys of all objects that may differ come in order."""

    def __init__(self, before: PlannedObjects, after: PlannedObjects, derivation_after: Derivation) -> None:
        self._before, self._after, self._derivation = before, after, derivation_after
        self._steps: dict[tuple[Action, str], list[PlanStep]] = {}
        self._edits = before.edits(after)

    @property
    def has_edits(self) -> bool:
        """Whether an image or a flavor is edited in place, so that any DPU may have to be compared."""
        return bool(self._edits)

    def compare(self, keys: Iterable[str]) -> None:
        """Compare the objects of the next keys."""
        for key in keys:
            old, new = self._before.get(key), self._after.get(key)
            if old is not None and self._derivation.holds(self._before.deployment(old.owner)):
                continue  # it belongs to a deployment that lacks a prerequisite afterwards
            step = _step(key, old, new, self._edits_of(old, new))
            if step is not None:
                self._steps.setdefault((step.action, step.owner), []).append(step)

    def _edits_of(self, old: Wanted | None, new: Wanted | None) -> JSON:
        """The fields of the image and the flavor of a DPU that are edited in place."""
        found: JSON = {}
        if not self._edits or old is None or new is None or new.at.kind != DPU:
            return found
        for field in INSTALLED:
            if (name := new.spec.get(field)) and name == old.spec.get(field):
                found |= self._edits.get((new.at.source, new.at.namespace, field, name), {})
        return found

    def steps(self) -> list[PlanStep]:
        """The steps from one state to the other, in order."""
        return [step for group in sorted(self._steps) for step in self._steps[group]]


def plan(before: tuple[ResourcesState, Derivation], after: tuple[ResourcesState, Derivation]) -> list[PlanStep]:
    """The steps from one state to another, in order."""
    old, new = PlannedObjects(*before), PlannedObjects(*after)
    planning = Planning(old, new, after[1])
    planning.compare(sorted({*old.keys, *new.keys}))
    return planning.steps()


def _stated_objects(state: ResourcesState, derivation: Derivation, wanted: Mapping[str, Wanted]) -> dict[str, Wanted]:
    """The services, interfaces and chains that a user states."""
    found = {}
    for kinds in sorted(state.by_kind):
        if kinds.partition("/")[2] in _RUNNING:
            for key in state.by_kind[kinds]:
                row = state.objects.rows[key]
                if key not in wanted and not row.deleted_ms and not derivation.is_abandoned(key, row):
                    found[key] = _stated(key, row)
    return found


def _stated(key: str, row: Resource) -> Wanted:
    return Wanted(object_id(key), key, msgspec.json.decode(row.spec), row.labels, row.annotations)


def _step(key: str, old: Wanted | None, new: Wanted | None, edits: JSON) -> PlanStep | None:
    found = new or old
    if found is None or found.is_held or (old == new and not edits):
        return None
    kind = found.at.kind
    if old is None or new is None:
        action = _ADDED[kind] if old is None else _REMOVED[kind]
        return PlanStep(action, key, found.owner, dict(_differences(old.spec if old else {}, new.spec if new else {})))
    changes = dict(_differences(old.spec, new.spec))
    if kind == DPU:
        return _dpu_step(key, old, new, changes, edits)
    if not changes:
        return None
    return PlanStep(Action.RESTART if kind == DPU_SERVICE else Action.RECONNECT, key, new.owner, changes)


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


def _dpu_step(key: str, old: Wanted, new: Wanted, changes: dict[str, tuple[Any, Any]], edits: JSON) -> PlanStep | None:
    for name, before, after in (
        ("labels", old.labels, new.labels),
        ("annotations", old.annotations, new.annotations),
    ):
        if before != after:
            changes[name] = (before, after)
    if not changes and not edits:
        return None
    if edits or outdated_reason(old.spec, new.spec) is not None:
        return PlanStep(Action.REFLASH, key, new.owner, changes | edits)
    is_relabelled = not changes.keys().isdisjoint(("labels", "annotations", "cluster"))
    return PlanStep(Action.RELABEL if is_relabelled else Action.UPDATE, key, new.owner, changes)


def _differences(old: JSON, new: JSON) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield name, (old.get(name), new.get(name))
