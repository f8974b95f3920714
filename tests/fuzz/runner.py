"""Runs libFuzzer on the targets. The code is instrumented once, and each target runs in a fork of that process.

Inputs come from the corpus in the tree and from earlier runs, in `FOLDER/NAME/inputs`; new ones are stored there. An
input that breaks a property, crashes, or takes longer than `-timeout` is stored as `FOLDER/NAME/crash-...`.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha1
from pathlib import Path
from random import Random
from typing import NamedTuple

import atheris

from tests.fuzz import corpus
from tests.fuzz.framing import joined, split
from tests.fuzz.target import Target

OURS = ["eventstore", "projections", "commands", "drivers", "deploy", "schemas"]
INPUT_S_MAX = 60
MEMORY_MB_MAX = 4_096
_COVERAGE = re.compile(r"cov: (\d+) ft: (\d+)")
_FEATURES = re.compile(r"^FT (\d+)(.*)$", re.MULTILINE)
_FINAL = re.compile(r"stat::(\w+): +(\d+)")


class Fuzzed(NamedTuple):
    """The result of a run on one target. `found` are the new stored inputs that broke a property."""

    name: str
    executions: int
    per_second: int
    edges: int
    features: int
    new_inputs: int
    found: tuple[Path, ...]


class _Running(NamedTuple):
    """A target that is being fuzzed, with its stored failures and its number of inputs before the run."""

    target: Target
    broke: set[Path]
    inputs: int


def instrumented_targets() -> dict[str, Target]:
    """All targets, loaded so that libFuzzer sees which edges of our code an input covers."""
    logging.disable()
    with _silent_stderr(), atheris.instrument_imports(include=OURS):
        from tests.fuzz.targets import TARGETS
    for function in gc.get_objects():
        if isinstance(function, types.FunctionType) and function.__code__.co_filename.startswith("<avro"):
            atheris.instrument_func(function)
    return TARGETS


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Discard stderr during the context, because atheris prints every module that it instruments."""
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


class Fuzzer:
    """Runs targets, with all files in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fuzz(self, targets: Sequence[Target], seconds: int, jobs: int, seed: int) -> Iterator[Fuzzed]:
        """Fuzz each target for `seconds`, with `jobs` of them at a time."""
        waiting, running = list(targets), dict[int, _Running]()
        options = [f"-max_total_time={seconds}", f"-seed={seed}"]
        while waiting or running:
            while waiting and len(running) < jobs:
                target = waiting.pop(0)
                inputs = self._unpacked(target)
                begun = _Running(target, {*self._failing_inputs(target)}, len(list(inputs.iterdir())))
                running[self._forked(target, options, [inputs])] = begun
            pid, _ = os.wait()
            yield self._result_of(running.pop(pid))

    def minimal_inputs(self, target: Target) -> list[bytes]:
        """A small set of inputs with the coverage of all. Inputs with the largest gain for their size come first.

        libFuzzer's merge restarts the program, which is not possible here. Only its inner step, which measures
        coverage, is called.
        """
        paths = sorted(self._unpacked(target).iterdir(), key=lambda path: path.stat().st_size)
        control = self._folder / target.name / "merge"
        control.write_text("\n".join([str(len(paths)), "0", *map(str, paths), ""]))
        os.waitpid(self._forked(target, [f"-merge_control_file={control}", "-merge_inner=1"], []), 0)
        taken: set[str] = set()
        gains: list[tuple[float, bytes]] = []
        for number, features in sorted(
            (int(n), {*found.split()}) for n, found in _FEATURES.findall(control.read_text())
        ):
            if new := features - taken:
                data = paths[number].read_bytes()
                gains.append((len(new) / (len(data) + 1), data))
                taken |= new
        return [data for _, data in sorted(gains, reverse=True)]

    def _unpacked(self, target: Target) -> Path:
        """The folder with the inputs of a target, including those of the tree."""
        inputs = self._folder / target.name / "inputs"
        inputs.mkdir(parents=True, exist_ok=True)
        for data in corpus.load(target.name):
            (inputs / sha1(data).hexdigest()).write_bytes(data)
        return inputs

    def _failing_inputs(self, target: Target) -> list[Path]:
        """The stored inputs that broke a property."""
        return sorted(path for path in (self._folder / target.name).iterdir() if "-" in path.name)

    def _forked(self, target: Target, options: Sequence[str], folders: Sequence[Path]) -> int:
        """Fork a process that runs libFuzzer on a target; returns its id."""
        sys.stdout.flush()
        if pid := os.fork():
            return pid
        home = self._folder / target.name
        with (home / "log").open("wb") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        limits = [f"-timeout={INPUT_S_MAX}", f"-rss_limit_mb={MEMORY_MB_MAX}", f"-max_len={target.max_bytes}"]
        arguments = ["fuzz", *options, *limits, "-print_final_stats=1", f"-artifact_prefix={home}/", *map(str, folders)]
        changing = {}
        if target.mutate is not None:
            changing = {"custom_mutator": partial(_changed, target), "custom_crossover": _crossed}
        atheris.Setup(arguments, target.run, **changing)
        atheris.Fuzz()
        os._exit(0)

    def _result_of(self, run: _Running) -> Fuzzed:
        text = (self._folder / run.target.name / "log").read_text(errors="replace")
        edges, features = [("0", "0"), *_COVERAGE.findall(text)][-1]
        final = {name: int(number) for name, number in _FINAL.findall(text)}
        inputs = len(list((self._folder / run.target.name / "inputs").iterdir()))
        return Fuzzed(
            run.target.name,
            final.get("number_of_executed_units", 0),
            final.get("average_exec_per_sec", 0),
            int(edges),
            int(features),
            inputs - run.inputs,
            tuple(sorted({*self._failing_inputs(run.target)} - run.broke)),
        )


def _changed(target: Target, data: bytes, max_bytes: int, seed: int) -> bytes:
    assert target.mutate is not None
    changed = target.mutate(data, Random(seed), lambda some: atheris.Mutate(some, min(len(some) + 16, max_bytes)))
    return changed if len(changed) <= max_bytes else data


def _crossed(first: bytes, second: bytes, max_bytes: int, seed: int) -> bytes:
    """The beginning of one input and the end of another, cut between parts."""
    rng, head, tail = Random(seed), split(first), split(second)
    crossed = joined([*head[: rng.randrange(len(head) + 1)], *tail[rng.randrange(len(tail) + 1) :]])
    return crossed if len(crossed) <= max_bytes else first
