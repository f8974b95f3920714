"""Runs the contract of event loops on asyncio's loop and on the virtual one, also with ready tasks in random order."""

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


class TestVirtualLoopInRandomOrder(LoopContract):
    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        async def in_random_order() -> None:
            current_loop().scheduler = random.Random(7)
            await scenario

        run_virtual(in_random_order())


def test_the_random_order_depends_only_on_the_seed() -> None:
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
