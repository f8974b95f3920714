"""Decisions of one partition on their way into the decisions topic: kept until they are known to stand there.

Folding tells us and goes on; what costs something (reading a run's records, rendering, encoding) is done when a
decision has been taken out to be written. What is kept is bounded. Beyond the bound only the range of offsets is
remembered, and after a restart there is only such a range: it is folded afresh, as there is room for what comes of that
(drivers/decisions/missed.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from drivers.decisions.kept import Kept, kept, kept_of
from eventstore.folding.decision_listener import DecidedRecord, DecidedRun

KEPT_BYTES = 32 << 20
"""Size of the records whose decisions are kept, of all partitions together: what a burst of half a million joins has.
In memory, with what they changed, each byte is two in a run of joins and three to five in forwards of many nodes. It is
up to sixteen in a forward of a single node; of such small ones KEPT_RECORDS keeps few."""

KEPT_RECORDS = 10_000
"""Records whose decisions are kept, per partition."""

TAKEN_BYTES = 1 << 20
"""Size of the records whose decisions are taken out together, but for the last: callers wait behind what is written."""

SEEN_MAX = 20_000
"""Offsets remembered as written by others before we have folded up to them."""

FORGOTTEN_EVERY = 1_000
"""While so many offsets are told, those that nobody needs any more are forgotten once: looking through all of them for
each record took more than reading it."""


class Gap(NamedTuple):
    """Decisions of the records from `start` to before `end` may be missing."""

    start: int
    end: int


class Room:
    """What the partitions of a process may keep together: a burst goes through fleet, and leaves the others empty."""

    def __init__(self, size_bytes: int = KEPT_BYTES) -> None:
        self.left_bytes = self._size_bytes = size_bytes

    @property
    def fullness(self) -> float:
        """How much of it is taken, from 0 to 1: what was made again may take a little more than there is."""
        return min(1 - self.left_bytes / self._size_bytes, 1.0)


class Owed:
    """A Listener of one partition."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.gap: Gap | None = None
        self._is_restored = False
        self._heard: deque[Kept | DecidedRun] = deque()
        self._again: deque[Kept] = deque()
        self._out: set[int] = set()
        self._seen: set[int] = set()
        self._seen_since = 0
        self._records = 0

    # -- told by the fold

    def on_decision(self, decided_record: DecidedRecord | DecidedRun) -> None:
        told = decided_record if isinstance(decided_record, DecidedRun) else kept(decided_record)
        count, size = _cost(told)
        if self._records + count > KEPT_RECORDS or size > self._room.left_bytes:
            first, last = _range(told)
            self.miss(Gap(first, last + 1))
            return
        self._heard.append(told)
        self._records += count
        self._room.left_bytes -= size

    def owes_from(self, position: int) -> int:
        firsts = [position, *self._out]
        if self.gap is not None:
            firsts.append(self.gap.start)
        if self._heard:
            firsts.append(_range(self._heard[0])[0])
        firsts += (again.at.offset for again in self._again)  # in no order: some are put back, some made again
        return min(firsts)

    def restored(self, owed_from: int, position: int) -> None:
        self._is_restored = True
        if owed_from < position:
            self.gap = Gap(owed_from, position)

    # -- asked by whoever writes

    @property
    def has_room(self) -> bool:
        """Whether decisions that were made again may be added: a few at once, though they be more than fit."""
        return len(self._again) < KEPT_RECORDS // 10 and self._room.left_bytes > 0

    @property
    def fullness(self) -> float:
        """How much is kept of what may be, from 0 to 1; 1 while anything is missed."""
        return max(self._records / KEPT_RECORDS, self._room.fullness) if self.gap is None else 1.0

    def miss(self, gap: Gap) -> None:
        """These have to be made again."""
        known = self.gap or gap
        self.gap = Gap(min(known.start, gap.start), max(known.end, gap.end))

    def made_again(self, decisions: Iterable[Kept], position: int) -> None:
        """What of the gap was folded again, up to before this position."""
        if self.gap is None:
            return
        start, end = self.gap
        for again in decisions:
            if start <= again.at.offset < end:
                self._again.append(again)
                self._room.left_bytes -= len(again.value)
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
        self._seen_since += 1
        if len(self._seen) >= SEEN_MAX and self._seen_since >= FORGOTTEN_EVERY:
            self._seen_since, least = 0, self.owes_from(position)
            self._seen = {known for known in self._seen if known >= least}
        if len(self._seen) < SEEN_MAX and offset not in self._out:
            self._seen.add(offset)

    def take(self, count: int, before_ms: int | None, size_bytes: int = TAKEN_BYTES) -> list[Kept]:
        """The next decisions to write, of records appended up to `before_ms`, if given; `done` has to follow.

        As many as are asked for, or as have this size, the last of them included.

        None is out twice, though it may be kept twice: a gap spans what was kept between two that were not.
        """
        taken: list[Kept] = []
        size = 0
        while len(taken) < count and size < size_bytes and (first := self._first()) is not None:
            offset = first.at.offset
            if offset in self._out:
                self._drop()
            elif offset in self._seen:
                self._seen.discard(offset)
                self._drop()
            elif before_ms is None or first.at.append_ms <= before_ms:
                self._drop()
                self._out.add(offset)
                taken.append(first)
                size += len(first.value)
            else:
                break
        return taken

    def done(self, taken: Iterable[Kept]) -> None:
        """Nothing more is to be done for these, which were taken, but for what was put back before."""
        self._out.difference_update(decision.at.offset for decision in taken)

    def put_back(self, taken: Sequence[Kept]) -> None:
        """These may not be written: they come out again, first."""
        for decision in reversed(taken):
            self._out.remove(decision.at.offset)
            self._again.appendleft(decision)
            self._room.left_bytes -= len(decision.value)

    def waits(self) -> bool:
        """Whether anything is to be written sooner or later."""
        return bool(self._again or self._heard)

    def _first(self) -> Kept | None:
        if self._again:
            return self._again[0]
        if not self._heard:
            return None
        if isinstance(first := self._heard[0], DecidedRun):
            self._heard.popleft()
            self._heard.extendleft(reversed([*kept_of(first)]))
        found = self._heard[0]
        assert isinstance(found, Kept), "a run is never empty"
        return found

    def _drop(self) -> None:
        if self._again:
            self._room.left_bytes += len(self._again.popleft().value)
            return
        count, size = _cost(self._heard.popleft())
        self._records -= count
        self._room.left_bytes += size


def _cost(told: Kept | DecidedRun) -> tuple[int, int]:
    if isinstance(told, Kept):
        return 1, len(told.value)
    return len(told.records), sum(len(record.value) for record in told.records)


def _range(told: Kept | DecidedRun) -> tuple[int, int]:
    if isinstance(told, Kept):
        return told.at.offset, told.at.offset
    return told.records[0].offset, told.records[-1].offset
