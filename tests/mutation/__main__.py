"""`make mutate`: change the pure modules in small ways, one at a time, and print which changes no test notices."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutation.explained import reasons, stale_explanations
from tests.mutation.mutants import ROOT, Mutant, mutants_of
from tests.mutation.nearby import pure_modules, tests_near
from tests.mutation.report import interval, score, settled, shown, table
from tests.mutation.runner import Runner
from tests.mutation.typecheck import refused_by_types

_PYTEST = ("-o", "addopts=", "-p", "tests.mutation.profile", "-p", "no:cacheprovider", "-p", "no:terminal")


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    known = reasons()
    paths = options.paths or pure_modules()
    every = [mutant for path in paths for mutant in mutants_of(path)]
    sampled = every
    if options.sample:
        sampled = random.Random(options.seed).sample(every, min(options.sample, len(every)))
        sampled.sort(key=lambda mutant: (mutant.path, mutant.lines))
    fates = _fates(sampled, options.tests or tests_near(paths), options.verbose)
    surviving = [
        mutant for mutant, fate in fates.items() if fate in ("survived", "unreached") and mutant.key not in known
    ]
    final = settled(fates, refused_by_types(surviving), known)
    survivors = [mutant for mutant in sampled if final[mutant] == "survived"]
    stale = stale_explanations(known, every)
    for mutant in survivors:
        print(shown(mutant))
    for path, function, was, now in stale:
        print(f"explained, but no longer a mutant: {path}: {function}\n  - {was}\n  + {now}")
    print(table(final))
    counts = Counter(final.values())
    if options.sample:
        noticed, of = counts.total() - counts["survived"] - counts["explained"], counts.total() - counts["explained"]
        low, high = interval(noticed, of)
        print(f"{len(sampled)} of {len(every):,} mutants, drawn by --seed {options.seed}: {low:.1%} to {high:.1%}")
    is_enough = score(counts) >= options.at_least
    if not is_enough:
        print(f"the score is below {options.at_least:.0%}")
    return 0 if is_enough and not stale else 1


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__)
    parser.add_argument("paths", nargs="*", help="modules to mutate; by default all pure ones and the checkers")
    parser.add_argument("--sample", type=int, default=0, help="test only this number of random mutants")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="seed of the random sample")
    parser.add_argument("--at-least", type=float, default=0.95, help="fail below this score (0.95)")
    parser.add_argument("--tests", nargs="*", help="test files; by default those near the modules")
    parser.add_argument("--verbose", action="store_true", help="print a line for each tested mutant")
    return parser.parse_args(arguments)


def _fates(mutants: Sequence[Mutant], tests: Sequence[str], verbose: bool) -> dict[Mutant, str]:
    fates: dict[Mutant, str] = {}
    if not tests:
        return dict.fromkeys(mutants, "unreached")

    def record(mutant: Mutant, fate: str, test: str) -> None:
        fates[mutant] = fate
        if verbose:
            print(f"{len(fates)}/{len(mutants)} {fate} {test} {shown(mutant)}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        ended = pytest.main(
            [*_PYTEST, f"--rootdir={ROOT}", f"--basetemp={Path(folder) / 'pytest'}", *tests],
            plugins=[Runner(mutants, record)],
        )
    if len(fates) < len(mutants):
        raise SystemExit(f"the tests could not be run: pytest ended with {ended!r}")
    return fates


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
