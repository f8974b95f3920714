"""Failures that a user injects into simulated BMCs, to watch retries, backoff and Error without hardware.

The syntax is STEP:KIND:TIMES or STEP:KIND:TIMES:DPU. The failure ends the first TIMES attempts at a step, of one DPU or
of each DPU, before the device starts an action. Only `simulated_bmc` reads it: a real BMC has no such call.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from drivers.backends.bmc import NeedsOperator, TaskFailed, Unreachable
from projections.attempt_limits import FAILURE_KINDS, MAX_ATTEMPT_LIMIT
from projections.field_checks import check_name, quoted
from projections.zones.dpus.phases import STEP_NAMES

logger = logging.getLogger(__name__)

FORM = "STEP:KIND:TIMES[:DPU]"
MAX_FAILURES = 1_000

_ERRORS = {"transient": Unreachable, "device": TaskFailed, "operator": NeedsOperator}


class Failure(NamedTuple):
    """A failure of the first `times` attempts at a step. An empty `dpu` stands for every simulated DPU."""

    step: str
    kind: str
    times: int
    dpu: str = ""

    def __str__(self) -> str:
        return ":".join([self.step, self.kind, str(self.times), *filter(None, [self.dpu])])


def parse_failures(field: str, text: str) -> tuple[Failure, ...]:
    """Parse a list STEP:KIND:TIMES[:DPU],... Raises ValueError with a sentence that names the field."""
    words = text.split(",") if text else []
    if len(words) > MAX_FAILURES:
        raise ValueError(f"{field}: {len(words)} failures are more than the {MAX_FAILURES} allowed")
    return tuple(_parse(field, word.strip()) for word in words)


def _parse(field: str, word: str) -> Failure:
    parts = word.split(":")
    if not 3 <= len(parts) <= 4:
        raise ValueError(f"{field}: {quoted(word)} must have the form {FORM}, as in install:transient:3")
    step, kind, times, *dpu = parts
    if step not in STEP_NAMES:
        raise ValueError(f"{field}: step {quoted(step)} must be one of {', '.join(STEP_NAMES)}")
    if kind not in FAILURE_KINDS:
        raise ValueError(f"{field}: kind {quoted(kind)} must be one of {', '.join(FAILURE_KINDS)}")
    if not (times.isascii() and times.isdigit() and len(times) <= 3 and 1 <= int(times) <= MAX_ATTEMPT_LIMIT):
        raise ValueError(f"{field}: times {quoted(times)} must be a number from 1 to {MAX_ATTEMPT_LIMIT}")
    if dpu and (fault := check_name("DPU", dpu[0])):
        raise ValueError(f"{field}: {fault}")
    return Failure(step, kind, int(times), *dpu)


class InjectedFailures:
    """The remaining failures for one simulated DPU, in their given order."""

    def __init__(self, dpu: str, failures: Iterable[Failure] = ()) -> None:
        self._dpu = dpu
        self._failures = [failure for failure in failures if failure.dpu in ("", dpu)]
        self._done = [0] * len(self._failures)

    def check(self, step: str) -> None:
        """Raise Unreachable, TaskFailed or NeedsOperator if this attempt at the step must fail."""
        for number, failure in enumerate(self._failures):
            if failure.step == step and self._done[number] < failure.times:
                self._done[number] += 1
                count = f"{self._done[number]} of {failure.times}"
                about = {"dpu": self._dpu, "step": step, "kind": failure.kind, "count": count}
                logger.warning("failure injected into a simulated DPU", extra=about)
                raise _ERRORS[failure.kind](f"simulated: injected {failure.kind} failure of {step}, {count}")
