"""The order of new installations in a plan: that of the waves of their DPUSet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from projections.resources.derivation import Derivation
from projections.resources.plan import Action, PlanStep
from projections.resources.rollouts.planned import Planning, SetPlan
from projections.resources.rollouts.strategy import Strategy, strategy_of
from projections.resources.state import ResourcesState, object_id

WAVE = "wave"
"""The field of a step that names the wave of its DPU."""


class PlanWaves:
    """The steps of a plan with new installations in the order of waves. Call `advance` until it returns True."""

    def __init__(self, state: ResourcesState, derivation: Derivation, steps: Sequence[PlanStep]) -> None:
        self.steps = [*steps]
        self._state, self._derivation = state, derivation
        self._work = self._ordered()

    def advance(self) -> bool:
        """Order the next slice. Returns whether all of them are in order."""
        for _ in self._work:
            return False
        return True

    def _ordered(self) -> Iterator[None]:
        owners = {step.owner: None for step in self.steps if step.action == Action.REFLASH}
        for owner in filter(self._has_order, owners):
            planning = Planning(self._state, self._derivation, owner)
            while not planning.advance():
                yield
            if planning.plan is not None:
                self._order(owner, planning.plan)

    def _has_order(self, owner: str) -> bool:
        """Whether a DPUSet has another order than that of names."""
        found = self._derivation.sets.get(owner)
        strategy = strategy_of(found.spec, found.annotations) if found is not None else Strategy()
        return isinstance(strategy, Strategy) and (len(strategy.waves) > 1 or bool(strategy.failure_domain))

    def _order(self, owner: str, plan: SetPlan) -> None:
        """Order the steps of a DPUSet, which follow each other."""
        waves = plan.strategy.waves
        places = {each.name: (place, each.wave) for place, each in enumerate(plan.dpus)}
        numbers = [n for n, step in enumerate(self.steps) if (step.action, step.owner) == (Action.REFLASH, owner)]
        found = [self.steps[number] for number in numbers]
        found.sort(key=lambda step: places.get(object_id(step.key).name, (len(places), 0)))
        for number, step in zip(numbers, found, strict=True):
            _, wave = places.get(object_id(step.key).name, (0, 0))
            text = f"{wave + 1} of {len(waves)} ({waves[wave]})"
            changes = {WAVE: (None, text), **step.changes} if len(waves) > 1 else step.changes
            self.steps[number] = step._replace(changes=changes)
