"""Conditions of the DPFOperatorConfig: its components can be made, and are ready. A plane without any DPU is ready:
a component that runs on no node lacks none."""

from __future__ import annotations

from projections.resources.blame import Blame
from projections.resources.conditions.condition import Condition, condition, with_ready
from projections.resources.conditions.deployments import ConditionsOf, unready_children
from projections.resources.conditions.world import World
from projections.resources.kinds import DPF_OPERATOR_CONFIG, DPU_SERVICE, short_name
from projections.resources.network_stages.annotations import stages_in
from projections.resources.operator_settings import OperatorConfigSpec
from projections.resources.services.system import SystemSpec, components_off
from projections.resources.state import object_id


def of_operator_config(key: str, world: World, conditions_of: ConditionsOf) -> tuple[Condition, ...]:
    """A DPFOperatorConfig. Of several in one source, the oldest counts, and the others say so."""
    spec = world.read(key, OperatorConfigSpec)
    blames = []
    if not isinstance(spec, OperatorConfigSpec):
        blames.append(Blame(key, f"{short_name(key)} {f'cannot be read: {spec}' if spec else 'does not exist'}"))
    rows = world.state.objects.rows
    configs = world.state.of_kind(object_id(key).source, DPF_OPERATOR_CONFIG)
    oldest = min(((rows[each].created_ms, each) for each in configs), default=(0, key))[1]
    if oldest != key:
        blames.append(Blame(oldest, f"{short_name(oldest)} is older than {short_name(key)}, and only one counts"))
    if fault := world.derivation.component_faults.get(key):
        blames.append(Blame(key, f"a component of {short_name(key)} has a fault, {fault}"))
    stages = stages_in(rows[key].annotations) if key in rows else None
    if isinstance(stages, str):
        blames.append(Blame(key, f"{short_name(key)} states no stages of networks: {stages}"))
    lost = [
        Blame(holder, f"{short_name(child)} belongs to {short_name(holder)}, which is older than {short_name(key)}")
        for child, holder in world.derivation.children.lost(key).items()
    ]
    return with_ready(
        [
            condition("PreUpgradeValidationReady", ()),
            condition("ImagePullSecretsReconciled", blames[:1] if oldest != key else ()),
            _reconciled(key, (*blames, *lost), world),
            condition("SystemComponentsReady", unready_children(key, DPU_SERVICE, world, conditions_of)),
        ]
    )


def _reconciled(key: str, blames: tuple[Blame, ...], world: World) -> Condition:
    """The condition that the components can be made. It says which are not installed, also if it holds."""
    found, spec = condition("SystemComponentsReconciled", blames, "Error"), world.read(key, SystemSpec)
    if not found.holds or not isinstance(spec, SystemSpec):
        return found
    off = components_off(spec)
    return found._replace(message="; ".join(f"{reason}: {', '.join(off[reason])}" for reason in sorted(off)))
