"""All seeded bugs, and the verdict on one: planted, run, and run again without it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from typing import NamedTuple

from tests.seeded import in_agreement, in_cliques, in_commands, in_decisions, in_drivers, in_folds, in_lifecycles
from tests.seeded.bugs import Bug, Simulated, Sound, Stepped
from tests.simulation.checkers import INVARIANTS

BUGS: tuple[Bug, ...] = (
    *in_commands.BUGS,
    *in_cliques.BUGS,
    *in_folds.BUGS,
    *in_agreement.BUGS,
    *in_lifecycles.BUGS,
    *in_drivers.BUGS,
    *in_decisions.BUGS,
)


SEEDS_MAX = 8

AT_REST = frozenset(invariant.id for invariant in INVARIANTS if invariant.at_rest)
"""Their checkers may find fault with a sound plane that has not come to rest yet."""


class Verdict(NamedTuple):
    """The verdict on one bug. `caught_by` are all invariants that failed; `clean` is the report without the bug, None
    if no comparable seed was found.
    """

    bug: str
    expected: str
    caught_by: tuple[str, ...]
    first: str
    clean: tuple[str, ...] | None
    lane: str
    seed: int
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether the checker for the bug caught it, and finds no fault in the sound plane."""
        return self.expected in self.caught_by and self.clean == ()


def judge(bug: Bug) -> Verdict:
    """Plant a bug and run the scenario that shows it, with and without the bug; from its seed on, until a seed shows
    it.
    """
    logging.disable(logging.CRITICAL)
    began = time.perf_counter()
    found: list[str] = []
    clean: tuple[str, ...] | None = None
    for seed in range(bug.shown.seed, bug.shown.seed + SEEDS_MAX):
        shown = bug.shown._replace(seed=seed)
        with bug.plant():
            found = shown.faults()
        if any(fault.startswith(f"{bug.caught_by}:") for fault in found):
            sound = _sound(shown)
            if sound.in_time or bug.caught_by not in AT_REST:
                clean = sound.faults
                break
    caught = tuple(sorted({fault.split(":")[0] for fault in found}))
    first = next((fault for fault in found if fault.startswith(f"{bug.caught_by}:")), "")
    lane = "simulated" if isinstance(bug.shown, Simulated) else "stepped"
    seconds = time.perf_counter() - began
    return Verdict(bug.name, bug.caught_by, caught, first, clean, lane, seed, seconds)


_judged: dict[tuple[object, ...], Sound] = {}


def _sound(shown: Stepped | Simulated) -> Sound:
    """The run without the bug, made once per process."""
    key = type(shown).__name__, *shown
    if key not in _judged:
        _judged[key] = shown.sound()
    return _judged[key]


def judge_all(bugs: Sequence[Bug], processes: int) -> Iterator[Verdict]:
    """Judge every bug in a separate process, so that bugs cannot interact; in their order."""
    names = [bug.name for bug in bugs]
    if processes == 1:
        yield from map(judge, bugs)
        return
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(_judge_named, names)


def _judge_named(name: str) -> Verdict:
    return judge(next(bug for bug in BUGS if bug.name == name))
