"""One trial of one or several faults on a plane under load: strike, hold, heal, wait until commands succeed, judge."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from tests.faults.clients import GAVE_UP, PATIENCE_S
from tests.faults.fault import ActiveFault, Fault
from tests.faults.judging import Verdict, judge
from tests.faults.sampling import sampling
from tests.faults.world import World
from tests.simulation.checkers import invalid
from tests.simulation.history import FaultInjected

CALM_S = 1.0
FLOW_S = 120.0
AFTERMATH_S = 3.0


class TrialResult(NamedTuple):
    """The result of a trial."""

    names: tuple[str, ...]
    evidence: dict[str, int]
    outcomes: Counter[str]
    """Of the clients' tries, meanwhile."""
    finished: int
    waits_s: list[float]
    """Each client's longest wait for an answer, of the commands that the blow met."""
    flows_after_s: float
    """From healing until every client had an answer to a command that it sent after that."""
    verdict: Verdict
    invalid: list[str]
    """Why it proves nothing."""

    @property
    def is_shown(self) -> bool:
        """Whether every fault has evidence. One of several may hide another: no response can be lost on a link that is
        down.
        """
        return all(count > 0 for count in self.evidence.values())

    @property
    def wrong(self) -> list[str]:
        """The faults found, whether or not every injected one has evidence."""
        given_up = self.outcomes[GAVE_UP]
        silent = [f"{given_up} commands, or repeats, had no answer in {PATIENCE_S:.0f} s"] if given_up else []
        return [*self.invalid, *self.verdict.faults, *silent]

    @property
    def problems(self) -> list[str]:
        """All reasons to fail, including missing evidence."""
        idle = [f"nothing shows that it happened: no {what}" for what, count in self.evidence.items() if count <= 0]
        return [*idle, *self.wrong]


async def attempt(world: World, faults: Sequence[Fault], rng: random.Random) -> TrialResult:
    """Try these faults at once."""
    await world.whole()  # roles that ended by themselves meanwhile are up before the next fault
    before = _outcomes(world)
    async with _commands(world), sampling(world):
        await asyncio.sleep(CALM_S)
        struck_s = time.monotonic()
        evidence = await _strike(world, faults, rng)
        healed_s = time.monotonic()
        await world.whole()
        flows_s = await _flowing(world, healed_s)
    for fault in faults:
        world.history.add(FaultInjected(fault.name, "", struck_s, healed_s))
    verdict = await judge(world)
    finished = [pair for client in world.clients for pair in client.finished if pair[1] >= struck_s]
    return TrialResult(
        names=tuple(fault.name for fault in faults),
        evidence=evidence,
        outcomes=_outcomes(world) - before,
        finished=len(finished),
        waits_s=[_longest_wait(client.finished, struck_s) for client in world.clients],
        flows_after_s=flows_s - healed_s,
        verdict=verdict,
        invalid=list(invalid(world.history)),
    )


async def _strike(world: World, faults: Sequence[Fault], rng: random.Random) -> dict[str, int]:
    """The evidence of each fault, once all have healed. Two faults may share a count; each needs its own."""
    blows = [ActiveFault(world, rng, Counter()) for _ in faults]
    async with AsyncExitStack() as stack:
        for fault, active_fault in zip(faults, blows, strict=True):
            await stack.enter_async_context(fault.strike(active_fault))
        # a role that one fault killed restarts while the other still holds, a case that single faults never reach
        await asyncio.sleep(sum(fault.seconds for fault in faults))
    return shown(faults, [active_fault.evidence for active_fault in blows])


def shown(faults: Sequence[Fault], evidence: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The counts of each fault by its name, if there are several; a fault that counted nothing counts as none."""
    found = {}
    for fault, counts in zip(faults, evidence, strict=True):
        for what, count in (counts or {"trace": 0}).items():
            found[what if len(faults) == 1 else f"{what} ({fault.name})"] = count
    return found


@asynccontextmanager
async def _commands(world: World) -> AsyncIterator[None]:
    """Run clients during the context; their last commands are repeated until answered."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for client in world.clients:
            tasks.create_task(client.run(stop))
        try:
            yield
        finally:
            stop.set()


async def _flowing(world: World, since_s: float) -> float:
    """Wait until every client has an answer to a command sent after this moment."""
    async with asyncio.timeout(FLOW_S):
        while True:
            first = [min((end for begun, end in c.finished if begun >= since_s), default=None) for c in world.clients]
            if all(first):
                return max(filter(None, first))
            await asyncio.sleep(0.05)


def _longest_wait(finished: Sequence[tuple[float, float]], struck_s: float) -> float:
    met = [end - begun for begun, end in finished if end >= struck_s and begun <= struck_s + AFTERMATH_S]
    return max(met, default=0.0)


def _outcomes(world: World) -> Counter[str]:
    total: Counter[str] = Counter()
    for client in world.clients:
        total.update(client.counts)
    return total
