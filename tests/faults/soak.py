"""Simulator, real faults and fuzzers in turns, for hours: `python -m tests.faults.soak --hours N`.

Fresh seeds of the simulator, random pairs of faults on both engines, and the fuzzers take turns. The output of a
failure is stored in a folder, with the command that repeats it. A summary is printed at the end, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

SEED_MAX = 10**9
LINES_SHOWN = 3
MINUTES = 20.0
END_S = 300.0
"""How long a turn may run beyond its minutes, to finish the work in progress."""
HUNG = 124
"""The exit status of a turn that was killed after its time limit, as for the command `timeout`."""


class Turn(NamedTuple):
    """One command; its exit status reports whether it found a fault."""

    part: str
    module: str
    arguments: tuple[str, ...]
    minutes: float = MINUTES
    """The turn starts no new work after this many minutes."""

    @property
    def within_s(self) -> float:
        """The time limit in seconds; a longer turn counts as hung."""
        return self.minutes * 60 + END_S

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", self.module, *self.arguments]


class Part:
    """The results of all turns of one kind."""

    def __init__(self) -> None:
        self.turns = 0
        self.failed = 0
        self.seconds = 0.0


class Soak:
    """Runs turns until the time is over."""

    def __init__(self, folder: Path) -> None:
        self.parts: dict[str, Part] = {}
        self.kept: list[Path] = []
        self._folder = folder

    def take(self, turn: Turn) -> None:
        """Run a turn. A turn that exceeds its time limit has failed."""
        began = time.monotonic()
        path = self._folder / f"{turn.part.replace(' ', '-')}-{time.strftime('%Y%m%d-%H%M%S')}.txt"
        print(f"{time.strftime('%H:%M:%S')} {turn.part}: {shlex.join(turn.command[1:])}", flush=True)
        with path.open("w") as output:
            status = _run(turn.command, output.fileno(), turn.within_s)
        lines = path.read_text(errors="replace").splitlines()
        part = self.parts.setdefault(turn.part, Part())
        part.turns += 1
        part.seconds += time.monotonic() - began
        if status:
            part.failed += 1
            self.kept.append(path)
            with path.open("a") as output:
                if status == HUNG:
                    output.write(f"\nstill running after {turn.within_s:g} s, killed\n")
                output.write(f"\nrepeat with: {shlex.join(turn.command[1:])}\n")
        else:
            path.unlink()
        for line in lines[-LINES_SHOWN:]:
            print(f"    {line[:200]}")

    def summarise(self) -> None:
        """Print the results."""
        for name, part in self.parts.items():
            print(f"{name}: {part.turns} turns in {part.seconds / 3600:.2f} hours, {part.failed} failed")
        for path in self.kept:
            print(f"kept: {path}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 1 if anything failed."""
    options = _parse(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    soak = Soak(options.folder)
    until_s = time.monotonic() + options.hours * 3600
    signal.signal(signal.SIGTERM, _end)
    try:
        for turn in _turns(random.SystemRandom(), options.folder, until_s):
            if time.monotonic() > until_s:
                break
            soak.take(turn)
    except KeyboardInterrupt:
        print("ended early")
    soak.summarise()
    return int(bool(soak.kept))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description="Search for faults for hours.")
    parser.add_argument("--hours", type=float, default=1.0, help="duration in hours")
    parser.add_argument("--folder", type=Path, default=Path("soak"), help="folder for the output of failures")
    return parser.parse_args(arguments)


def _turns(rng: random.Random, folder: Path, until_s: float) -> Iterator[Turn]:
    """The turns of all kinds in rotation, for ever."""
    while True:
        seed = str(rng.randrange(SEED_MAX))
        yield Turn("simulation", "tests.simulation", ("--seeds", "40", "--seed", seed))
        for engine in ("embedded", "kafka"):
            seed = str(rng.randrange(SEED_MAX))
            minutes = min(MINUTES, max(0.1, (until_s - time.monotonic()) / 60))
            pairs = ("--engine", engine, "--pairs", "6", "--seed", seed, "--keep", str(folder))
            yield Turn(f"faults on {engine}", "tests.faults", (*pairs, "--minutes", f"{minutes:.1f}"), minutes)
        seed = str(rng.randrange(1, 2**31))
        yield Turn("fuzzing", "tests.fuzz", ("--seconds", "30", "--seed", seed))


def _run(command: Sequence[str], output: int, within_s: float) -> int:
    """Run the command; returns its exit status, or HUNG after the time limit. All its processes are killed then."""
    with subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True) as child:
        try:
            return child.wait(within_s)
        except subprocess.TimeoutExpired:
            return HUNG
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def _end(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
