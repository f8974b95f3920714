"""Samples the bounded quantities and alarms of processes at intervals, as a scrape of their metrics does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from tests.simulation.history import Alarm, History, Sample
from tests.simulation.process import Instance, Process
from tests.support.virtual_loop import current_loop

EVERY_S = 5.0


async def watch(processes: Sequence[Process], history: History) -> None:
    """Record samples and changes of alarms until cancelled."""
    raised: dict[tuple[str, str], None] = {}
    while True:
        await asyncio.sleep(EVERY_S)
        at_s = current_loop().time()
        alarms: dict[tuple[str, str], None] = {}
        for process in processes:
            if process.instance is not None and process.instance.is_up:
                for what, value in _samples_of(process.instance):
                    history.add(Sample(at_s, process.name, what, value))
                alarms |= {(process.name, about): None for about in _alarms_of(process.instance)}
        for name, about in [*alarms, *raised]:
            if ((name, about) in alarms) != ((name, about) in raised):
                history.add(Alarm(at_s, name, about, (name, about) in alarms))
        raised = alarms


def _samples_of(instance: Instance) -> Iterator[tuple[str, float]]:
    yield "tasks", len(current_loop().tasks_of(instance.name))
    yield "backlog bytes", max((link.backlog for link in instance.links), default=0)
    in_flight = [
        len(state.in_flight)
        for zone in (instance.relay.zones.values() if instance.relay else ())
        for session in zone.sessions
        for state, _ in session.states()
    ]
    yield "frames in flight to a DPU", max(in_flight, default=0)


def _alarms_of(instance: Instance) -> Iterator[str]:
    for status in instance.replica.partitions_status():
        if status.halted:
            yield str(status.partition)
    for partition in instance.stall_detector.reasons if instance.stall_detector else ():
        yield str(partition)
