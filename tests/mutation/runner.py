"""A pytest plugin that runs the tests once, recording which reach which line, and then the tests that reach each
mutant.

Each mutant runs in a fork that stops at its first failure. The test that killed the last mutant of a function runs
first, then the quickest tests. A fork has a budget of processor time for each test, computed from the test's time
without mutants, so a busy machine kills no mutant; a fork that sleeps is stopped by the clock.
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
# Their caches hold what they compiled, not what a fold answered.
_LIBRARIES = {"hypothesis", "typing", "re", "functools"}

T = TypeVar("T")
Seen = Callable[[Mutant, str, str], None]


@dataclass(slots=True)
class Reach:
    """The tests that run a line or a function, and the duration of each."""

    seconds: dict[str, float] = field(default_factory=dict)
    by_line: dict[str, dict[int, set[str]]] = field(default_factory=dict)

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests of the line, quickest first, or those of the function where no line is recorded for the change."""
        lines = self.by_line.get(mutant.path, {})
        first, last = mutant.lines
        found = lines.get(mutant.line) if mutant.line > first else None
        if not found:
            found = set().union(*(lines.get(line, set()) for line in range(first, last + 1)))
        return sorted(found, key=lambda test: (self.seconds[test], test))


class Runner:
    """`seen` is called with every mutant: killed, timeout, survived or unreached, and by which test."""

    def __init__(self, mutants: Sequence[Mutant], seen: Seen) -> None:
        self._mutants = mutants
        self._seen = seen
        self._killers: defaultdict[tuple[str, str], list[str]] = defaultdict(list)

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("the tests cannot be collected")
        items = {item.nodeid: item for item in session.items}
        reach = self._all_is_well(session, items)
        _forget_answers()
        functions = _functions({mutant.module for mutant in self._mutants})
        gc.collect()
        gc.freeze()
        for mutant in self._mutants:
            tests = reach.tests(mutant)
            code = mutant.compiled()
            changed = functions.get((mutant.module, mutant.function), [])
            if code is None or not changed or not tests:
                self._seen(mutant, "unreached", "")
                continue
            first = [test for test in self._killers[mutant.path, mutant.function] if test in tests]
            order = [*first, *(test for test in tests if test not in first)]
            self._seen(
                mutant, *self._try(mutant, [(items[test], reach.seconds[test]) for test in order], changed, code)
            )
        return True

    def _all_is_well(self, session: pytest.Session, items: dict[str, pytest.Item]) -> Reach:
        reach, broken = Reach(), set[str]()
        paths = sorted({mutant.path for mutant in self._mutants})
        watch = coverage.Coverage(data_file=None, config_file=False, include=[str(ROOT / path) for path in paths])
        watch.start()
        for (test, item), following in zip_longest(items.items(), list(items.values())[1:]):
            watch.switch_context(test)
            before, failed = time.process_time(), session.testsfailed
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            reach.seconds[test] = time.process_time() - before
            if session.testsfailed > failed:
                broken.add(test)
        watch.stop()
        if broken:
            print(f"\nleft out, since they fail with nothing changed: {', '.join(sorted(broken))}", file=sys.stderr)
        session.testsfailed = 0
        data = watch.get_data()
        for path in paths:
            contexts = data.contexts_by_lineno(str(ROOT / path))
            reach.by_line[path] = {line: set(tests) - {""} - broken for line, tests in contexts.items()}
        return reach

    def _try(
        self, mutant: Mutant, order: list[tuple[pytest.Item, float]], changed: list[FunctionType], code: CodeType
    ) -> tuple[str, str]:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            _live(order, changed, code, write)
        os.close(write)
        status = _ended(child, WALL_SECONDS_MAX + CPU_TIMES * sum(seconds for _, seconds in order))
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


def _live(order: list[tuple[pytest.Item, float]], changed: list[FunctionType], code: CodeType, begun: int) -> None:
    """Run a mutant in a process of its own, which ends here."""
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
            os.write(begun, b".")
            used = time.process_time()
            limit = math.ceil(used + CPU_SECONDS_AT_LEAST + CPU_TIMES * seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following and following[0])
            if item.session.testsfailed:
                fate = _KILLED
                break
    except BaseException:  # any exception of a mutant in the test runner itself counts as noticed
        fate = _KILLED
    finally:
        os._exit(fate)


def _ended(child: int, wall_seconds: float) -> int:
    with contextlib.closing(os.fdopen(os.pidfd_open(child), "rb", closefd=True, buffering=0)) as watched:
        if not select.select([watched], [], [], wall_seconds)[0]:
            os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _functions(modules: set[str]) -> dict[tuple[str, str], list[FunctionType]]:
    """Every function object of some modules, by module and name, including properties and decorated functions."""
    found: defaultdict[tuple[str, str], list[FunctionType]] = defaultdict(list)
    for each in _living(FunctionType):
        if each.__module__ in modules and Path(each.__code__.co_filename).is_relative_to(ROOT):
            found[each.__module__, each.__code__.co_qualname].append(each)
    return found


def _living(kind: type[T]) -> Iterator[T]:
    return (each for each in gc.get_objects() if type(each) is kind)


def _forget_answers() -> None:
    """Clear caches filled by earlier tests: otherwise the mutant would not be called."""
    for each in _living(functools._lru_cache_wrapper):
        if getattr(each, "__module__", "") in sys.modules and str(each.__module__).partition(".")[0] not in _LIBRARIES:
            each.cache_clear()
