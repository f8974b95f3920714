"""Visits that a provisioner began too early for the log, because the clock of its host is ahead of the log's.

The fold compares the time of a visit with the append time of its start, and refuses a start that is too early. The time
that is left follows from the fold time; until it has passed on the loop's clock, the provisioner leaves the DPU alone.
Without this wait it would append a refused start every few seconds, for as long as its clock is ahead.
"""

from __future__ import annotations

from eventstore.log import Partition
from projections.zones.dpus.certificates import visit_ms
from projections.zones.rows import Dpu


class EarlyVisits:
    """The refused visits of DPUs, by partition and name: the time of the visit, and the end of the wait for it."""

    def __init__(self) -> None:
        self._waits: dict[tuple[Partition, str], tuple[int, float]] = {}

    def refused(
        self, partition: Partition, name: str, dpu: Dpu, *, log_ms: int, now_s: float, longest_s: float
    ) -> None:
        """The fold, at the time `log_ms`, has not taken the start of this visit."""
        self._waits = {key: wait for key, wait in self._waits.items() if wait[1] > now_s}
        at_ms = visit_ms(name, dpu)
        if at_ms is not None and at_ms > log_ms:
            self._waits[partition, name] = at_ms, now_s + min((at_ms - log_ms) / 1_000, longest_s)

    def left_s(self, partition: Partition, name: str, dpu: Dpu, now_s: float) -> float:
        """The time until this visit may be tried again. A visit at another time, as after a retry, does not wait."""
        at_ms, until_s = self._waits.get((partition, name), (None, 0.0))
        return max(0.0, until_s - now_s) if at_ms is not None and at_ms == visit_ms(name, dpu) else 0.0
