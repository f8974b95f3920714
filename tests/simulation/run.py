"""One seed from beginning to end, and what came of it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from xxhash import xxh3_128

from eventstore.log import FLEET, Partition
from projections.fleet_state import FleetState
from schemas import events as e
from tests.simulation.judge import judge, read_everything
from tests.simulation.loop import current_loop, run_simulated
from tests.simulation.plan import Plan, plan_of
from tests.simulation.world import World

CONVERGES_WITHIN_S = 300.0
"""Added to how far a broker's clock ever was ahead: a retry after a while is one after that while in the log's time."""

LOOK_FIRST_S = 10.0


@dataclass
class Result:
    """What a run was, and what was wrong with it."""

    seed: int
    faults: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    virtual_s: float = 0.0
    converged_s: float = 0.0


def simulate(seed: int, *, faulty_s: float | None = None, converges_within_s: float = CONVERGES_WITHIN_S) -> Result:
    """Run this seed."""
    return run_simulated(_run(plan_of(seed, faulty_s=faulty_s), converges_within_s))


async def _run(plan: Plan, converges_within_s: float) -> Result:
    world, result, now = World(plan), Result(plan.seed), current_loop().time
    await world.go_wrong()
    await world.heal()
    healed_at = now()
    await _release(world)
    look_s = LOOK_FIRST_S
    while True:
        await asyncio.sleep(look_s)
        look_s *= 1.6
        result.faults = await judge(world)
        result.converged_s = now() - healed_at
        if not result.faults or result.converged_s > converges_within_s + world.ahead_ms / 1000:
            break
    records = await read_everything(world)
    result.digest = xxh3_128(repr((sorted(records.items()), world.history.digest())).encode()).hexdigest()
    result.counts = world.counts(records)
    result.virtual_s = now()
    await world.end()
    result.faults += list(world.faults())
    return result


async def _release(world: World) -> None:
    """An operator ends every freeze; what is held may stay so."""
    for _ in range(5):
        await asyncio.sleep(3.0)
        process = random.Random(world.plan.seed).choice(world.apis)
        if process.life is None or not process.life.is_up:
            continue
        fleet: FleetState = process.life.replica.state(Partition(FLEET, 0))
        for zone in sorted(fleet.freezes.rows):
            await world.operate(process, Partition(FLEET, 0), b"thaw", partial(e.Thawed, zone=zone))
        if not fleet.freezes.rows:
            return
