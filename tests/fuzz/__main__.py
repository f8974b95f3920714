"""Fuzz every decoder of untrusted input, on every core.

    python -m tests.fuzz [--only NAME ...] [--seconds N]     N seconds per target
    python -m tests.fuzz --replay NAME FILE                  run one stored input
    python -m tests.fuzz --keep [--only NAME ...]            store a minimal set of inputs in the tree

`--replay` prints the broken property of an input. A line in `findings.py` turns the input into a test.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from pathlib import Path

from tests.fuzz import corpus
from tests.fuzz.corpus import load

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in corpus.FOLDER.glob("*.txt"))
SHOWN = 2_000
"""How many bytes of a finding are printed, for readers of the output without the file."""
BYTES_KEPT = 26_000
"""The maximum size of a target's inputs in the tree."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=int, default=30, help="duration per target")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of targets that run concurrently")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31), help="seed of the run")
    parser.add_argument("--folder", type=Path, default=ROOT / ".fuzz", help="folder of the inputs of earlier runs")
    parser.add_argument("--replay", nargs=2, metavar=("NAME", "FILE"))
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    if arguments.replay:
        return _replay(*arguments.replay)
    try:
        from tests.fuzz import runner
    except ImportError as error:
        print(f"fuzzing needs atheris, which has wheels only for Linux on x86-64: {error}", file=sys.stderr)
        return 2
    every = runner.instrumented_targets()
    targets = [every[name] for name in arguments.only]
    fuzzer = runner.Fuzzer(arguments.folder)
    if arguments.keep:
        for target in targets:
            _keep(target.name, fuzzer.minimal_inputs(target))
        return 0
    print(f"seed {arguments.seed}, {arguments.seconds} s for each of {len(targets)} targets, {arguments.jobs} at once")
    print(f"{'target':<16}{'executions':>12}{'per second':>12}{'edges':>8}{'features':>10}{'new inputs':>12}")
    broken = 0
    for done in fuzzer.fuzz(targets, arguments.seconds, arguments.jobs, arguments.seed):
        numbers = f"{done.executions:>12}{done.per_second:>12}{done.edges:>8}{done.features:>10}{done.new_inputs:>12}"
        print(f"{done.name:<16}{numbers}", flush=True)
        for path in done.found:
            print(f"FOUND: python -m tests.fuzz --replay {done.name} {path}")
            print(f"  which is {path.read_bytes()[:SHOWN]!r}", flush=True)
        broken += len(done.found) or not done.executions
    return 1 if broken else 0


def _replay(name: str, file: str) -> int:
    from tests.fuzz.targets import TARGETS

    was_accepted = TARGETS[name].run(Path(file).read_bytes())
    print("accepted" if was_accepted else "refused")
    return 0


def _keep(name: str, inputs: list[bytes]) -> None:
    """Store as many of these inputs in the tree as fit. Stored inputs stay."""
    kept = load(name)
    room = BYTES_KEPT - sum(len(repr(data)) for data in kept)
    for data in inputs:
        if data not in kept and len(repr(data)) <= room:
            kept.append(data)
            room -= len(repr(data))
    corpus.keep(name, kept)
    print(f"{name}: {len(kept)} inputs")


if __name__ == "__main__":
    sys.exit(main())
