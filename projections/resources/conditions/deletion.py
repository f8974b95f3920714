"""What an object that is being deleted waits for, as far as the log knows it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from projections.resources import kinds
from projections.resources.blame import Blame
from projections.resources.conditions.condition import BLAMES_MAX, READY, Condition, condition
from projections.resources.conditions.world import World
from projections.resources.deployments.naming import owner_value
from projections.resources.kinds import short_name
from projections.resources.stale import REMOVAL_ORDER
from projections.resources.state import object_id
from schemas.resources.dpf.names import OWNING_DEPLOYMENT


def with_deletion(key: str, world: World, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """The conditions of an object. What keeps an object that is being deleted replaces why it is not ready."""
    row = world.stated(key)
    if row is None or not row.deleted_ms:
        return conditions
    blames = [*users(key, world), *_children(key, world), *unreleased(key, world)]
    more = max(0, world.state.uses(key) - BLAMES_MAX)
    return (condition(READY, blames, "AwaitingDeletion", more), *conditions[1:]) if blames else conditions


def users(key: str, world: World) -> Iterator[Blame]:
    """The first objects that use an object."""
    for each in heapq.nsmallest(BLAMES_MAX, world.state.users(key)):
        yield Blame(each, f"{short_name(key)} is in use by {short_name(each)}")


def unreleased(key: str, world: World) -> Iterator[Blame]:
    """A DPU that its zone has not deleted."""
    if object_id(key).kind == kinds.DPU and world.wanted(key) is None and key in world.observed:
        yield Blame(key, f"{short_name(key)} has not been released by its zone yet")


def _children(key: str, world: World) -> Iterator[Blame]:
    """The children of a DPUDeployment, the kind first that leaves first."""
    at, rows = object_id(key), world.state.objects.rows
    if at.kind != kinds.DPU_DEPLOYMENT:
        return
    for kind in REMOVAL_ORDER:
        for each in world.state.of_kind(at.source, kind):
            if rows[each].labels.get(OWNING_DEPLOYMENT) == owner_value(at):
                yield Blame(each, f"{short_name(key)} waits until {short_name(each)} is deleted")
