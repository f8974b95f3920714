"""The Events that wait for a write: one entry per Event, and few writes per object.

The limits are those of client-go's EventCorrelator, so a cluster sees no more of this plane than of any controller. An
object gets a burst of Events, then one per refill. An occurrence that the limit stops still counts: the next write of
its Event includes it. A full queue drops new Events, and the number of dropped ones is a metric.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from projections.kubernetes.object_events import ObjectEvent

BURST = 25
"""Number of writes that an object may cause at once."""
REFILL_MS = 300_000
"""Time after which an object may cause one more write."""
MAX_OBJECTS = 4_096
"""Maximum number of objects whose limit is remembered. A forgotten object starts with a new burst."""
MAX_PENDING = 4_096
"""Maximum number of Events that wait for a write."""
MAX_KNOWN = 8_192
"""Maximum number of Events whose count is remembered. A forgotten Event is read from the API server when it occurs
again."""
ATTEMPTS = 6
"""Number of failed writes after which an Event is given up."""


@dataclass(eq=False, slots=True)
class Tally:
    """An Event as it occurred last, with its occurrences. `written` is the count that the API server has, 0 if it lacks
    the Event. `tried` is the count of a creation whose outcome is not known."""

    event: ObjectEvent
    first_ms: int
    last_ms: int
    count: int = 1
    written: int = 0
    tried: int = 0
    failed: int = 0


@dataclass(slots=True)
class _Allowance:
    """The writes that an object may still cause, as of a time."""

    writes: float
    as_of_ms: int


@dataclass
class QueueCounts:
    """Occurrences since the start that caused no write of their own."""

    merged: int = 0
    """Number of occurrences whose Event was waiting for a write already."""
    limited: int = 0
    """Number of occurrences whose object had reached its limit."""
    dropped: int = 0
    """Number of occurrences that were dropped, because the queue was full."""


class EventQueue:
    """Events in the order of their arrival. `on_put` is called when an Event begins to wait."""

    def __init__(self) -> None:
        self.counts = QueueCounts()
        self.on_put: Callable[[], None] = lambda: None
        self._known: dict[str, Tally] = {}
        """By the name of the Event, the least recently used first."""
        self._pending: dict[str, None] = {}
        self._allowances: dict[str, _Allowance] = {}
        """By the uid of the object, the least recently used first."""

    @property
    def pending(self) -> int:
        """Number of Events that wait for a write."""
        return len(self._pending)

    @property
    def known(self) -> int:
        """Number of Events whose count is remembered."""
        return len(self._known)

    def put(self, event: ObjectEvent, now_ms: int) -> None:
        """Record an occurrence of an Event."""
        name = event.name
        is_pending = name in self._pending
        if not is_pending and len(self._pending) >= MAX_PENDING:
            self.counts.dropped += 1
            return
        tally = self._known.pop(name, None)
        if tally is None:
            tally = Tally(event, now_ms, now_ms)
        else:
            tally.event = event  # the newest message
            tally.count += 1
            tally.last_ms = max(tally.last_ms, now_ms)
        self._known[name] = tally
        self._forget_oldest()
        if is_pending:
            self.counts.merged += 1
        elif self._may_write(event.regarding.uid, now_ms):
            self._wait(tally)
        else:
            self.counts.limited += 1

    def take(self) -> Tally | None:
        """Remove and return the Event that has waited longest. None if no Event waits."""
        name = next(iter(self._pending), None)
        if name is None:
            return None
        del self._pending[name]
        return self._known[name]

    # -- the outcome of a write

    def wrote(self, tally: Tally, count: int) -> None:
        """The API server has the Event with this count."""
        tally.written, tally.tried, tally.failed = count, 0, 0

    def found(self, tally: Tally, count: int) -> None:
        """The API server has the Event already, with this count. If another process wrote it, its count already
        includes the first occurrence of this process, because a restarted process reports everything again. Later
        occurrences wait for a write."""
        if count > tally.tried:
            tally.count += count - 1
        self.wrote(tally, count)
        if tally.count > tally.written:
            self._wait(tally)

    def vanished(self, tally: Tally) -> None:
        """The API server no longer has the Event, because Events expire: it waits to be created again."""
        tally.written = 0
        self._wait(tally)

    def retry(self, tally: Tally, *, is_counted: bool) -> bool:
        """Wait again after a failed write, behind the others. Returns False if the Event was given up instead: its
        attempts are used up."""
        tally.failed += is_counted
        if tally.failed >= ATTEMPTS:
            self.give_up(tally)
            return False
        self._wait(tally)
        return True

    def give_up(self, tally: Tally) -> None:
        """Forget an Event; its next occurrence is a new one."""
        name = tally.event.name
        if self._known.get(name) is tally:
            del self._known[name]
            self._pending.pop(name, None)

    # -- bounds

    def _wait(self, tally: Tally) -> None:
        name = tally.event.name
        if self._known.setdefault(name, tally) is tally and name not in self._pending:
            self._pending[name] = None
            self.on_put()

    def _may_write(self, uid: str, now_ms: int) -> bool:
        allowance = self._allowances.pop(uid, None) or _Allowance(BURST, now_ms)
        passed_ms = max(0, now_ms - allowance.as_of_ms)
        allowance.writes = min(BURST, allowance.writes + passed_ms / REFILL_MS)
        allowance.as_of_ms = max(allowance.as_of_ms, now_ms)
        self._allowances[uid] = allowance
        if len(self._allowances) > MAX_OBJECTS:
            del self._allowances[next(iter(self._allowances))]
        if allowance.writes < 1:
            return False
        allowance.writes -= 1
        return True

    def _forget_oldest(self) -> None:
        """Forget the least recently used Events over the maximum. An Event that waits for a write is not forgotten: it
        becomes the most recently used one."""
        while len(self._known) > MAX_KNOWN:
            name = next(iter(self._known))
            tally = self._known.pop(name)
            if name in self._pending:
                self._known[name] = tally
