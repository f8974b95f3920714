"""All seeded bugs, and the verdict on one, from a run with the bug and a run without it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from typing import NamedTuple

from tests.seeded import (
    in_agreement,
    in_cliques,
    in_commands,
    in_decisions,
    in_devices,
    in_drivers,
    in_folds,
    in_kubernetes,
    in_lifecycles,
    in_resources,
    in_staging,
)
from tests.seeded.bugs import Bug, CleanReport, SimulatedScenario, SteppedScenario
from tests.simulation.checkers import INVARIANTS

BUGS: tuple[Bug, ...] = (
    *in_commands.BUGS,
    *in_cliques.BUGS,
    *in_folds.BUGS,
    *in_agreement.BUGS,
    *in_lifecycles.BUGS,
    *in_drivers.BUGS,
    *in_devices.BUGS,
    *in_decisions.BUGS,
    *in_kubernetes.BUGS,
    *in_resources.BUGS,
    *in_staging.BUGS,
)


SEEDS_MAX = 8

AT_REST = frozenset(invariant.id for invariant in INVARIANTS if invariant.at_rest)
"""The invariants whose checkers may report a plane that has not come to rest yet, also without a bug."""


class Verdict(NamedTuple):
    """The verdict on one bug. `caught_by` are all violated invariants. `clean` has the faults without the bug; None if
    no comparable seed was found.
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
    def is_caught(self) -> bool:
        """Whether the checker for the bug caught it, and no checker finds a fault without the bug."""
        return self.expected in self.caught_by and self.clean == ()


def judge(bug: Bug) -> Verdict:
    """Run the scenario of a bug with and without the bug, for successive seeds until one shows the bug."""
    logging.disable(logging.CRITICAL)
    began = time.perf_counter()
    found: list[str] = []
    clean: tuple[str, ...] | None = None
    for seed in range(bug.scenario.seed, bug.scenario.seed + SEEDS_MAX):
        scenario = bug.scenario._replace(seed=seed)
        with bug.plant():
            found = scenario.faults()
        if any(fault.startswith(f"{bug.caught_by}:") for fault in found):
            clean_report = _clean_report_of(scenario)
            if clean_report.rested_in_time or bug.caught_by not in AT_REST:
                clean = clean_report.faults
                break
    caught = tuple(sorted({fault.split(":")[0] for fault in found}))
    first = next((fault for fault in found if fault.startswith(f"{bug.caught_by}:")), "")
    lane = "simulated" if isinstance(bug.scenario, SimulatedScenario) else "stepped"
    seconds = time.perf_counter() - began
    return Verdict(bug.name, bug.caught_by, caught, first, clean, lane, seed, seconds)


_clean_reports: dict[tuple[object, ...], CleanReport] = {}


def _clean_report_of(scenario: SteppedScenario | SimulatedScenario) -> CleanReport:
    """The report of a run without the bug, cached per process."""
    key = type(scenario).__name__, *scenario
    if key not in _clean_reports:
        _clean_reports[key] = scenario.clean_report()
    return _clean_reports[key]


def judge_all(bugs: Sequence[Bug], processes: int) -> Iterator[Verdict]:
    """Judge every bug in a separate process, so that bugs cannot interact. Verdicts come in the order of the bugs."""
    names = [bug.name for bug in bugs]
    if processes == 1:
        yield from map(judge, bugs)
        return
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(_judge_named, names)


def _judge_named(name: str) -> Verdict:
    return judge(next(bug for bug in BUGS if bug.name == name))
