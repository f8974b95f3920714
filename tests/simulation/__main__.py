"""Runs seeds: `python -m tests.simulation --seeds N [--seed S] [--seconds V] [--verbose]`.

A line per seed, then what really happened in all of them, and how fast. A seed that fails prints what was wrong and the
command that runs it again, and the exit status is 1. What should have happened to the plane and did not is named.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.simulation.run import Result, simulate

MUST_HAPPEN = (
    "crash",
    "agent crash",
    "unknown",
    "refused",
    "waiting",
    "held",
    "older state",
    "lost state",
    "isolation",
    "clock jump",
    "broker clock jump",
    "full disk",
    "device reboots",
    "steps begun on devices",
    "duplicated records",
    "records that landed late",
    "restamped records",
)
"""What a batch of runs must have met, or it tried too little to say anything."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    options = _parse(arguments)
    logging.basicConfig(level=logging.INFO if options.verbose else logging.CRITICAL)
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(10**9)
    began = time.perf_counter()
    results = [_run(seed, options.seconds, options.verbose) for seed in range(first, first + options.seeds)]
    _summarise(results, time.perf_counter() - began)
    return int(any(result.faults for result in results))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulate the plane, seed by seed.")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--seed", type=int, help="the first one; a fresh one if not given")
    parser.add_argument("--seconds", type=float, help="virtual seconds in which things go wrong; drawn if not given")
    parser.add_argument("--verbose", action="store_true", help="logs, and what happened in each run")
    return parser.parse_args(arguments)


def _run(seed: int, faulty_s: float | None, verbose: bool) -> Result:
    began = time.perf_counter()
    result = simulate(seed, faulty_s=faulty_s)
    verdict = "FAILED" if result.faults else "ok"
    print(
        f"seed {seed}: {verdict}, {result.virtual_s:.0f} s in {time.perf_counter() - began:.1f} s, "
        f"at rest {result.converged_s:.0f} s after it healed, run {result.digest}",
        flush=True,
    )
    if verbose:
        print("   ", ", ".join(f"{count} {what}" for what, count in sorted(result.counts.items())))
    for fault in result.faults:
        print("   ", fault)
    if result.faults:
        seconds = "" if faulty_s is None else f" --seconds {faulty_s:g}"
        print(f"    run it again: python -m tests.simulation --seed {seed}{seconds} --verbose")
    return result


def _summarise(results: Sequence[Result], real_s: float) -> None:
    counts: Counter[str] = Counter()
    for result in results:
        counts.update(result.counts)
    virtual_s = sum(result.virtual_s for result in results)
    print(", ".join(f"{count} {what}" for what, count in counts.most_common()))
    print(f"{len(results)} seeds, {virtual_s / 3600:.2f} virtual hours, {virtual_s / real_s:.0f} times real time")
    if missing := [what for what in MUST_HAPPEN if not counts[what]]:
        print(f"never happened: {', '.join(missing)}")


if __name__ == "__main__":
    sys.exit(main())
