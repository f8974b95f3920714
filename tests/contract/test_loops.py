"""The event loops of production and tests under one contract. The virtual one may run ready tasks in any order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from tests.contract.loop import LoopContract
from tests.support.virtual_loop import current_loop, run_virtual


class TestAsyncio(LoopContract):
    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        asyncio.run(scenario)


class TestVirtualLoop(LoopContract):
    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        run_virtual(scenario)


class TestVirtualLoopInDrawnOrder(LoopContract):
    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        async def in_drawn_order() -> None:
            current_loop().scheduler = random.Random(7)
            await scenario

        run_virtual(in_drawn_order())


def test_the_drawn_order_is_that_of_its_seed() -> None:
    def order(seed: int) -> list[int]:
        notes: list[int] = []

        async def note(number: int) -> None:
            notes.append(number)

        async def scenario() -> None:
            current_loop().scheduler = random.Random(seed)
            async with asyncio.TaskGroup() as tasks:
                for number in range(10):
                    tasks.create_task(note(number))

        run_virtual(scenario())
        return notes

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == list(range(10))
