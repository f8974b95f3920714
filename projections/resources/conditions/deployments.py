"""Conditions of DPUDeployments."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from projections.resources.blame import Blame
from projections.resources.conditions.condition import Condition, condition, with_ready
from projections.resources.conditions.world import World
from projections.resources.kinds import (
    DPU_SERVICE,
    DPU_SERVICE_CHAIN,
    DPU_SERVICE_INTERFACE,
    DPU_SET,
    short_name,
)
from projections.resources.state import object_id

_CHILDREN = (
    (DPU_SET, "DPUSets"),
    (DPU_SERVICE, "DPUServices"),
    (DPU_SERVICE_CHAIN, "DPUServiceChains"),
    (DPU_SERVICE_INTERFACE, "DPUServiceInterfaces"),
)

ConditionsOf = Callable[[str, World], tuple[Condition, ...]]
"""The conditions of an object of any kind, `Ready` first."""


def of_deployment(key: str, world: World, conditions_of: ConditionsOf) -> tuple[Condition, ...]:
    """A DPUDeployment: what it needs exists and fits, and its children are ready."""
    found = world.derivation.deployments.get(key)
    if found is None or isinstance(found, str):
        text = f"cannot be read: {found}" if found else "does not exist, or is being deleted"
        return with_ready([condition("PrerequisitesReady", [Blame(key, f"{short_name(key)} {text}")], "Error")])
    needed = found.prerequisites
    conditions = [
        condition("PrerequisitesReady", needed.missing),
        condition("ResourceFittingReady", needed.unfit, "Error"),
    ]
    blocking = (*needed.missing, *needed.unfit)
    for kind, name in _CHILDREN:
        lost = [
            Blame(holder, f"{short_name(child)} belongs to {short_name(holder)}, which is older than {short_name(key)}")
            for child, holder in world.derivation.children.lost(key).items()
            if object_id(child).kind == kind
        ]
        conditions.append(condition(f"{name}Reconciled", (*blocking, *lost), "Error" if lost else "Pending"))
        conditions.append(condition(f"{name}Ready", blocking or _unready(key, kind, world, conditions_of)))
    return with_ready(conditions)


def _unready(key: str, kind: str, world: World, conditions_of: ConditionsOf) -> Iterator[Blame]:
    """The blames on children of a kind. Each names the child; the causes of the child are its own conditions."""
    for child in world.derivation.children.of_owner(key):
        if object_id(child).kind != kind or world.derivation.children.holders[child] != key:
            continue
        ready = conditions_of(child, world)[0]
        if not ready.holds:
            yield Blame(child, f"{short_name(child)} waits for {waits_for(child, ready)}", ready.is_unknown)


def waits_for(key: str, ready: Condition) -> str:
    """The objects that an unready object waits for, for a message."""
    others = [short_name(blame.key.partition("#")[0]) for blame in ready.blames if blame.key != key]
    found = [*dict.fromkeys(others)]
    if not found:
        return ready.blames[0].message if ready.blames else "itself"
    return found[0] if len(found) == 1 else f"{found[0]} and {len(found) - 1} more"
