"""Conditions of a DPUService about its Applications: they can be made, and Argo CD has seen each of them healthy."""

from __future__ import annotations

from collections.abc import Iterator

from projections.resources.blame import Blame
from projections.resources.conditions.condition import Condition, condition
from projections.resources.conditions.world import World
from projections.resources.kinds import APPLICATION, short_name
from projections.resources.operator_settings import settings_of
from projections.resources.state import object_id


def applications_reconciled(key: str, world: World) -> Condition:
    """The values of the charts can be derived, and no other service has an Application of the same name."""
    objects = world.derivation.in_clusters
    blames = [
        Blame(holder, f"{short_name(name)} belongs to {short_name(holder)}, which is older than {short_name(key)}")
        for name, holder in sorted(objects.claims.lost(key).items())
        if object_id(name).kind == APPLICATION
    ]
    if fault := objects.faults.get(key):
        blames.insert(0, Blame(key, f"{short_name(key)} has no Application, because its spec has a fault: {fault}"))
    if not settings_of(world.state, object_id(key).source).is_known:
        blames.append(Blame(key, "no DPFOperatorConfig exists, which says where Argo CD is"))
        return condition("ApplicationsReconciled", blames)
    return condition("ApplicationsReconciled", blames, "Error")


def applications_ready(key: str, world: World) -> Condition:
    """Each Application is synced and healthy. A message names the first resource that is not."""
    return condition("ApplicationsReady", _unready(key, world))


def _unready(key: str, world: World) -> Iterator[Blame]:
    claims = world.derivation.in_clusters.claims
    for name in sorted(claims.of_owner(key)):
        if object_id(name).kind != APPLICATION or claims.holders[name] != key:
            continue
        seen = world.observed.get(name)
        if seen is None:
            yield Blame(name, f"{short_name(name)} has not been deployed yet (Argo CD reports it)", is_unknown=True)
        elif not seen.is_ready:
            state = f"is {seen.phase}" if seen.phase not in ("", "Healthy") else "is not synced"
            yield Blame(name, f"{short_name(name)} {state}" + (f": {seen.message}" if seen.message else ""))
