"""One trial of one or several faults on a plane under load: inject, hold, heal, wait until commands succeed, judge."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from tests.faults.clients import COMMAND_S, GAVE_UP
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
    """The outcomes of the clients' attempts during the trial."""
    answered: int
    waits_s: list[float]
    """For each client, the longest wait for an answer. It counts commands that were open when the fault started, or
    sent up to AFTERMATH_S later.
    """
    recovery_s: float
    """The time from healing until every client had an answer to a command that it sent after healing."""
    verdict: Verdict
    invalid: list[str]
    """Why the trial proves nothing."""

    @property
    def has_evidence(self) -> bool:
        """Whether every fault has evidence. A fault may hide another: a link that is down cannot lose a response."""
        return all(count > 0 for count in self.evidence.values())

    @property
    def plane_problems(self) -> list[str]:
        """The problems of the plane. Missing evidence of an injected fault is none of them."""
        given_up_count = self.outcomes[GAVE_UP]
        unanswered = (
            [f"{given_up_count} commands, or repeats, had no answer within {COMMAND_S:.0f} s"] if given_up_count else []
        )
        return [*self.invalid, *self.verdict.faults, *unanswered]

    @property
    def problems(self) -> list[str]:
        """All reasons to fail, including missing evidence."""
        without_evidence = [
            f"no evidence of the fault: no {what}" for what, count in self.evidence.items() if count <= 0
        ]
        return [*without_evidence, *self.plane_problems]


async def run_trial(world: World, faults: Sequence[Fault], rng: random.Random) -> TrialResult:
    """Inject these faults at the same time, and judge the plane."""
    await world.all_ready()  # wait for roles that ended by themselves after the last trial
    before = _outcomes(world)
    async with _commands(world), sampling(world):
        await asyncio.sleep(CALM_S)
        injected_s = time.monotonic()
        evidence = await _inject(world, faults, rng)
        healed_s = time.monotonic()
        await world.all_ready()
        flows_s = await _commands_flow(world, healed_s)
    for fault in faults:
        world.history.add(FaultInjected(fault.name, "", injected_s, healed_s))
    verdict = await judge(world)
    answered = [pair for client in world.clients for pair in client.answered_s if pair[1] >= injected_s]
    return TrialResult(
        names=tuple(fault.name for fault in faults),
        evidence=evidence,
        outcomes=_outcomes(world) - before,
        answered=len(answered),
        waits_s=[_longest_wait(client.answered_s, injected_s) for client in world.clients],
        recovery_s=flows_s - healed_s,
        verdict=verdict,
        invalid=list(invalid(world.history)),
    )


async def _inject(world: World, faults: Sequence[Fault], rng: random.Random) -> dict[str, int]:
    """Inject the faults and heal them; returns the evidence of each. Every fault counts its own evidence, even if two
    faults count the same events.
    """
    active_faults = [ActiveFault(world, rng, Counter()) for _ in faults]
    async with AsyncExitStack() as stack:
        for fault, active_fault in zip(faults, active_faults, strict=True):
            await stack.enter_async_context(fault.strike(active_fault))
        # the faults overlap, so a role that one fault killed restarts while the other fault still holds
        await asyncio.sleep(sum(fault.seconds for fault in faults))
    return merged_evidence(faults, [active_fault.evidence for active_fault in active_faults])


def merged_evidence(faults: Sequence[Fault], evidence: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The counts of all faults. With several faults, each key ends with the name of its fault. A fault that counted
    nothing has the count "trace": 0.
    """
    found = {}
    for fault, counts in zip(faults, evidence, strict=True):
        for what, count in (counts or {"trace": 0}).items():
            found[what if len(faults) == 1 else f"{what} ({fault.name})"] = count
    return found


@asynccontextmanager
async def _commands(world: World) -> AsyncIterator[None]:
    """Run the clients during the context. They repeat their last commands until these are answered."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for client in world.clients:
            tasks.create_task(client.run(stop))
        try:
            yield
        finally:
            stop.set()


async def _commands_flow(world: World, since_s: float) -> float:
    """The time at which the last client gets its first answer to a command that it sent after `since_s`."""
    async with asyncio.timeout(FLOW_S):
        while True:
            first = [min((end for begun, end in c.answered_s if begun >= since_s), default=None) for c in world.clients]
            if all(first):
                return max(filter(None, first))
            await asyncio.sleep(0.05)


def _longest_wait(answered: Sequence[tuple[float, float]], injected_s: float) -> float:
    waits_s = [end - begun for begun, end in answered if end >= injected_s and begun <= injected_s + AFTERMATH_S]
    return max(waits_s, default=0.0)


def _outcomes(world: World) -> Counter[str]:
    total: Counter[str] = Counter()
    for client in world.clients:
        total.update(client.counts)
    return total
