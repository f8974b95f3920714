"""Re-runs the table: `python -m tests.seeded [--only NAME ...] [--json]`.

Prints the expected invariant of each bug, the violated invariants, the seed, and the first fault. The exit status is 1
if the checker for a bug does not catch it, or if a checker finds a fault in the plane without the bug.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from tests.seeded.table import BUGS, Verdict, judge_all


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    options = _parse(arguments)
    known = {bug.name: bug for bug in BUGS}
    if unknown := [name for name in options.only if name not in known]:
        print(f"no bug is named {unknown[0]!r}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    bugs = [known[name] for name in options.only] or list(BUGS)
    found = []
    for verdict in judge_all(bugs, options.processes if len(bugs) > 1 else 1):
        found.append(verdict)
        if not options.json:
            print(_line(verdict, known[verdict.bug].description), flush=True)
    caught_count = sum(verdict.is_caught for verdict in found)
    if options.json:
        print(json.dumps([verdict._asdict() | {"caught": verdict.is_caught} for verdict in found], indent=1))
    else:
        checkers = {verdict.expected for verdict in found if verdict.is_caught}
        print(f"{caught_count} of {len(found)} seeded bugs caught, by {len(checkers)} invariants: {_joined(checkers)}")
    return int(caught_count < len(found))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.seeded", description="Plant bugs, and report which are caught."
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="plant only these bugs")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="number of worker processes")
    parser.add_argument("--json", action="store_true", help="print JSON objects instead of lines")
    return parser.parse_args(arguments)


def _line(verdict: Verdict, description: str) -> str:
    mark = "caught" if verdict.is_caught else "MISSED"
    invariants = _joined(verdict.caught_by)
    where = f"{verdict.lane} seed {verdict.seed}, {verdict.seconds:.1f} s"
    heading = f"{mark} {verdict.bug:34} {verdict.expected:>4} (caught by: {invariants}), {where}"
    lines = [heading, description, verdict.first]
    return "\n         ".join([*lines, *(f"without the bug: {fault}" for fault in verdict.clean or ())])


def _joined(invariants: Sequence[str] | set[str]) -> str:
    return " ".join(sorted(invariants, key=lambda name: (len(name), name))) or "nothing"


if __name__ == "__main__":
    sys.exit(main())
