"""The definition of a seeded bug: a patch of production code, described in one sentence, and a run that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from tests.seeded.plane import SteppedPlane
from tests.simulation.run import simulate

Plant = Callable[[], AbstractContextManager[None]]


class Sound(NamedTuple):
    """The report of the checkers about the sound plane, and whether it came to rest within the time that it gets with a
    bug.
    """

    faults: tuple[str, ...]
    in_time: bool


class Stepped(NamedTuple):
    """Shown by the stepwise plane (`tests.seeded.plane`)."""

    seed: int
    steps: int = 400
    agents: bool = False

    def faults(self) -> list[str]:
        try:
            return [str(fault) for fault in SteppedPlane(self.seed).run(self.steps, agents=self.agents)]
        except AssertionError as broken:
            return [f"I20: the plane stops: {broken}"]

    def sound(self) -> Sound:
        """The report of the checkers without the bug."""
        return Sound(tuple(self.faults()), in_time=True)


class Simulated(NamedTuple):
    """Shown by a simulated run, with a time limit to come to rest. `given` is patched both with and without the bug."""

    seed: int
    faulty_s: float = 10.0
    converges_within_s: float = 20.0
    given: Plant = nullcontext

    def faults(self) -> list[str]:
        with self.given():
            return simulate(self.seed, faulty_s=self.faulty_s, converges_within_s=self.converges_within_s).faults

    def sound(self) -> Sound:
        """The report of the checkers without the bug."""
        with self.given():
            run = simulate(self.seed, faulty_s=self.faulty_s)
        return Sound(tuple(run.faults), run.converged_s <= self.converges_within_s)


class Bug(NamedTuple):
    """A seeded bug. `caught_by` is the invariant whose checker must find a fault, for the seed of `shown` or one of the
    next seeds: after a change of the plane a seed is another run.
    """

    name: str
    says: str
    caught_by: str
    plant: Plant
    shown: Stepped | Simulated


@contextmanager
def patched(*patches: tuple[Any, str, Callable[[Any], Any]]) -> Iterator[None]:
    """Replace each attribute by a function of its present value, and restore it on exit."""
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    try:
        for (owner, name, make), (_, _, original) in zip(patches, originals, strict=True):
            setattr(owner, name, make(original))
        yield
    finally:
        for owner, name, original in reversed(originals):
            setattr(owner, name, original)


def instead(value: Any) -> Callable[[Any], Any]:
    """A replacement that ignores the present value."""
    return lambda original: value


def does(value: Any = None) -> Callable[[Any], Any]:
    """A function that returns this and does nothing."""
    return lambda original: lambda *args, **kwargs: value
