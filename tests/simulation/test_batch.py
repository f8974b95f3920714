"""Seeds on several cores: each runs once, in order, in worker processes that are replaced after a number of seeds."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.simulation.batch import SEEDS_PER_PROCESS, each

SEEDS = range(5 * SEEDS_PER_PROCESS)
PATIENCE_S = 120


def seed_and_process(seed: int) -> tuple[int, int]:
    return seed, os.getpid()


def main() -> None:
    found = list(each(seed_and_process, SEEDS, 2, verbose=False))
    assert [seed for seed, _ in found] == list(SEEDS), found
    assert len({process for _, process in found}) > 2, "they are replaced"
    assert os.getpid() not in {process for _, process in found}


def test_many_seeds_come_to_an_end() -> None:
    """Run in a child process, which the test can stop if it hangs."""
    subprocess.run([sys.executable, "-m", "tests.simulation.test_batch"], check=True, timeout=PATIENCE_S)


def test_one_process_is_this_one() -> None:
    assert list(each(seed_and_process, SEEDS, 1, verbose=False)) == [(seed, os.getpid()) for seed in SEEDS]


if __name__ == "__main__":
    main()
