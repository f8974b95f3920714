"""Bugs in how decisions come into their topic."""

from __future__ import annotations

from typing import Any

import drivers.decisions.writer
from drivers.decisions.buffer import DecisionBuffer
from drivers.decisions.writer import DecisionWriter
from drivers.decisions.written import Written
from tests.seeded.bugs import Bug, Simulated, does, patched


def _at_once(drained: Any) -> Any:
    """The decisions are still written, if the process lives long enough."""

    async def returned(self: DecisionBuffer) -> None:
        if self._decisions:
            self._filled.set()

    return returned


def _below_the_newest(contains: Any) -> Any:
    return lambda self, offset: bool(self._recent) and offset <= max(self._recent)


def _one_too_few(decisions: Any) -> Any:
    def without_the_first(self: DecisionBuffer) -> Any:
        found = [*decisions(self)]
        return iter(found[1:] if len(found) > 1 else found)

    return without_the_first


def _of_the_next_record(key_of: Any) -> Any:
    return lambda at: key_of(at._replace(offset=at.offset + 1))


BUGS = (
    Bug(
        "saved-before-it-is-written",
        "a replica folds on and saves before its decisions stand in the topic",
        "I26",
        lambda: patched((DecisionBuffer, "drained", _at_once)),
        Simulated(1),
    ),
    Bug(
        "floor-too-high",
        "of a batch that landed in part all is taken as written, up to the newest",
        "I26",
        lambda: patched((Written, "__contains__", _below_the_newest)),
        Simulated(1),
    ),
    Bug(
        "resumed-too-late",
        "a writer leaves out the first decision of a slice, as if another had written it",
        "I26",
        lambda: patched((DecisionBuffer, "decisions", _one_too_few)),
        Simulated(1),
    ),
    Bug(
        "failed-append-forgotten",
        "an append of a decision that failed is not made again",
        "I26",
        lambda: patched((DecisionWriter, "_has_failed", does(False))),
        Simulated(1),
    ),
    Bug(
        "decision-about-another-record",
        "a decision has the key of the record behind its cause",
        "I26",
        lambda: patched((drivers.decisions.writer, "key_of", _of_the_next_record)),
        Simulated(1),
    ),
)
