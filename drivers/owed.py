"""Decisions of one partition on their way into the decisions topic: kept until they are known to stand there.

Folding tells us and goes on; what costs something (reading a run's records, spelling, encoding) is done when a decision
is taken out to be written. What is kept is bounded. Beyond the bound only the range of offsets is remembered, and after
a restart there is only such a range: whoever writes folds it afresh (drivers/decisions.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from eventstore.codec import decode
from eventstore.fold import DONE, At, Outcome
from eventstore.listening import Ruling, RunRuling

KEPT_BYTES = 32 << 20
"""Size of the records whose decisions are kept, of all partitions together: what a burst of half a million joins has.
In memory each byte is four or five."""

KEPT_RECORDS = 10_000
"""Records whose decisions are kept, per partition."""

TAKEN_BYTES = 1 << 20
"""Size of the records whose decisions are taken out together, but for the last: callers wait behind what is written."""

SEEN_MAX = 20_000
"""Offsets remembered as written by others before we have folded up to them."""


class Gap(NamedTuple):
    """Decisions of the records from `start` to before `end` may be missing."""

    start: int
    end: int


class Kept(NamedTuple):
    """A decision whose event is not decoded: that takes five times the memory of its record."""

    value: bytes
    change: Any
    outcome: Outcome
    at: At
    version: int

    def ruling(self) -> Ruling:
        """As it was told."""
        return Ruling(decode(self.value), self.change, self.outcome, self.at, self.version, self.value)


class Room:
    """What the partitions of a process may keep together: a burst goes through fleet, and leaves the others empty."""

    def __init__(self, size_bytes: int = KEPT_BYTES) -> None:
        self.left_bytes = size_bytes


class Owed:
    """A Listener of one partition. `written` counts what was acknowledged."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.gap: Gap | None = None
        self.written = 0
        self._is_restored = False
        self._heard: deque[Kept | RunRuling] = deque()
        self._again: deque[Ruling] = deque()
        self._out: dict[int, Ruling] = {}
        self._seen: set[int] = set()
        self._records = 0

    # -- told by the fold

    def ruled(self, ruling: Ruling | RunRuling) -> None:
        kept = ruling if isinstance(ruling, RunRuling) else _kept(ruling)
        count, size = _cost(kept)
        if self._records + count > KEPT_RECORDS or size > self._room.left_bytes:
            first, last = _range(kept)
            self.miss(Gap(first, last + 1))
            return
        self._heard.append(kept)
        self._records += count
        self._room.left_bytes -= size

    def owes_from(self, position: int) -> int:
        firsts = [position, *self._out]
        if self.gap is not None:
            firsts.append(self.gap.start)
        if self._heard:
            firsts.append(_range(self._heard[0])[0])
        firsts += (ruling.at.offset for ruling in self._again)  # in no order: some are put back, some made again
        return min(firsts)

    def restored(self, owed_from: int, position: int) -> None:
        self._is_restored = True
        if owed_from < position:
            self.gap = Gap(owed_from, position)

    # -- asked by whoever writes

    @property
    def has_room(self) -> bool:
        """Whether decisions that were made again may be added."""
        return len(self._again) < KEPT_RECORDS // 10

    def miss(self, gap: Gap) -> None:
        """These have to be made again."""
        known = self.gap or gap
        self.gap = Gap(min(known.start, gap.start), max(known.end, gap.end))

    def made_again(self, rulings: Iterable[Ruling], position: int) -> None:
        """What of the gap was folded again, up to before this position."""
        if self.gap is None:
            return
        start, end = self.gap
        self._again += (ruling for ruling in rulings if start <= ruling.at.offset < end)
        self.gap = Gap(max(start, position), end) if position < end else None

    def known_before(self, offset: int) -> None:
        """Decisions of records before this offset stand in the topic, but for gaps of whoever wrote them.

        Our own gap of an earlier life stays: who has saved one sees to it.
        """
        while (found := self._first()) is not None and found.at.offset < offset:
            self._drop()
        if self.gap is not None and not self._is_restored:
            start, end = self.gap
            self.gap = Gap(max(start, offset), end) if offset < end else None

    def seen(self, offset: int, position: int) -> None:
        """Somebody's decision of this record stands in the topic; we have folded up to before `position`."""
        if len(self._seen) >= SEEN_MAX:
            least = self.owes_from(position)
            self._seen = {known for known in self._seen if known >= least}
        if len(self._seen) < SEEN_MAX and offset not in self._out:
            self._seen.add(offset)

    def take(self, count: int, before_ms: int | None) -> list[Ruling]:
        """The next decisions to write, of records appended up to `before_ms`, if given; `done` has to follow."""
        taken: list[Ruling] = []
        while not is_full(taken, count) and (first := self._first()) is not None:
            offset = first.at.offset
            if offset in self._seen:
                self._seen.discard(offset)
                self._drop()
            elif before_ms is None or first.at.append_ms <= before_ms:
                self._drop()
                taken.append(first if isinstance(first, Ruling) else first.ruling())
            else:
                break
        self._out.update((ruling.at.offset, ruling) for ruling in taken)
        return taken

    def done(self, taken: Iterable[Ruling]) -> None:
        """These, which were taken, are written, but for what was put back before."""
        for ruling in taken:
            self.written += self._out.pop(ruling.at.offset, None) is not None

    def put_back(self, taken: Sequence[Ruling]) -> None:
        """These may not be written: they come out again, first."""
        for ruling in reversed(taken):
            self._again.appendleft(self._out.pop(ruling.at.offset))

    def waits(self) -> bool:
        """Whether anything is to be written sooner or later."""
        return bool(self._again or self._heard)

    def _first(self) -> Ruling | Kept | None:
        if self._again:
            return self._again[0]
        if not self._heard:
            return None
        if isinstance(first := self._heard[0], RunRuling):
            self._heard.popleft()
            self._heard.extendleft(reversed([*_kept_of(first)]))
        found = self._heard[0]
        assert isinstance(found, Kept), "a run is never empty"
        return found

    def _drop(self) -> None:
        if self._again:
            self._again.popleft()
            return
        count, size = _cost(self._heard.popleft())
        self._records -= count
        self._room.left_bytes += size


def is_full(taken: Sequence[Ruling], count: int) -> bool:
    """Whether these are as many, or as much, as is taken at once."""
    return len(taken) >= count or sum(len(ruling.value) for ruling in taken) >= TAKEN_BYTES


def rulings_of(run: RunRuling) -> Iterator[Ruling]:
    """The decisions of a run, one by one."""
    return (kept.ruling() for kept in _kept_of(run))


def _kept_of(run: RunRuling) -> Iterator[Kept]:
    first = run.first
    times_ms = accumulate((record.timestamp_ms for record in run.records), max, initial=first.time_ms)
    next(times_ms)
    changes = run.fold.changes_of_run(run.change)
    for record, change, time_ms in zip(run.records, changes, times_ms, strict=True):
        at = first._replace(offset=record.offset, append_ms=record.timestamp_ms, time_ms=time_ms)
        yield Kept(record.value, change, DONE, at, run.version)


def _kept(ruling: Ruling) -> Kept:
    return Kept(ruling.value, ruling.change, ruling.outcome, ruling.at, ruling.version)


def _cost(kept: Kept | RunRuling) -> tuple[int, int]:
    if isinstance(kept, Kept):
        return 1, len(kept.value)
    return len(kept.records), sum(len(record.value) for record in kept.records)


def _range(kept: Kept | RunRuling) -> tuple[int, int]:
    if isinstance(kept, Kept):
        return kept.at.offset, kept.at.offset
    return kept.records[0].offset, kept.records[-1].offset
