"""Samples processes at intervals as a reader of their metrics does: bounded quantities and alarms."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from tests.simulation.history import Alarm, History, Sample
from tests.simulation.process import Life, Process
from tests.support.virtual_loop import current_loop

EVERY_S = 5.0


async def watch(processes: Sequence[Process], history: History) -> None:
    """Record samples and alarms, for ever."""
    raised: dict[tuple[str, str], None] = {}
    while True:
        await asyncio.sleep(EVERY_S)
        at_s = current_loop().time()
        alarms: dict[tuple[str, str], None] = {}
        for process in processes:
            if process.life is not None and process.life.is_up:
                for what, value in _held(process.life):
                    history.add(Sample(at_s, process.name, what, value))
                alarms |= {(process.name, about): None for about in _warned_of(process.life)}
        for name, about in [*alarms, *raised]:
            if ((name, about) in alarms) != ((name, about) in raised):
                history.add(Alarm(at_s, name, about, (name, about) in alarms))
        raised = alarms


def _held(life: Life) -> Iterator[tuple[str, float]]:
    yield "tasks", len(current_loop().tasks_of(life.name))
    yield "backlog bytes", max((link.backlog for link in life.links), default=0)
    in_flight = [
        len(state.in_flight)
        for zone in (life.relay.zones.values() if life.relay else ())
        for session in zone.sessions
        for state, _ in session.states()
    ]
    yield "frames under way to a DPU", max(in_flight, default=0)


def _warned_of(life: Life) -> Iterator[str]:
    for status in life.replica.partitions_status():
        if status.halted:
            yield str(status.partition)
    for partition in life.stall_detector.reasons if life.stall_detector else ():
        yield str(partition)
