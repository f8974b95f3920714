"""The definition of a fault: it hits a running plane, lasts for a while, heals, and leaves evidence of its effect."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, TypeAlias

from tests.faults.world import Engine, World

BOTH: tuple[Engine, ...] = ("embedded", "kafka")
KAFKA: tuple[Engine, ...] = ("kafka",)


EVIDENT_S = 30.0
"""How much longer a fault holds at most until it has had an effect. A fault that another one hides has none."""


class ActiveFault(NamedTuple):
    """One fault in effect: its victim, its random generator, and its evidence.

    Every count in `evidence` must exceed zero after the fault has healed; otherwise the fault did not happen.
    """

    world: World
    rng: random.Random
    evidence: Counter[str]


async def until_evident(is_evident: Callable[[], Awaitable[bool]]) -> None:
    """Hold a fault until it has had an effect, which takes longer on a busy machine."""
    try:
        async with asyncio.timeout(EVIDENT_S):
            while not await is_evident():
                await asyncio.sleep(0.5)
    except TimeoutError:
        return


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
