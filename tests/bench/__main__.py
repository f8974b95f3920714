"""`make bench`: every figure of the plane in one table. Each bench runs in a process of its own.

    python -m tests.bench [--only NAME ...] [--minutes N] [--json]

`--minutes` is how long the bench `join` joins nodes at an even pace: 1 if not given; 10 shows that memory is flat.
With `--json` the last line of stdout is one JSON array; progress goes to stderr either way. The column `machine` is the
speed of a fixed loop just before the bench, in millions of steps a second: machines of one kind differ by half.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import time
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

import tests.bench
from tests.bench.figures import Figure, machine_speed

BENCHES = sorted(
    module.name.removeprefix("bench_")
    for module in pkgutil.iter_modules(tests.bench.__path__)
    if "bench_" in module.name
)
PACED = ("join",)
"""Benches that use the option `--minutes`."""
Row: TypeAlias = tuple[Figure, float]
"""A figure, and the speed of the machine just before its bench."""
QUIET = {"GRPC_VERBOSITY": "ERROR"}
"""Environment that silences gRPC, which otherwise prints a line for every child process."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=BENCHES, default=BENCHES, metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--json", action="store_true", help="print one JSON array instead of a table")
    parser.add_argument("--minutes", type=float, default=1.0, help="of joins at an even pace")
    parser.add_argument("--inside", choices=BENCHES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        measure = importlib.import_module(f"tests.bench.bench_{arguments.inside}").figures
        figures: list[Figure] = measure(arguments.minutes) if arguments.inside in PACED else measure()
        print(json.dumps([figure._asdict() for figure in figures]))
        return 0
    measured: list[Row] = []
    failed = []
    for name in arguments.only:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        speed = machine_speed()
        began = time.perf_counter()
        command = [sys.executable, "-m", "tests.bench", "--inside", name, "--minutes", str(arguments.minutes)]
        inside = subprocess.run(command, stdout=subprocess.PIPE, check=False, env=os.environ | QUIET)
        print(f"measuring {name} took {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        if inside.returncode:
            failed.append(name)
        else:
            measured.extend((Figure(**figure), speed) for figure in json.loads(inside.stdout.splitlines()[-1]))
    if arguments.json:
        print(json.dumps([{**figure.as_json(), "machine": round(speed, 1)} for figure, speed in measured]))
    else:
        Console(width=150).print(_table(measured))
    for name in failed:
        print(f"bench {name} failed; see above", file=sys.stderr)
    return 1 if failed else 0


def _table(rows: list[Row]) -> Table:
    table = Table("what", "value", "unit", "peer", "ratio", "aim", "met", "machine")
    for column in (1, 3, 4, 5, 7):
        table.columns[column].justify = "right"
    for figure, speed in rows:
        table.add_row(
            figure.name,
            _number(figure.value),
            figure.unit,
            f"{_number(figure.peer)} {figure.peer_name}".strip(),
            _number(figure.ratio),
            _number(figure.aim),
            {None: "", True: "yes", False: "no"}[figure.met],
            f"{speed:.1f}",
        )
    return table


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
