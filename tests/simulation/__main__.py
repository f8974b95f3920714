"""Runs seeds, on every core: `python -m tests.simulation --seeds N [--seed S] [--seconds V] [--verbose]`.

Prints a line per seed, in order, then the counts of events and checks of all seeds, and the speed. For a failing seed
it prints the fault and the command that repeats the run, and shrinks the run to a short script, which `--script FILE`
runs. The exit status is then 1. A run that proves nothing is reported with the reason, and is not counted as ok.
Expected events that did not occur are named.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from eventstore.errors import PermanentError
from tests.simulation.batch import each, quieten
from tests.simulation.checkers import INVARIANTS
from tests.simulation.figures import MUST_HAPPEN, figures, summary
from tests.simulation.plan import standard
from tests.simulation.run import Result, run_script, simulate, simulate_plan
from tests.simulation.script import Script, read_script
from tests.simulation.shrink import Shrinker, text_of

FAILED = Path(".simulation")
STANDARD_S = 1_800.0


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    options = _parse(arguments)
    quieten(options.verbose)
    try:
        return _run_script(options) if options.script else _run(options)
    finally:
        logging.disable(logging.NOTSET)


def _run(options: argparse.Namespace) -> int:
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(10**9)
    seeds, began = range(first, first + options.seeds), time.perf_counter()
    run, results = partial(simulate, faulty_s=options.seconds), []
    for result in each(run, seeds, options.processes, verbose=options.verbose):
        results.append(result)
        _print_result(result, options)
    print(summary(results, time.perf_counter() - began))
    print(f"checked: {', '.join(invariant.id for invariant in INVARIANTS)}")
    if options.seed is None and not options.no_figures:
        for plan in (standard(1, STANDARD_S, processes) for processes in (1, 3)):
            print(figures(plan, simulate_plan(plan)))
    if missing := [what for what in MUST_HAPPEN if not any(result.counts[what] for result in results)]:
        print(f"never happened: {', '.join(missing)}")
    return int(any(result.faults for result in results))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulate the plane, seed by seed.")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--seed", type=int, help="the first seed; a random one if not given")
    parser.add_argument(
        "--seconds", type=float, help="virtual seconds of the fault phase; drawn from the seed if not given"
    )
    parser.add_argument("--script", type=Path, help="run this script instead")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="number of worker processes")
    parser.add_argument(
        "--shrink-runs", type=int, default=300, help="maximum number of runs to shrink a failing seed; 0 disables it"
    )
    parser.add_argument("--no-figures", action="store_true", help="do not measure the speed of the simulation")
    parser.add_argument("--verbose", action="store_true", help="print logs, and the counts of each run")
    return parser.parse_args(arguments)


def _print_result(result: Result, options: argparse.Namespace) -> None:
    verdict = "FAILED" if result.faults else "proves nothing" if result.invalid else "ok"
    print(
        f"seed {result.seed}: {verdict}, {result.virtual_s:.0f} s in {result.cpu_s:.1f} s, "
        f"at rest {result.converged_s:.0f} s after the faults, run {result.digest}",
        flush=True,
    )
    if options.verbose:
        print("   ", ", ".join(f"{count} {what}" for what, count in sorted(result.counts.items())))
    for fault in (*result.faults, *result.invalid):
        print("   ", fault)
    if result.faults:
        seconds = "" if options.seconds is None else f" --seconds {options.seconds:g}"
        print(f"    repeat with: python -m tests.simulation --seed {result.seed}{seconds} --verbose", flush=True)
        if options.shrink_runs:
            _shrink(result, options)


def _shrink(result: Result, options: argparse.Namespace) -> None:
    shrinker = Shrinker(options.shrink_runs)
    script = shrinker.shrink(result, options.seconds)
    if script is None:
        print(f"    {len(result.actions)} actions, which do not reproduce the fault as a script")
        return
    FAILED.mkdir(exist_ok=True)
    path = FAILED / f"seed-{result.seed}.json"
    script.write(path)
    print(f"    shrunk from {len(result.actions)} actions to {len(script.actions)} in {shrinker.runs} runs:")
    _print_script(script)
    print(f"    run the script: python -m tests.simulation --script {path}", flush=True)


def _print_script(script: Script) -> None:
    reductions = f", without {', '.join(script.reductions)}" if script.reductions else ""
    print(f"      seed {script.seed}{reductions}: {script.fault}")
    for line in text_of(script.actions):
        print("     ", line)


def _run_script(options: argparse.Namespace) -> int:
    try:
        script = read_script(options.script)
    except PermanentError as error:
        print(error, file=sys.stderr)
        return 2
    _print_script(script)
    result = run_script(script)
    _print_result(result, argparse.Namespace(**{**vars(options), "shrink_runs": 0}))
    return int(bool(result.faults))


if __name__ == "__main__":
    sys.exit(main())
