"""Faults on real processes: `python -m tests.faults [--engine E] [--only NAME ...] [--pairs N] [--seed S]`.

Prints a line per fault: the fault, its evidence, the outcomes of the commands, and the time until commands succeeded
again. A fault without evidence fails, as does one that loses a command. In a random pair one fault may hide the other;
another pair is drawn then. `--list` prints the catalog of all faults.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.faults.catalog import catalog_table
from tests.faults.fault import Fault
from tests.faults.network_lab import NetworkLab
from tests.faults.report import Report
from tests.faults.run import run_trial
from tests.faults.sandbox import INSIDE, memory_folder, run, unsupported_reason
from tests.faults.table import FAULTS, pairs
from tests.faults.trials import Trials
from tests.faults.world import Engine, world_of

ENGINES: tuple[Engine, ...] = ("embedded", "kafka")


def main(arguments: Sequence[str]) -> int:
    """The exit status: 1 if anything failed, 2 if this machine cannot run faults."""
    options = _parse(arguments)
    if options.list:
        print(catalog_table())
        return 0
    if not options.inside:
        if reason := unsupported_reason():
            print(f"faults cannot run here: {reason}")
            return 2
        seed = [] if options.seed is not None else ["--seed", str(random.SystemRandom().randrange(10**9))]
        return run("tests.faults", [*arguments, *seed])
    print(f"seed {options.seed}", flush=True)
    logging.basicConfig(level=logging.CRITICAL)  # do not log connections that a fault cuts
    report = Report()
    signal.signal(signal.SIGTERM, _end)
    folder = memory_folder()
    try:
        asyncio.run(_run(options, folder, report))
    except KeyboardInterrupt:
        print("ended early")
    except Exception:
        report.trial_broke()
        traceback.print_exc()
    finally:
        report.summarise()
        if options.keep and (report.failed or not report.is_complete):
            shutil.copytree(folder, options.keep / f"seed-{options.seed}", ignore=shutil.ignore_patterns("ballast"))
    return int(report.failed)


def _end(*_: object) -> None:
    raise KeyboardInterrupt


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description="Inject faults into a plane of real processes."
    )
    parser.add_argument("--engine", choices=ENGINES, action="append", help="the engine of the log; both if not given")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="run these faults, 'A + B' at once; without it, each fault"
    )
    parser.add_argument("--pairs", type=int, default=0, metavar="N", help="also run N random pairs of faults")
    parser.add_argument("--minutes", type=float, help="start no trial after this time; random pairs until then")
    parser.add_argument("--seed", type=int, help="the seed of every random choice; a new one if not given")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="copy the files of a failed run into this folder")
    parser.add_argument("--list", action="store_true", help="print the catalog of all faults")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


async def _run(options: argparse.Namespace, folder: Path, report: Report) -> None:
    engines = options.engine or ENGINES
    within_s = options.minutes * 60 / len(engines) if options.minutes else float("inf")
    async with NetworkLab.open() as network_lab:
        for engine in engines:
            until_s = time.monotonic() + within_s
            rng = random.Random(f"{options.seed}/{engine}")
            async with world_of(engine, network_lab, folder / engine, rng) as world:
                report.engine_started(engine)
                trials = Trials(partial(run_trial, world, rng=rng), report, until_s)
                await trials.run_named(_named_faults(options, engine))
                await trials.run_drawn(pairs(engine, rng), _pair_count(options))
                report.engine_finished(world)
    report.is_complete = True


def _named_faults(options: argparse.Namespace, engine: Engine) -> Iterator[tuple[Fault, ...]]:
    """The faults of `--only`; without `--only` and without random pairs, each fault alone."""
    has_pairs = options.pairs or options.minutes
    for name in options.only or ([] if has_pairs else FAULTS):
        faults = tuple(FAULTS[part] for part in name.split(" + "))
        if all(engine in fault.engines for fault in faults):
            yield faults


def _pair_count(options: argparse.Namespace) -> int:
    """The number of random pairs; unlimited if only `--minutes` is given."""
    return options.pairs or (sys.maxsize if options.minutes and not options.only else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
