"""Each seed of a batch runs once, in order, in worker processes that are replaced after a number of seeds."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.simulation.batch import SEEDS_PER_PROCESS, each

SEEDS = range(5 * SEEDS_PER_PROCESS)
TIMEOUT_S = 120


def seed_and_process(seed: int) -> tuple[int, int]:
    return seed, os.getpid()


def main() -> None:
    found = list(each(seed_and_process, SEEDS, 2, verbose=False))
    assert [seed for seed, _ in found] == list(SEEDS), found
    assert len({process for _, process in found}) > 2, "workers are replaced"
    assert os.getpid() not in {process for _, process in found}


def test_a_batch_of_many_seeds_ends() -> None:
    """Run the batch in a child process, which the test can kill if it hangs."""
    subprocess.run([sys.executable, "-m", "tests.simulation.test_batch"], check=True, timeout=TIMEOUT_S)


def test_a_single_worker_is_this_process() -> None:
    assert list(each(seed_and_process, SEEDS, 1, verbose=False)) == [(seed, os.getpid()) for seed in SEEDS]


if __name__ == "__main__":
    main()
