"""What a seeded bug is: a patch of production code, in one sentence, and where it must show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from tests.seeded.plane import Plane
from tests.simulation.run import simulate

Plant = Callable[[], AbstractContextManager[None]]


class Sound(NamedTuple):
    """What checkers say of the plane as it is; and whether it came to rest within the time that it gets with a bug."""

    faults: tuple[str, ...]
    in_time: bool


class Stepped(NamedTuple):
    """Shown by a plane of one step after the other (`tests.seeded.plane`)."""

    seed: int
    steps: int = 400
    agents: bool = False

    def faults(self) -> list[str]:
        try:
            return [str(fault) for fault in Plane(self.seed).run(self.steps, agents=self.agents)]
        except AssertionError as broken:
            return [f"I20: the plane stops: {broken}"]

    def sound(self) -> Sound:
        """What checkers say without the bug."""
        return Sound(tuple(self.faults()), in_time=True)


class Simulated(NamedTuple):
    """Shown by a simulated run, which gets so long to come to rest. `given` holds with and without the bug."""

    seed: int
    faulty_s: float = 10.0
    converges_within_s: float = 20.0
    given: Plant = nullcontext

    def faults(self) -> list[str]:
        with self.given():
            return simulate(self.seed, faulty_s=self.faulty_s, converges_within_s=self.converges_within_s).faults

    def sound(self) -> Sound:
        """What checkers say without the bug."""
        with self.given():
            run = simulate(self.seed, faulty_s=self.faulty_s)
        return Sound(tuple(run.faults), run.converged_s <= self.converges_within_s)


class Bug(NamedTuple):
    """One of them. `caught_by` is the invariant whose checker must say something, for the seed of `shown` or, as a seed
    is another run after every change of the plane, for one of the next."""

    name: str
    says: str
    caught_by: str
    plant: Plant
    shown: Stepped | Simulated


@contextmanager
def patched(*patches: tuple[Any, str, Callable[[Any], Any]]) -> Iterator[None]:
    """Each attribute replaced by what is made of the one that is there, and put back."""
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    try:
        for (owner, name, make), (_, _, original) in zip(patches, originals, strict=True):
            setattr(owner, name, make(original))
        yield
    finally:
        for owner, name, original in reversed(originals):
            setattr(owner, name, original)


def instead(value: Any) -> Callable[[Any], Any]:
    """To be there, whatever was."""
    return lambda original: value


def does(value: Any = None) -> Callable[[Any], Any]:
    """A function that gives this and does nothing."""
    return lambda original: lambda *args, **kwargs: value
