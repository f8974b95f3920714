"""The definition of a seeded bug: a patch of production code, a description in one sentence, and a scenario that shows
the bug.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from projections.kubernetes.clique_objects import Mode
from tests.seeded.plane import SteppedPlane
from tests.simulation.plan import Plan, plan_of, with_cluster, without_cluster
from tests.simulation.run import simulate_plan

Plant = Callable[[], AbstractContextManager[None]]


def short_plan(seed: int, faulty_s: float) -> Plan:
    """The plan of the seed, with a short phase of faults and without a source cluster."""
    return without_cluster(plan_of(seed, faulty_s=faulty_s))


class CleanReport(NamedTuple):
    """The faults found without the bug, and whether the plane came to rest within the time limit of the run with the
    bug.
    """

    faults: tuple[str, ...]
    rested_in_time: bool


class SteppedScenario(NamedTuple):
    """A scenario of the stepwise plane (`tests.seeded.plane`)."""

    seed: int
    steps: int = 400
    agents: bool = False

    def faults(self) -> list[str]:
        try:
            return [str(fault) for fault in SteppedPlane(self.seed).run(self.steps, agents=self.agents)]
        except AssertionError as broken:
            return [f"I20: the plane stops: {broken}"]

    def clean_report(self) -> CleanReport:
        """The report of the checkers without the bug."""
        return CleanReport(tuple(self.faults()), rested_in_time=True)


class SimulatedScenario(NamedTuple):
    """A scenario of the simulator, with a time limit to come to rest. `setup` is active with and without the bug."""

    seed: int
    faulty_s: float = 10.0
    converges_within_s: float = 20.0
    setup: Plant = nullcontext
    has_cluster: bool = False
    """Whether the plane has edges of a source cluster."""
    cliques: Mode | None = None
    """How the edges share cliques with upstream's daemons; None if the source cluster has no daemons."""
    plan: Callable[[int, float], Plan] = short_plan
    """The plan of a seed and a duration of faults. It should have in every seed what the bug needs to show itself."""

    def faults(self) -> list[str]:
        with self.setup():
            return simulate_plan(self._plan(), converges_within_s=self.converges_within_s).faults

    def _plan(self) -> Plan:
        plan = self.plan(self.seed, self.faulty_s)
        if not self.has_cluster:
            return plan
        plan = with_cluster(plan, random.Random(self.seed))
        assert plan.cluster is not None
        return plan._replace(cluster=plan.cluster._replace(cliques=self.cliques, switches_mode=False))

    def clean_report(self) -> CleanReport:
        """The report of the checkers without the bug."""
        with self.setup():
            run = simulate_plan(self._plan())
        return CleanReport(tuple(run.faults), run.converged_s <= self.converges_within_s)


class Bug(NamedTuple):
    """A seeded bug. `caught_by` is the invariant whose checker must find a fault, with the seed of `scenario` or one of
    the next seeds. Other seeds are tried because a change of the plane changes the run of a seed.
    """

    name: str
    description: str
    caught_by: str
    plant: Plant
    scenario: SteppedScenario | SimulatedScenario


@contextmanager
def patched(*patches: tuple[Any, str, Callable[[Any], Any]]) -> Iterator[None]:
    """During the context, replace each attribute by a function of its original value."""
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    try:
        for (owner, name, make), (_, _, original) in zip(patches, originals, strict=True):
            setattr(owner, name, make(original))
        yield
    finally:
        for owner, name, original in reversed(originals):
            setattr(owner, name, original)


def replaced_by(value: Any) -> Callable[[Any], Any]:
    """A replacement by this value."""
    return lambda original: value


def returns(value: Any = None) -> Callable[[Any], Any]:
    """A replacement by a function that only returns this value."""
    return lambda original: lambda *args, **kwargs: value
