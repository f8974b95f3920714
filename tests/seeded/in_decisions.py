"""Bugs in writing decisions to their topic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import drivers.decisions.writer
from drivers.decisions.buffer import DecisionBuffer
from drivers.decisions.writer import DecisionWriter
from drivers.decisions.written import Written
from tests.seeded.bugs import Bug, SimulatedScenario, patched, returns, short_plan
from tests.simulation.plan import Plan


def _does_not_wait_for_the_writer(drained: Any) -> Any:
    """Do not wait for the writer. The decisions are still written unless the process crashes."""

    async def returned(self: DecisionBuffer) -> None:
        if self._decisions:
            self._filled.set()

    return returned


def _written_up_to_the_newest(contains: Any) -> Any:
    return lambda self, offset: bool(self._recent) and offset <= max(self._recent)


def _skips_the_first_decision(decisions: Any) -> Any:
    def without_the_first(self: DecisionBuffer) -> Any:
        found = [*decisions(self)]
        return iter(found[1:] if len(found) > 1 else found)

    return without_the_first


def _key_of_the_next_record(key_of: Any) -> Any:
    return lambda at: key_of(at._replace(offset=at.offset + 1))


def _with_many_failed_appends(seed: int, faulty_s: float) -> Plan:
    """Of the appends, 5 % land after their caller got an error, and 10 % never land."""
    plan = short_plan(seed, faulty_s)
    return plan._replace(log=replace(plan.log, never=0.1, late=0.05))


BUGS = (
    Bug(
        "saved-before-it-is-written",
        "a replica continues to fold and saves its state before its decisions are in the topic",
        "I26",
        lambda: patched((DecisionBuffer, "drained", _does_not_wait_for_the_writer)),
        SimulatedScenario(1),
    ),
    Bug(
        "floor-too-high",
        "after a batch landed in part, every decision up to the newest one is taken as written",
        "I26",
        lambda: patched((Written, "__contains__", _written_up_to_the_newest)),
        SimulatedScenario(1, plan=_with_many_failed_appends, converges_within_s=60.0),
    ),
    Bug(
        "resumed-too-late",
        "a writer skips the first decision of a slice, as if another writer had written it",
        "I26",
        lambda: patched((DecisionBuffer, "decisions", _skips_the_first_decision)),
        SimulatedScenario(1),
    ),
    Bug(
        "failed-append-forgotten",
        "a failed append of a decision is not retried",
        "I26",
        lambda: patched((DecisionWriter, "_has_failed", returns(False))),
        SimulatedScenario(1, plan=_with_many_failed_appends, converges_within_s=60.0),
    ),
    Bug(
        "decision-about-another-record",
        "a decision has the key of the record after its cause",
        "I26",
        lambda: patched((drivers.decisions.writer, "key_of", _key_of_the_next_record)),
        SimulatedScenario(1),
    ),
)
