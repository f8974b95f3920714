"""Metrics of the calls of a server: counts by method and outcome, durations, and refusals by field.

All label values come from outside, so all are bounded: methods and outcomes are those of the API, and the label of a
refusal is the field at the start of its sentence, with a maximum number of distinct fields.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from itertools import accumulate

from google.protobuf.message import Message

from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import outcome_name

BUCKET_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets of call durations; the last bucket has no bound."""

REASONS_MAX = 100
OTHER = "other"

_OUTCOMES = {number: outcome_name(number) for number in pb.Outcome.values()}
_FIELD = re.compile(r"[a-z][a-z_]{0,39}").match


class DurationHistogram:
    """A histogram of seconds with the buckets of BUCKET_BOUNDS_S."""

    __slots__ = ("_counts", "sum_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKET_BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count a call of this duration."""
        self._counts[bisect_left(BUCKET_BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def cumulative_counts(self) -> list[int]:
        """Counts of calls up to each of BUCKET_BOUNDS_S, and the count of all calls."""
        return list(accumulate(self._counts))


class RpcMetrics:
    """Calls that have ended, by (method, outcome); refusals by field.

    The outcome of a command is that of its result, and the outcome of a query is ok. The outcome of a failed call is
    the name of its gRPC status.
    """

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.durations: dict[str, DurationHistogram] = {}
        self.refusals: Counter[str] = Counter()

    def record_result(self, method: str, answer: Message, seconds: float) -> None:
        """Count a call that returned a result."""
        if isinstance(answer, pb.CommandResult):
            outcome = _OUTCOMES[answer.outcome]
            if answer.outcome == pb.OUTCOME_REFUSED:
                self.record_refusal(answer.reason)
        else:
            outcome = "ok"
        self._end(method, outcome, seconds)

    def record_error(self, method: str, status: str, reason: str, seconds: float) -> None:
        """Count a call that ended in an error."""
        self.record_refusal(reason)
        self._end(method, status, seconds)

    def record_stream(self, method: str, seconds: float) -> None:
        """Count the end of a response stream."""
        self._end(method, "ok", seconds)

    def record_refusal(self, reason: str) -> None:
        """Count a refusal by the field in this sentence."""
        match = _FIELD(reason)
        about = match[0] if match else OTHER
        self.refusals[about if about in self.refusals or len(self.refusals) < REASONS_MAX else OTHER] += 1

    def _end(self, method: str, outcome: str, seconds: float) -> None:
        self.calls[method, outcome] += 1
        durations = self.durations.get(method)
        if durations is None:
            durations = self.durations[method] = DurationHistogram()
        durations.observe(seconds)
