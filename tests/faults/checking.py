"""The checkers in a separate process: they run for seconds and would block the proxies and clients of this one."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from deploy.composition.topics import TOPICS
from deploy.host.storage import LogSource, open_log_to_read
from eventstore.errors import PlaneError
from eventstore.log import Partition, Record
from eventstore.state_store.rocks_store import list_checkpoints, open_checkpoint
from eventstore.state_store.store import StateReader
from tests.contract.engine import read_to_end
from tests.simulation.checkers import Fault, judge_history
from tests.simulation.history import History

READ_S = 120.0
Records = Mapping[Partition, Sequence[Record]]


class Case(NamedTuple):
    """The input of the checkers."""

    history: History
    log_source: LogSource
    states: Mapping[str, Path]
    """The folder of each role's saved state."""


def check(case: Case) -> tuple[list[Fault], list[str]]:
    """The faults that the checkers find, or the reason why the log cannot be read."""
    try:
        records, again = asyncio.run(_read_twice(case.log_source))
    except (PlaneError, TimeoutError) as error:
        return [], [f"the log cannot be read: {error or f'no result within {READ_S:.0f} s'}"]
    with ExitStack() as stack:
        found = judge_history(
            case.history,
            records,
            again=again,
            appended_s=None if case.log_source.data else _appended_s(records),
            saved=_saved(case.states, stack),
            end_s=time.monotonic(),
        )
    return found, []


async def _read_twice(log_source: LogSource) -> tuple[Records, Records]:
    """Every record of every folded topic, read by two readers."""
    async with asyncio.timeout(READ_S):
        return await _read(log_source), await _read(log_source)


async def _read(log_source: LogSource) -> Records:
    async with open_log_to_read(log_source, rng=random.Random()) as log:
        return await read_to_end(log, {partition: 0 for topic in TOPICS.folded for partition in log.partitions(topic)})


def _appended_s(records: Records) -> Callable[[Partition, int], float]:
    """The append time of a record, by this machine's monotonic clock."""
    ahead_s = time.time() - time.monotonic()
    at = {(p, record.offset): record.timestamp_ms / 1000 - ahead_s for p, found in records.items() for record in found}
    return lambda partition, offset: at[partition, offset]


def _saved(states: Mapping[str, Path], stack: ExitStack) -> dict[str, StateReader]:
    """The newest saved state of each role that can be read while its owner runs."""
    found: dict[str, StateReader] = {}
    for name, folder in states.items():
        for newest in list_checkpoints(folder)[-1:]:
            saved = open_checkpoint(newest.path)
            stack.callback(saved.close)
            found[name] = saved
    return found
