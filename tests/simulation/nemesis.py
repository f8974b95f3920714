"""Fault injection in a run: crashes at any await, network partitions, clock jumps, full disks.

Each fault is drawn from a random generator of its own and is counted when it takes effect. A run without an effective
fault is reported as such, instead of passing for a test.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import TYPE_CHECKING

from eventstore.log import Partition
from tests.simulation.process import Process
from tests.simulation.script import NEMESIS, Deed
from tests.support.virtual_loop import current_loop

if TYPE_CHECKING:
    from tests.simulation.world import World

STEPS_MAX = 60
MINUTE_MS = 60_000

BLOWS = {
    "crash": 8,
    "crash_all": 1,
    "crash_agent": 2,
    "isolate": 4,
    "lose_answers": 3,
    "fill_disk": 2,
    "skew_process": 3,
    "skew_broker": 1,
    "break_links": 3,
    "darken_links": 1,
}
"""What befalls the plane, by the methods of `Blow`, and how often one is drawn among the others."""


class Nemesis:
    """Injects faults until it is cancelled."""

    def __init__(self, world: World, every_s: float) -> None:
        self._world = world
        self._every_s = every_s

    async def run(self) -> None:
        """Inject one fault after the other; faults may overlap."""
        async with asyncio.TaskGroup() as tasks:
            async for deed in self._world.director.deeds(NEMESIS, self._draw):
                tasks.create_task(Strike(self._world, deed).strike())

    def _draw(self, rng: random.Random) -> tuple[float, str]:
        return rng.expovariate(1 / self._every_s), rng.choices(list(BLOWS), list(BLOWS.values()))[0]


class Strike:
    """One kind of fault."""

    def __init__(self, world: World, deed: Deed) -> None:
        self._world = world
        self._deed = deed
        self._rng = deed.rng(world.plan.seed)

    async def strike(self) -> None:
        await getattr(self, f"_{self._deed.what}")()

    # --- processes

    async def _crash(self) -> None:
        await self._crash_one(self._process())

    async def _crash_all(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for process in self._world.processes:
                tasks.create_task(self._crash_one(process))

    async def _crash_one(self, process: Process) -> None:
        rng = self._rng
        steps, in_the_dark, down_s = rng.randrange(STEPS_MAX), rng.random() < 0.3, rng.expovariate(1 / 4.0)
        await _loop_steps(steps)
        if process.life is None:
            return
        with self._striking("crash", process.life.name, steps, in_the_dark):
            process.life_copies.append(process.disk.copy())
            await process.crash(in_the_dark=in_the_dark)
            await asyncio.sleep(down_s)
        if process.life is None:
            self._restore_disk(process)
            process.start()

    def _restore_disk(self, process: Process) -> None:
        """Choose the disk after a restart: mostly the latest state, at times an older copy of it, or an empty disk."""
        chance = self._rng.random()
        if chance < 0.2:
            self._note("older state", process.name)
            process.disk.partitions = deepcopy(self._rng.choice(process.life_copies))
        elif chance < 0.3:
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
        life = self._process().life
        if life is not None:
            with self._striking("isolation", life.name):
                life.wire.is_isolated = True
                await asyncio.sleep(self._rng.choice((0.3, 2.0, 8.0)))
                life.wire.is_isolated = False

    async def _lose_answers(self) -> None:
        life = self._process().life
        if life is not None:
            with self._striking("lost answers", life.name):
                life.wire.answers_lost = True
                await asyncio.sleep(self._rng.choice((0.3, 2.0)))
                life.wire.answers_lost = False

    async def _break_links(self) -> None:
        life = self._process().life
        for link in life.links if life else ():
            if not link.is_closed:
                with self._striking("broken link", link.peer):
                    link.abort()

    async def _darken_links(self) -> None:
        life = self._process().life
        for link in life.links if life else ():
            if not link.is_closed:
                with self._striking("dark link", link.peer):
                    link.is_dark = True

    # --- clocks

    async def _skew_process(self) -> None:
        world, rng = self._world, self._rng
        name = rng.choice(sorted(world.skews_ms))
        world.skews_ms[name] = rng.choice((1, 50, 3_000, 3 * MINUTE_MS, 15 * MINUTE_MS)) * rng.choice((-1, 1))
        with self._striking("clock jump", name, world.skews_ms[name]):
            await asyncio.sleep(rng.uniform(1.0, 10.0))
            world.skews_ms[name] = 0

    async def _skew_broker(self) -> None:
        world, rng = self._world, self._rng
        partition: Partition = rng.choice(world.broker_partitions)
        world.broker_skews_ms[partition] = rng.choice((-5_000, 5_000, 3 * MINUTE_MS, 12 * MINUTE_MS))
        world.ahead_ms = max(world.ahead_ms, world.broker_skews_ms[partition])
        with self._striking("broker clock jump", str(partition), world.broker_skews_ms[partition]):
            await asyncio.sleep(rng.uniform(1.0, 10.0))
            world.broker_skews_ms[partition] = 0

    def _process(self) -> Process:
        return self._rng.choice(self._world.processes)

    def _striking(self, kind: str, target: str, *details: object) -> AbstractContextManager[None]:
        self._say(kind, target, *details)
        return self._world.history.striking(current_loop().time, kind, target, *details)

    def _note(self, what: str, *details: object) -> None:
        self._say(what, *details)
        self._world.history.note(current_loop().time(), what, *details)

    def _say(self, *details: object) -> None:
        self._deed.says = ", ".join([*filter(None, [self._deed.says]), " ".join(map(str, details))])


async def _loop_steps(count: int) -> None:
    """Run so many iterations of the loop within one instant: a crash then falls between any two steps of its victim."""
    for _ in range(count):
        await asyncio.sleep(0)
