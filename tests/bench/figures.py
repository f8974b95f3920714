"""A figure: a measured value, the peer's value from the same run, and its aim."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple


class Figure(NamedTuple):
    """`peer` is the peer's value in the same unit and run, `peer_name` its name. `aim` is met by `better` values.

    A ratio above 1 is in favour of the plane, whichever direction is better.
    """

    name: str
    value: float
    unit: str
    peer: float | None = None
    peer_name: str = ""
    aim: float | None = None
    better: Literal["higher", "lower"] = "higher"

    @property
    def ratio(self) -> float | None:
        if self.peer is None or not self.peer or not self.value:
            return None
        return self.value / self.peer if self.better == "higher" else self.peer / self.value

    @property
    def met(self) -> bool | None:
        if self.aim is None:
            return None
        return self.value >= self.aim if self.better == "higher" else self.value <= self.aim

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "peer": self.peer,
            "peer_name": self.peer_name,
            "ratio": self.ratio,
            "aim": self.aim,
            "met": self.met,
        }


def median_seconds(work: Callable[[], object], *, runs: int = 5) -> float:
    """The median CPU time of `work`, which must not wait, after one run to warm up.

    On a quiet machine this equals the elapsed time; on a busy one it still is the cost of the work.
    """
    work()
    taken = []
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of unsorted values; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def machine_speed(runs: int = 5) -> float:
    """Millions of steps a second of a fixed loop of Python: figures of two days compare only with it."""
    fastest_s = float("inf")
    for _ in range(runs):
        total, start = 0, time.process_time()
        for step in range(1_000_000):
            total ^= step * step
        fastest_s = min(fastest_s, time.process_time() - start)
    return 1 / fastest_s
