"""Runs seeds on several cores, in worker processes that are replaced after a number of seeds."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

SEEDS_PER_PROCESS = 10
"""A limit for memory: a worker keeps the folded states of its runs in memory until it ends."""

T = TypeVar("T")


def quieten(verbose: bool) -> None:
    """Disable logs unless `verbose`, because the failures in a simulation are injected."""
    if verbose:
        logging.basicConfig(level=logging.INFO)
    else:
        logging.disable()


def each(run: Callable[[int], T], seeds: Sequence[int], processes: int, *, verbose: bool) -> Iterator[T]:
    """The results of the seeds, in their order.

    Workers are replaced together: an executor that replaces them one by one (max_tasks_per_child) hangs once all have
    reached their limit, https://github.com/python/cpython/issues/115634.
    """
    processes = min(processes, len(seeds))
    if processes <= 1:
        yield from map(run, seeds)
        return
    seeds_per_pool = processes * SEEDS_PER_PROCESS
    for first in range(0, len(seeds), seeds_per_pool):
        with ProcessPoolExecutor(
            processes, mp_context=multiprocessing.get_context("spawn"), initializer=quieten, initargs=(verbose,)
        ) as pool:
            yield from pool.map(run, seeds[first : first + seeds_per_pool])
