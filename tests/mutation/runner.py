"""A pytest plugin that runs all tests once to record which lines each test reaches, and then tests each mutant.

Each mutant runs the tests that reach it, in a fork that stops at the first failure. The test that killed the last
mutant of the function runs first, then the quickest tests. Each test has a budget of processor time, computed from its
time without a mutant, so that a busy machine kills no mutant. A fork that sleeps is killed after a limit of wall-clock
time.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import os
import resource
import select
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FunctionType
from typing import TypeVar

import coverage
import pytest

from tests.mutation.mutants import ROOT, Mutant

CPU_SECONDS_AT_LEAST = 2
CPU_TIMES = 8
WALL_SECONDS_MAX = 120
MEMORY_BYTES_MAX = 6 << 30
_KILLED, _ALIVE = 1, 0
# The caches of these libraries do not depend on the code under test.
_LIBRARIES = {"hypothesis", "typing", "re", "functools"}

T = TypeVar("T")
Record = Callable[[Mutant, str, str], None]


@dataclass(slots=True)
class Reach:
    """The tests that reach each line, and the processor time of each test."""

    seconds: dict[str, float] = field(default_factory=dict)
    by_line: dict[str, dict[int, set[str]]] = field(default_factory=dict)

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests that reach the line of the mutant, quickest first. If no test is recorded for the line, those that
        reach its function.
        """
        lines = self.by_line.get(mutant.path, {})
        first, last = mutant.lines
        found = lines.get(mutant.line) if mutant.line > first else None
        if not found:
            found = set().union(*(lines.get(line, set()) for line in range(first, last + 1)))
        return sorted(found, key=lambda test: (self.seconds[test], test))


class Runner:
    """Tests all mutants. `record` is called with each mutant, its result (killed, timeout, survived or unreached), and
    the test that noticed it.
    """

    def __init__(self, mutants: Sequence[Mutant], record: Record) -> None:
        self._mutants = mutants
        self._record = record
        self._killers: defaultdict[tuple[str, str], list[str]] = defaultdict(list)

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        items = {item.nodeid: item for item in session.items}
        reach = self._record_reach(session, items)
        _clear_caches()
        functions = _functions({mutant.module for mutant in self._mutants})
        gc.collect()
        gc.freeze()
        for mutant in self._mutants:
            tests = reach.tests(mutant)
            code = mutant.compiled()
            changed = functions.get((mutant.module, mutant.function), [])
            if code is None or not changed or not tests:
                self._record(mutant, "unreached", "")
                continue
            first = [test for test in self._killers[mutant.path, mutant.function] if test in tests]
            order = [*first, *(test for test in tests if test not in first)]
            self._record(
                mutant,
                *self._test_mutant(mutant, [(items[test], reach.seconds[test]) for test in order], changed, code),
            )
        return True

    def _record_reach(self, session: pytest.Session, items: dict[str, pytest.Item]) -> Reach:
        reach, broken = Reach(), set[str]()
        paths = sorted({mutant.path for mutant in self._mutants})
        measured = coverage.Coverage(data_file=None, config_file=False, include=[str(ROOT / path) for path in paths])
        measured.start()
        for (test, item), following in zip_longest(items.items(), list(items.values())[1:]):
            measured.switch_context(test)
            before, failed = time.process_time(), session.testsfailed
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            reach.seconds[test] = time.process_time() - before
            if session.testsfailed > failed:
                broken.add(test)
        measured.stop()
        if broken:
            print(f"\nignored, because they fail without a mutant: {', '.join(sorted(broken))}", file=sys.stderr)
        session.testsfailed = 0
        data = measured.get_data()
        for path in paths:
            contexts = data.contexts_by_lineno(str(ROOT / path))
            reach.by_line[path] = {line: set(tests) - {""} - broken for line, tests in contexts.items()}
        return reach

    def _test_mutant(
        self, mutant: Mutant, order: list[tuple[pytest.Item, float]], changed: list[FunctionType], code: CodeType
    ) -> tuple[str, str]:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            _run_mutant(order, changed, code, write)
        os.close(write)
        status = _wait_for_exit(child, WALL_SECONDS_MAX + CPU_TIMES * sum(seconds for _, seconds in order))
        with os.fdopen(read, "rb") as pipe:
            reached = pipe.read()
        last = order[len(reached) - 1][0].nodeid if reached else ""
        if os.WIFSIGNALED(status):
            fate = "timeout" if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else "killed"
        else:
            fate = "survived" if os.WEXITSTATUS(status) == _ALIVE else "killed"
        if fate == "killed":
            killers = self._killers[mutant.path, mutant.function]
            if last in killers:
                killers.remove(last)
            killers.insert(0, last)
        return fate, last if fate != "survived" else ""


def _run_mutant(
    order: list[tuple[pytest.Item, float]], changed: list[FunctionType], code: CodeType, progress: int
) -> None:
    """Run the tests of a mutant in the forked process, and end the process with the result."""
    fate = _KILLED
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for function in changed:
            function.__code__ = code
        fate = _ALIVE
        for (item, seconds), following in zip_longest(order, order[1:]):
            os.write(progress, b".")
            used = time.process_time()
            limit = math.ceil(used + CPU_SECONDS_AT_LEAST + CPU_TIMES * seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following and following[0])
            if item.session.testsfailed:
                fate = _KILLED
                break
    except BaseException:  # a mutant that breaks the test runner itself counts as noticed
        fate = _KILLED
    finally:
        os._exit(fate)


def _wait_for_exit(child: int, wall_seconds: float) -> int:
    with contextlib.closing(os.fdopen(os.pidfd_open(child), "rb", closefd=True, buffering=0)) as watched:
        if not select.select([watched], [], [], wall_seconds)[0]:
            os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _functions(modules: set[str]) -> dict[tuple[str, str], list[FunctionType]]:
    """Every function object of these modules, by module and name, including properties and decorated functions."""
    found: defaultdict[tuple[str, str], list[FunctionType]] = defaultdict(list)
    for each in _live_objects(FunctionType):
        if each.__module__ in modules and Path(each.__code__.co_filename).is_relative_to(ROOT):
            found[each.__module__, each.__code__.co_qualname].append(each)
    return found


def _live_objects(kind: type[T]) -> Iterator[T]:
    return (each for each in gc.get_objects() if type(each) is kind)


def _clear_caches() -> None:
    """Clear the caches that earlier tests filled. Otherwise a mutant of a cached function would not be called."""
    for each in _live_objects(functools._lru_cache_wrapper):
        if getattr(each, "__module__", "") in sys.modules and str(each.__module__).partition(".")[0] not in _LIBRARIES:
            each.cache_clear()
