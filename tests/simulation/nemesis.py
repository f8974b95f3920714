"""Fault injection in a run: crashes at any await, network partitions, clock jumps, full disks.

Each fault has its own random generator and is counted when it takes effect. A run in which no fault took effect is
invalid.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import TYPE_CHECKING

from eventstore.log import Partition
from tests.simulation.process import Process
from tests.simulation.script import NEMESIS, Action
from tests.support.virtual_loop import current_loop

if TYPE_CHECKING:
    from tests.simulation.world import World

STEPS_MAX = 60
MINUTE_MS = 60_000

FAULT_WEIGHTS = {
    "crash": 8,
    "crash_all": 1,
    "crash_agent": 2,
    "isolate": 4,
    "lose_answers": 3,
    "fill_disk": 2,
    "skew_process": 3,
    "skew_broker": 1,
    "break_links": 3,
    "silence_links": 1,
}
"""The relative frequency of each kind of fault. A kind names the method of `Injection` that injects the fault."""


class Nemesis:
    """Injects faults until it is cancelled."""

    def __init__(self, world: World, every_s: float) -> None:
        self._world = world
        self._every_s = every_s

    async def run(self) -> None:
        """Inject one fault after the other. Faults may overlap."""
        async with asyncio.TaskGroup() as tasks:
            async for action in self._world.director.actions(NEMESIS, self._draw):
                tasks.create_task(Injection(self._world, action).inject())

    def _draw(self, rng: random.Random) -> tuple[float, str]:
        return rng.expovariate(1 / self._every_s), rng.choices(list(FAULT_WEIGHTS), list(FAULT_WEIGHTS.values()))[0]


class InjectionBase:
    """The injection of one fault, by the method that the kind of the fault names."""

    _is_outside = False
    """Whether the fault affects a source cluster only."""

    def __init__(self, world: World, action: Action) -> None:
        self._world = world
        self._deed = action
        self._rng = action.rng(world.plan.seed)

    async def inject(self) -> None:
        await getattr(self, f"_{self._deed.what}")()

    def _injecting(self, kind: str, *details: object) -> AbstractContextManager[None]:
        """Record the fault during the context. The first detail is its target."""
        self._describe(kind, *details)
        target, *others = [*details, ""][: max(len(details), 1)]
        clock = current_loop().time
        return self._world.history.injecting(clock, kind, str(target), *others, is_outside=self._is_outside)

    def _note(self, what: str, *details: object) -> None:
        self._describe(what, *details)
        self._world.history.note(current_loop().time(), what, *details)

    def _describe(self, *details: object) -> None:
        self._deed.description = ", ".join([*filter(None, [self._deed.description]), " ".join(map(str, details))])


class Injection(InjectionBase):
    """The injection of one fault into a process, its network, its disk or a clock."""

    # --- processes

    async def _crash(self) -> None:
        await self._crash_one(self._process())

    async def _crash_all(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for process in self._world.processes:
                tasks.create_task(self._crash_one(process))

    async def _crash_one(self, process: Process) -> None:
        rng = self._rng
        steps, loses_power, down_s = rng.randrange(STEPS_MAX), rng.random() < 0.3, rng.expovariate(1 / 4.0)
        await _loop_steps(steps)
        if process.instance is None:
            return
        with self._injecting("crash", process.instance.name, steps, loses_power):
            process.disk_copies.append(process.disk.copy())
            await process.crash(loses_power=loses_power)
            await asyncio.sleep(down_s)
        if process.instance is None:
            self._choose_disk(process)
            process.start()

    def _choose_disk(self, process: Process) -> None:
        """Choose the disk for the restart: mostly the latest state, sometimes an older copy of it or an empty disk."""
        draw = self._rng.random()
        if draw < 0.2:
            self._note("older state", process.name)
            process.disk.partitions = deepcopy(self._rng.choice(process.disk_copies))
        elif draw < 0.3:
            self._note("lost state", process.name)
            process.disk.partitions = {}

    async def _crash_agent(self) -> None:
        host = self._rng.choice(self._world.agents)
        await _loop_steps(self._rng.randrange(STEPS_MAX))
        self._note("agent crash", host.name)
        await host.crash()
        host.start()

    async def _fill_disk(self) -> None:
        process = self._process()
        failed, process.disk.failures = process.disk.failed, 0.7
        await asyncio.sleep(self._rng.uniform(1.0, 6.0))
        process.disk.failures = 0.0
        if process.disk.failed > failed:
            self._note("full disk", process.name)

    # --- network

    async def _isolate(self) -> None:
        instance = self._process().instance
        if instance is not None:
            with self._injecting("isolation", instance.name):
                instance.wire.is_isolated = True
                await asyncio.sleep(self._rng.choice((0.3, 2.0, 8.0)))
                instance.wire.is_isolated = False

    async def _lose_answers(self) -> None:
        instance = self._process().instance
        if instance is not None:
            with self._injecting("lost answers", instance.name):
                instance.wire.answers_lost = True
                await asyncio.sleep(self._rng.choice((0.3, 2.0)))
                instance.wire.answers_lost = False

    async def _break_links(self) -> None:
        instance = self._process().instance
        for link in instance.links if instance else ():
            if not link.is_closed:
                with self._injecting("broken link", link.peer):
                    link.abort()

    async def _silence_links(self) -> None:
        instance = self._process().instance
        for link in instance.links if instance else ():
            if not link.is_closed:
                with self._injecting("silent link", link.peer):
                    link.is_silent = True

    # --- clocks

    async def _skew_process(self) -> None:
        world, rng = self._world, self._rng
        name = rng.choice(sorted(world.skews_ms))
        world.skews_ms[name] = rng.choice((1, 50, 3_000, 3 * MINUTE_MS, 15 * MINUTE_MS)) * rng.choice((-1, 1))
        with self._injecting("clock jump", name, world.skews_ms[name]):
            await asyncio.sleep(rng.uniform(1.0, 10.0))
            world.skews_ms[name] = 0

    async def _skew_broker(self) -> None:
        world, rng = self._world, self._rng
        partition: Partition = rng.choice(world.broker_partitions)
        world.broker_skews_ms[partition] = rng.choice((-5_000, 5_000, 3 * MINUTE_MS, 12 * MINUTE_MS))
        world.ahead_ms = max(world.ahead_ms, world.broker_skews_ms[partition])
        with self._injecting("broker clock jump", str(partition), world.broker_skews_ms[partition]):
            await asyncio.sleep(rng.uniform(1.0, 10.0))
            world.broker_skews_ms[partition] = 0

    def _process(self) -> Process:
        return self._rng.choice(self._world.processes)


async def _loop_steps(count: int) -> None:
    """Let the loop run this many iterations without a pause, so that a crash may fall between any two steps of its
    victim.
    """
    for _ in range(count):
        await asyncio.sleep(0)
