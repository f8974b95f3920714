"""The definition of a fault: it hits a running plane, lasts for a while, heals, and leaves evidence of its effect."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, TypeAlias

from tests.faults.world import Engine, World

BOTH: tuple[Engine, ...] = ("embedded", "kafka")
KAFKA: tuple[Engine, ...] = ("kafka",)


class ActiveFault(NamedTuple):
    """One fault in effect: its victim, its random generator, and its evidence.

    Every count in `evidence` must exceed zero after the fault has healed; otherwise the fault did not happen.
    """

    world: World
    rng: random.Random
    evidence: Counter[str]


Strike: TypeAlias = Callable[[ActiveFault], AbstractAsyncContextManager[None]]
"""A context manager that starts the fault on entry and has healed it on exit."""


class Fault(NamedTuple):
    """A kind of fault. `numbers` are its numbers in the catalog."""

    name: str
    numbers: tuple[int, ...]
    engines: tuple[Engine, ...]
    strike: Strike
    seconds: float
    """Duration of the fault, without the time to start and to heal it."""
