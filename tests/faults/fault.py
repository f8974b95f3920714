"""What a fault is: it strikes a world, holds for a while, heals, and shows what it has really done."""

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
    """One fault under way: whom it hits, how it is drawn, and what shows that it happened.

    Every count in `evidence` must be over zero once it has healed, or nothing has been tried.
    """

    world: World
    rng: random.Random
    evidence: Counter[str]


Strike: TypeAlias = Callable[[ActiveFault], AbstractAsyncContextManager[None]]
"""Entered, it strikes; left, it has healed."""


class Fault(NamedTuple):
    """A kind of fault. `numbers` are those of the catalog that it makes happen."""

    name: str
    numbers: tuple[int, ...]
    engines: tuple[Engine, ...]
    strike: Strike
    seconds: float
    """How long it holds, over what it takes to strike and to heal."""
