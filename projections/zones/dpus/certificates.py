"""When the certificates of the devices of Ready DPUs are renewed, as it follows from the facts that devices reported.

A device is visited once between 30 and 15 days before the day on which its certificate ends. The time within these 15
days follows from a hash of the DPU's name and of that day, so that devices which got their certificates together are
renewed one by one. A DPU of which only the authority is known is visited within 15 days after it became Ready.

A visit that its provisioner did not end, because it died or its zone was frozen, is no failure: the next one begins
after the wait of a first failure. The end of the certificate is then the only bound, and a metric of the plane.

A fold knows the day only. The installer also knows for how long the certificate is valid, and leaves it alone if it is
not time yet; the next visit is a day later.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import blake2b

from eventstore.backoff import backoff_ceiling
from projections.zones.dpus.install_interfaces import has_renewals
from projections.zones.dpus.phases import READY
from projections.zones.rows import Dpu

CERTIFICATE_FACT = "bmc_certificate"
"""The fact of a DPU that says which certificate its BMC has: AUTHORITY, or the SHA-256 of one that is pinned."""
AUTHORITY = "of the authority"
ENDS_FACT = "bmc_certificate_ends"
"""The fact of a DPU with the day, in UTC, on which the certificate of its BMC or management service ends; empty for a
certificate that another program renews every few days."""

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
EARLIEST_MS, LATEST_MS = 30 * DAY_MS, 15 * DAY_MS
"""The longest and the shortest time from the first visit until the day on which the certificate ends."""
VISIT_EVERY_MS = DAY_MS
"""Time from a visit to the next one, while the certificate is still the same."""
FIRST_RETRY_MS, LONGEST_RETRY_MS = HOUR_MS // 6, DAY_MS
FAILURES_MAX = 60
"""Failed visits in a row after which the plane waits for a person: from 26 to 53 days of them."""
FAILURES_UNTIL_STUCK = 8
"""Failed visits in a row from which on a DPU counts as one that needs a person: after 10 to 21 hours of them."""

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def end_ms(dpu: Dpu) -> int | None:
    """The begin of the day on which the certificate of a DPU's device ends; None if it is not known.

    A day before 1970-01-02, as devices without a clock write it, counts as the first millisecond of 1970: the
    certificate has ended, and 0 means that no end is known.
    """
    text = dpu.facts.get(ENDS_FACT, "")
    if _DAY.fullmatch(text) is None:
        return None
    try:
        return max(1, int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000)
    except ValueError:
        return None


def visit_ms(name: str, dpu: Dpu) -> int | None:
    """The time of the next visit to the device of a Ready DPU; None if there is none."""
    if dpu.phase != READY or dpu.step_state != "idle" or dpu.paused or dpu.failures >= FAILURES_MAX:
        return None
    if not has_renewals(dpu.bmc_address):
        return None
    ends_ms = end_ms(dpu)
    if ends_ms is not None:
        return max(ends_ms - EARLIEST_MS + _spread_ms(name, ends_ms), dpu.not_before_ms)
    if ENDS_FACT in dpu.facts or dpu.facts.get(CERTIFICATE_FACT) != AUTHORITY:
        return None
    return max(dpu.since_ms + _spread_ms(name, dpu.since_ms), dpu.not_before_ms)


def retry_ms(name: str, attempt: int, failures: int, *, needs_operator: bool) -> int:
    """The time from a failed visit to the next one: half of a ceiling that doubles from 10 minutes to a day with each
    failure, plus a share of the other half. A failure that needs a person is tried again after 12 to 24 hours."""
    ceiling_ms = backoff_ceiling(failures - 1, FIRST_RETRY_MS, LONGEST_RETRY_MS)
    half_ms = (LONGEST_RETRY_MS if needs_operator else ceiling_ms) // 2
    return half_ms + _drawn(f"{name}/{attempt}") % half_ms + 1


def _spread_ms(name: str, seed: int) -> int:
    return _drawn(f"{name}/{seed}") % (EARLIEST_MS - LATEST_MS)


def _drawn(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


class Visits:
    """The next visits to the devices of Ready DPUs, by day, and the days in order."""

    def __init__(self) -> None:
        self._days: list[int] = []
        self._by_day: dict[int, dict[str, int]] = {}

    def add(self, name: str, dpu: Dpu) -> None:
        at_ms = visit_ms(name, dpu)
        if at_ms is None:
            return
        day = at_ms // DAY_MS
        if day not in self._by_day:
            self._by_day[day] = {}
            insort(self._days, day)
        self._by_day[day][name] = at_ms

    def discard(self, name: str, dpu: Dpu) -> None:
        at_ms = visit_ms(name, dpu)
        if at_ms is None:
            return
        day = at_ms // DAY_MS
        del self._by_day[day][name]
        if not self._by_day[day]:
            del self._by_day[day]
            self._days.remove(day)

    def due(self, now_ms: int) -> Iterator[str]:
        """The DPUs whose visit is due, in the order of days."""
        return (name for name, at_ms in self._until(now_ms // DAY_MS) if at_ms <= now_ms)

    def next_ms(self, now_ms: int) -> int | None:
        """The time of the first visit that is not due yet; None if there is none. Days that are over have none."""
        today = now_ms // DAY_MS
        later = (at_ms for at_ms in self._by_day.get(today, {}).values() if at_ms > now_ms)
        first = min(later, default=None)
        if first is not None:
            return first
        place = bisect_right(self._days, today)
        return min(self._by_day[self._days[place]].values()) if place < len(self._days) else None

    def all(self) -> Iterator[tuple[str, int]]:
        """All visits with their times, in the order of days."""
        return self._until(self._days[-1]) if self._days else iter(())

    def _until(self, last: int) -> Iterator[tuple[str, int]]:
        for day in self._days:
            if day > last:
                return
            yield from self._by_day[day].items()
