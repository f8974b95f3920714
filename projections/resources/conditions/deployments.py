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
    mismatched = [each for each in needed.mismatched if not each.is_unknown]
    conditions = [
        condition("PrerequisitesReady", (*needed.missing, *needed.leaving)),
        condition("ResourceFittingReady", needed.unfit, "Error"),
        condition("VersionMatchingReady", needed.mismatched, "Error" if mismatched else "Pending"),
    ]
    blocking = (*needed.missing, *needed.unfit, *mismatched)
    for kind, name in _CHILDREN:
        lost = [
            Blame(holder, f"{short_name(child)} belongs to {short_name(holder)}, which is older than {short_name(key)}")
            for child, holder in world.derivation.children.lost(key).items()
            if object_id(child).kind == kind
        ]
        conditions.append(condition(f"{name}Reconciled", (*blocking, *lost), "Error" if lost else "Pending"))
        conditions.append(condition(f"{name}Ready", blocking or unready_children(key, kind, world, conditions_of)))
    ready, *rest = with_ready(conditions)
    return (ready._replace(message=_without_dpus(key, world)) if ready.holds else ready, *rest)


def _without_dpus(key: str, world: World) -> str:
    """A sentence about the DPUSets of a ready deployment that have no DPU; empty if each has one."""
    sets = [child for child in world.derivation.children.of_owner(key) if object_id(child).kind == DPU_SET]
    empty = [each for each in sets if not world.derivation.dpus.wanted_by(each)]
    if not empty:
        return ""
    if len(empty) == len(sets):
        return f"{short_name(key)} has no DPU: the selectors of its DPUSets match no DPUDevice of a DPUNode"
    return f"{short_name(empty[0])} has no DPU" + (f", nor have {len(empty) - 1} more" if len(empty) > 1 else "")


def unready_children(key: str, kind: str, world: World, conditions_of: ConditionsOf) -> Iterator[Blame]:
    """The blames on children of a kind. Each names the child; the causes of the child are its own conditions."""
    for child in world.derivation.children.of_owner(key):
        if object_id(child).kind != kind or world.derivation.children.holders[child] != key:
            continue
        ready = conditions_of(child, world)[0]
        if not ready.holds:
            yield Blame(child, f"{short_name(child)} {_why_unready(child, ready)}", ready.is_unknown)


def _why_unready(key: str, ready: Condition) -> str:
    """The objects that an unready object waits for, or its own fault, as the end of a sentence."""
    others = [short_name(blame.key.partition("#")[0]) for blame in ready.blames if blame.key != key]
    found = [*dict.fromkeys(others)]
    if not found:
        return f"is not ready: {ready.blames[0].message}" if ready.blames else "is not ready"
    return f"waits for {found[0]}" if len(found) == 1 else f"waits for {found[0]} and {len(found) - 1} more"
