"""Many seeds on several cores, by processes that make room for fresh ones after some."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

SEEDS_PER_PROCESS = 10
"""What was folded stays in memory for as long as the process that simulated it."""

T = TypeVar("T")


def quieten(verbose: bool) -> None:
    """What goes wrong in a simulation is logged, and all of it is meant to."""
    if verbose:
        logging.basicConfig(level=logging.INFO)
    else:
        logging.disable()


def each(run: Callable[[int], T], seeds: Sequence[int], processes: int, *, verbose: bool) -> Iterator[T]:
    """The results of seeds, in their order.

    Processes are replaced together: an executor that replaces them one by one (max_tasks_per_child) stops for ever once
    all have done their share, https://github.com/python/cpython/issues/115634.
    """
    processes = min(processes, len(seeds))
    if processes <= 1:
        yield from map(run, seeds)
        return
    together = processes * SEEDS_PER_PROCESS
    for first in range(0, len(seeds), together):
        with ProcessPoolExecutor(
            processes, mp_context=multiprocessing.get_context("spawn"), initializer=quieten, initargs=(verbose,)
        ) as pool:
            yield from pool.map(run, seeds[first : first + together])
