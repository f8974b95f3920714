"""The condition `DPUsUpdated` of a DPUSet: all of its DPUs have the image that is wanted for them."""

from __future__ import annotations

from collections.abc import Iterator

from projections.resources.blame import Blame
from projections.resources.conditions.condition import Condition, condition
from projections.resources.conditions.world import World
from projections.resources.kinds import short_name
from projections.resources.rollouts.pins import fields_of, template_text
from projections.resources.rollouts.progress import Progress, progress
from projections.resources.rollouts.rows import ON_DELETE
from projections.resources.rollouts.status import Status
from projections.resources.rollouts.strategy import strategy_of

UPDATED = "DPUsUpdated"


def of_rollout(key: str, world: World) -> Condition | None:
    """The condition of a DPUSet; None if nothing is known of its rollout."""
    if (fault := _fault(key, world)) is not None:
        return condition(UPDATED, [Blame(key, f"{short_name(key)} is not rolled out: {fault}")], "Error")
    found = progress(world.state, key)
    if found is None:
        return None
    if found.state == "complete":
        pinned = _pinned(key, world, found)
        return Condition(UPDATED, "Success", pinned)
    return condition(UPDATED, _blames(found), "Error" if found.state == "held" else "Pending")


def counts_to_ready(key: str, world: World) -> bool:
    """Whether a DPUSet is ready only once its DPUs are updated. With OnDelete, they may keep their image for ever."""
    row = world.state.rollouts.rows.get(key)
    return row is None or row.strategy != ON_DELETE


def _blames(found: Progress) -> Iterator[Blame]:
    yield Blame(found.key, found.message)
    if found.state == "held":
        for dpu in found.names(Status.FAILED):
            yield Blame(dpu, f"{short_name(dpu)} has failed")


def _fault(key: str, world: World) -> str | None:
    found = world.derivation.sets.get(key)
    if found is None:
        return None
    strategy = strategy_of(found.spec, found.annotations)
    return strategy if isinstance(strategy, str) else None


def _pinned(key: str, world: World, found: Progress) -> str:
    """What a rollback means for the manifest; empty without one."""
    row, effective = found.row, world.derivation.sets.get(key)
    if not row.pin or effective is None:
        return ""
    fields = ", ".join(f"{name} {value}" for name, value in fields_of(row.pin).items())
    text = f"rolled back to {fields} until the template changes; change the manifest to keep it"
    is_changed = template_text(world.state, effective.at, effective.spec) != row.pin
    return f"{text}; the objects that it names have changed since" if is_changed else text
