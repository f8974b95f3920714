"""One seed from beginning to end, and its result."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from xxhash import xxh3_128

from eventstore.log import FLEET, Partition
from projections.fleet.state import FleetState
from schemas import events as e
from tests.simulation.checkers import invalid
from tests.simulation.judge import judge, read_everything
from tests.simulation.plan import Plan, plan_of, reduced
from tests.simulation.script import Action, Director, Script
from tests.simulation.world import World
from tests.support.virtual_loop import current_loop, run_virtual

CONVERGES_WITHIN_S = 300.0
"""How long the plane may take to come to rest. The largest lead of a broker's clock is added, because retry delays run
in the time of the log.
"""

BOOTS_WITHIN_S = 1_500.0
"""How much longer it may take with a card that has no operating system when the faults end: an installation that lost
its power in the middle fails after `drivers.redfish.update_moves.BOOT_S`.
"""

FIRST_CHECK_S = 5.0
CHECK_S = 60.0
RESTS_WITHIN_CHECKS = 6
"""How many times CHECK_S the plane may take to come to rest without an API server."""
OF_SOURCE_CLUSTERS = frozenset({"I27", "I28", "I29", "I30"})
"""The invariants that depend on API servers of source clusters."""


CHECK_PAUSE_FACTOR = 1.6
"""The factor between the pauses of successive checks whether the plane is at rest."""


@dataclass
class Result:
    """The figures of a run, and its faults."""

    seed: int
    faults: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    """Why the run proves nothing, whatever its verdict."""
    counts: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    virtual_s: float = 0.0
    converged_s: float = 0.0
    cpu_s: float = 0.0
    actions: list[Action] = field(default_factory=list)
    """The actions of a failed run."""


def simulate(seed: int, *, faulty_s: float | None = None, converges_within_s: float = CONVERGES_WITHIN_S) -> Result:
    """Run the plan of this seed."""
    return simulate_plan(plan_of(seed, faulty_s=faulty_s), converges_within_s=converges_within_s)


def run_script(script: Script, *, converges_within_s: float = CONVERGES_WITHIN_S) -> Result:
    """Run a script."""
    plan = reduced(plan_of(script.seed, faulty_s=script.seconds), script.reductions)
    if script.ends_s is not None:
        plan = plan._replace(faulty_s=script.ends_s)
    return simulate_plan(plan, script, converges_within_s=converges_within_s)


def simulate_plan(
    plan: Plan, script: Script | None = None, *, converges_within_s: float = CONVERGES_WITHIN_S
) -> Result:
    """Run a plan, with the actions of a script if one is given."""
    began_s = time.process_time()
    with _without_garbage_collection():
        result = run_virtual(_run(plan, Director(plan.seed, script), converges_within_s))
    result.cpu_s = time.process_time() - began_s
    return result


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable garbage collection during the context. It would close generators at times that differ from run to run."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _run(plan: Plan, director: Director, converges_within_s: float) -> Result:
    loop = current_loop()
    if plan.shuffled:
        loop.scheduler = random.Random(f"{plan.seed}/order")
    world, result = World(plan, director), Result(plan.seed)
    await world.run_with_faults()
    await world.heal()
    if world.is_away:
        result.faults = await _judge_without_api_server(world)
        world.let_return()
    healed_at = loop.time()
    check_pause_s = FIRST_CHECK_S
    allowed_s = converges_within_s + BOOTS_WITHIN_S * world.redfish.has_card_without_system
    while True:
        await _thaw_all(world)
        await asyncio.sleep(check_pause_s)
        check_pause_s *= CHECK_PAUSE_FACTOR
        result.converged_s = loop.time() - healed_at
        is_late = result.converged_s > allowed_s + world.ahead_ms / 1000
        if not is_late and not await world.has_no_new_records():
            continue
        found = await judge(world)
        if not found or is_late or await judge(world, at_rest=False):
            result.faults += found
            break
    records = await read_everything(world)
    result.digest = xxh3_128(repr((sorted(records.items()), world.history.digest())).encode()).hexdigest()
    result.counts = world.counts(records)
    result.invalid = list(invalid(world.history))
    result.virtual_s = loop.time()
    await world.end()
    result.faults += list(world.faults())
    result.actions = director.done if result.faults else []
    return result


async def _judge_without_api_server(world: World) -> list[str]:
    """The faults of a plane that is at rest without the API server of its source cluster, except in what depends on
    that server.
    """
    for _ in range(RESTS_WITHIN_CHECKS):
        await _thaw_all(world)
        await asyncio.sleep(CHECK_S)
        found = [fault for fault in await judge(world) if fault.partition(":")[0] not in OF_SOURCE_CLUSTERS]
        if not found and await world.has_no_new_records():
            break
    return [f"without the API server: {fault}" for fault in found]


async def _thaw_all(world: World) -> None:
    """Thaw every frozen zone as an operator, also after a freeze that was appended late. Held changes may stay held."""
    for _ in range(5):
        await asyncio.sleep(3.0)
        process = random.Random(world.plan.seed).choice(world.apis)
        if process.instance is None or not process.instance.is_up:
            continue
        fleet: FleetState = process.instance.replica.state(Partition(FLEET, 0))
        for zone in sorted(fleet.freezes.rows):
            await world.operate(process, Partition(FLEET, 0), b"thaw", partial(e.WritesThawed, zone=zone))
        if not fleet.freezes.rows:
            return
