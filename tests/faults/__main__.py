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

from tests.faults.catalog import printed
from tests.faults.fault import Fault
from tests.faults.network_lab import NetworkLab
from tests.faults.report import Report
from tests.faults.run import attempt
from tests.faults.sandbox import INSIDE, in_memory, run, why_not
from tests.faults.table import FAULTS, pairs
from tests.faults.trials import Trials
from tests.faults.world import Engine, world_of

ENGINES: tuple[Engine, ...] = ("embedded", "kafka")


def main(arguments: Sequence[str]) -> int:
    """The exit status: 1 if anything failed, 2 if this machine cannot run faults."""
    options = _parse(arguments)
    if options.list:
        print(printed())
        return 0
    if not options.inside:
        if reason := why_not():
            print(f"cannot be tried here: {reason}")
            return 2
        seed = [] if options.seed is not None else ["--seed", str(random.SystemRandom().randrange(10**9))]
        return run("tests.faults", [*arguments, *seed])
    print(f"seed {options.seed}", flush=True)
    logging.basicConfig(level=logging.CRITICAL)  # clients of ours need not log connections that a fault cuts
    report = Report()
    signal.signal(signal.SIGTERM, _end)
    folder = in_memory()
    try:
        asyncio.run(_run(options, folder, report))
    except KeyboardInterrupt:
        print("ended early")
    except Exception:
        report.broke()
        traceback.print_exc()
    finally:
        report.summarise()
        if options.keep and (report.failed or not report.is_whole):
            shutil.copytree(folder, options.keep / f"seed-{options.seed}", ignore=shutil.ignore_patterns("ballast"))
    return int(report.failed)


def _end(*_: object) -> None:
    raise KeyboardInterrupt


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Hurt a plane of real processes.")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="where the log is; both if not given")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="these faults, 'A + B' at once; each of them if not given"
    )
    parser.add_argument("--pairs", type=int, default=0, metavar="N", help="and so many random pairs of faults")
    parser.add_argument("--minutes", type=float, help="begin nothing more after this; random pairs until then")
    parser.add_argument("--seed", type=int, help="of every random choice; a fresh one if not given")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="copy what a failed run left into this folder")
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
                report.began(engine)
                trying = Trials(partial(attempt, world, rng=rng), report, until_s)
                await trying.named(_named(options, engine))
                await trying.drawn(pairs(engine, rng), _wanted(options))
                report.ended(world)
    report.is_whole = True


def _named(options: argparse.Namespace, engine: Engine) -> Iterator[tuple[Fault, ...]]:
    """The named faults, or each one alone if no pairs were asked for."""
    drawing = options.pairs or options.minutes
    for name in options.only or ([] if drawing else FAULTS):
        faults = tuple(FAULTS[part] for part in name.split(" + "))
        if all(engine in fault.engines for fault in faults):
            yield faults


def _wanted(options: argparse.Namespace) -> int:
    """The number of pairs: unlimited if only a time is given."""
    return options.pairs or (sys.maxsize if options.minutes and not options.only else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
