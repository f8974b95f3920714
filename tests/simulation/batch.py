"""Many seeds on several cores: each process simulates some, then makes room for a fresh one."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.run import Result

SEEDS_PER_PROCESS = 10
"""What was folded stays in memory for as long as the process that simulated it."""


def quieten(verbose: bool) -> None:
    """What goes wrong in a simulation is logged, and all of it is meant to."""
    if verbose:
        logging.basicConfig(level=logging.INFO)
    else:
        logging.disable()


def each(run: Callable[[int], Result], seeds: Sequence[int], processes: int, *, verbose: bool) -> Iterator[Result]:
    """The results of seeds, in their order."""
    processes = min(processes, len(seeds))
    if processes <= 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=quieten,
        initargs=(verbose,),
        max_tasks_per_child=SEEDS_PER_PROCESS,
    ) as pool:
        yield from pool.map(run, seeds)
