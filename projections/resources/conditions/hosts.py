"""Conditions of maintenances of hosts, and what a DPU waits for on its host: a person, or another DPU."""

from __future__ import annotations

from collections.abc import Iterator

from projections.resources.blame import Blame
from projections.resources.conditions.condition import Condition, condition, with_ready
from projections.resources.conditions.world import World
from projections.resources.host_effects import effect_of, maintenance_id, maintenance_of
from projections.resources.kinds import DPU, DPU_NODE, short_name
from projections.resources.specs import JSON
from projections.resources.state import ObjectId, object_id
from projections.zones.dpus.phases import NODE_EFFECT, REBOOTING
from schemas.resources.dpf.names import EXTERNAL_REBOOT_REQUIRED, WAIT_FOR_NODE_EFFECT


def of_maintenance(key: str, world: World) -> tuple[Condition, ...]:
    """A DPUNodeMaintenance: its effect is applied once a DPU that needs it has completed its step."""
    row = world.stated(key)
    if row is None:
        return ()
    at = object_id(key)
    found = maintenance_of(at, row)
    if found.is_held:
        return with_ready([condition("NodeEffectApplied", [_held(key)])])
    dpus = [ObjectId(at.source, DPU, at.namespace, name).key for name in found.requestors]
    phases = {dpu: seen.phase for dpu in dpus if (seen := world.observed.get(dpu)) is not None}
    waiting = [dpu for dpu, phase in phases.items() if phase == NODE_EFFECT]
    if not phases or len(waiting) == len(phases):
        text = f"{short_name(key)} is not applied yet"
        blames = [world.unready(dpu, "waits") or Blame(key, text) for dpu in waiting[:1]] or [Blame(key, text)]
        return with_ready([condition("NodeEffectApplied", blames)])
    return with_ready([condition("NodeEffectApplied", ())])


def on_host(key: str, spec: JSON, world: World) -> Iterator[Blame]:
    """What a DPU waits for that a person must do on its host."""
    seen, at = world.observed.get(key), object_id(key)
    host = spec.get("dpuNodeName") or spec.get("nodeName")
    if seen is None or not isinstance(host, str):
        return
    if seen.phase == NODE_EFFECT:
        effect = effect_of(spec.get("nodeEffect"))
        maintenance = maintenance_id(at.source, at.namespace, host, effect.kind)
        row = world.stated(maintenance.key)
        if row is not None and maintenance_of(maintenance, row).is_held:
            yield _held(maintenance.key)
    if seen.phase == REBOOTING:
        node = ObjectId(at.source, DPU_NODE, at.namespace, host).key
        row = world.stated(node)
        if row is not None and EXTERNAL_REBOOT_REQUIRED in row.annotations:
            text = f"{short_name(node)} must be rebooted, and then loses annotation {EXTERNAL_REBOOT_REQUIRED}"
            yield Blame(node, text)


def _held(key: str) -> Blame:
    return Blame(key, f"{short_name(key)} is held until somebody removes its annotation {WAIT_FOR_NODE_EFFECT}")
