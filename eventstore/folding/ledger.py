"""The command ids that a partition has seen, so that a command takes effect at most once, for ever.

Copies of a command can land at any time: a retry, a send that was given up and lands minutes later, another process. So
a command is taken only in a window around the time inside its id, its id is remembered for ten minutes of fold time,
and when ids are forgotten a floor rises to the latest of them: at or under it everything is refused. Whatever the
brokers' clocks do, an id is either remembered, or under the floor, or was never taken; a clock that jumps costs memory
of ids and nothing else.

What was refused for its time is remembered as well: whoever was told so must not see a later copy take effect. Ids far
ahead of their append are not remembered, or they would lift the floor over honest ones; no edge lets them through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from eventstore.folding.fold import At, Commands, Outcome, refused
from eventstore.ids import BadCommandId, issued_at_ms
from schemas.events import Envelope

LATE_MS = 120_000
"""A command appended longer than this after it was issued is refused."""

AHEAD_MS = 60_000
"""A command issued longer than this after its append is refused: the caller's clock is ahead."""

KEEP_MS = 600_000
"""Ids are remembered this long, in fold time."""

IDS_MAX = 500_000
"""Ids remembered at most, about 200 bytes each; the oldest bucket goes early."""

MINUTE_MS = 60_000
"""Ids are remembered, and forgotten, by minutes of fold time."""

_BUCKET_IDS = 50_000
"""A minute with more ids has several buckets, or one busy minute could only be forgotten whole."""

_BUCKETS_PER_MINUTE = 1_000


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What became of a command. `content` is the digest of its whole record value, principal and body alike."""

    content: bytes
    outcome: Outcome
    offset: int


class Unsaved(NamedTuple):
    """What to write and to delete, by bucket. Of `added` the ids, as they may be as many as are remembered."""

    added: Mapping[int, list[str]]
    forgotten: frozenset[int]


class Ledger:
    """Pure: a function of the records that were folded. Times are append times and fold times, never a clock."""

    __slots__ = ("_buckets", "_forgotten", "_ids_max", "_minute", "_saved", "entries", "floor")

    def __init__(self, ids_max: int = IDS_MAX) -> None:
        self.entries: dict[str, Entry] = {}
        self.floor = ""
        self._ids_max = ids_max
        self._minute = 0
        self._buckets: dict[int, list[str]] = {}
        self._saved: dict[int, int] = {}
        self._forgotten: set[int] = set()

    def admit(self, envelope: Envelope, content: bytes, at: At) -> Entry | None:
        """None if the command is to be decided now; else what was decided of it, now or before."""
        minute = at.time_ms // MINUTE_MS
        if minute > self._minute:
            self._advance(minute)
        command_id = envelope.command_id
        if command_id in self.entries:
            return self.known(command_id, content)
        if mistake := _malformed(envelope):
            return Entry(content, refused(mistake), at.offset)
        if command_id <= self.floor:
            expired = f"command id: {command_id} is expired, as ids up to {self.floor} are forgotten"
            return Entry(content, refused(expired), at.offset)
        late_ms = at.append_ms - envelope.issued_at_ms
        if not -AHEAD_MS <= late_ms <= LATE_MS:
            entry = Entry(content, refused(_untimely(late_ms)), at.offset)
            self.remember(envelope, entry, at.time_ms)
            return entry
        return None

    def known(self, command_id: str, content: bytes) -> Entry | None:
        """What is remembered of a command: its outcome, or a refusal if its id was used for another one."""
        entry = self.entries.get(command_id)
        if entry is None or entry.content == content:
            return entry
        other = refused(f"command id: {command_id} was used for another command, at offset {entry.offset}")
        return Entry(content, other, entry.offset)

    def remember(self, envelope: Envelope, entry: Entry, time_ms: int) -> None:
        """This was decided of an admitted command, at fold time `time_ms`."""
        issued_ms = envelope.issued_at_ms
        if issued_ms > time_ms + KEEP_MS:
            return
        bucket = self._newest(max(time_ms, issued_ms) // MINUTE_MS)
        if len(self._buckets.get(bucket, ())) >= _BUCKET_IDS:
            bucket += 1
        self._buckets.setdefault(bucket, []).append(envelope.command_id)
        self.entries[envelope.command_id] = entry
        if len(self.entries) > self._ids_max:
            self._forget(min(self._buckets))

    def admits_all(self, commands: Commands, append_ms: Sequence[int], time_ms: int) -> bool:
        """Whether each of these well-formed commands would be decided now, were they admitted one by one.

        `time_ms` is the fold time at the first of them, and lies in the same minute as that at the last.
        """
        ids, issued_ms = commands.ids, commands.issued_ms
        minute = time_ms // MINUTE_MS
        if minute > self._minute:
            self._advance(minute)
        lateness = list(map(int.__sub__, append_ms, issued_ms))
        return (
            min(lateness) >= -AHEAD_MS
            and max(lateness) <= LATE_MS
            and max(issued_ms) // MINUTE_MS <= minute
            and min(ids) > self.floor
            and len(set(ids)) == len(ids)
            and self.entries.keys().isdisjoint(ids)
            and len(self.entries) + len(ids) <= self._ids_max
            and len(self._buckets.get(self._newest(minute), ())) + len(ids) <= _BUCKET_IDS
        )

    def remember_all(self, ids: Sequence[str], entries: Sequence[Entry], time_ms: int) -> None:
        """This was decided of the commands with these ids, which `admits_all` has found good."""
        self._buckets.setdefault(self._newest(time_ms // MINUTE_MS), []).extend(ids)
        self.entries.update(zip(ids, entries, strict=True))

    def unsaved(self) -> Unsaved:
        """What changed since `mark_saved`."""
        fresh = {bucket: ids[self._saved.get(bucket, 0) :] for bucket, ids in self._buckets.items()}
        return Unsaved({bucket: ids for bucket, ids in fresh.items() if ids}, frozenset(self._forgotten))

    def mark_saved(self) -> None:
        """All that `unsaved` gave is durable."""
        self._saved = {bucket: len(ids) for bucket, ids in self._buckets.items()}
        self._forgotten.clear()

    def load(self, floor: str, saved: Iterable[tuple[int, Iterable[tuple[str, Entry]]]]) -> None:
        """Fill an empty ledger from its saved floor and buckets."""
        self.floor = floor
        for bucket, entries in saved:
            for command_id, entry in entries:
                self.entries[command_id] = entry
                self._buckets.setdefault(bucket, []).append(command_id)
        self.mark_saved()

    def _newest(self, minute: int) -> int:
        """The bucket of a minute that takes ids. Its first may be forgotten already: to fill that one again would make
        the newest ids the next to go, and their floor would refuse whatever is on its way."""
        first = minute * _BUCKETS_PER_MINUTE
        if first in self._buckets and first + 1 not in self._buckets:
            return first
        return max((b for b in self._buckets if first <= b < first + _BUCKETS_PER_MINUTE), default=first)

    def _advance(self, minute: int) -> None:
        self._minute = minute
        oldest_kept = minute * MINUTE_MS - KEEP_MS
        for bucket in [b for b in self._buckets if b // _BUCKETS_PER_MINUTE * MINUTE_MS < oldest_kept]:
            self._forget(bucket)

    def _forget(self, bucket: int) -> None:
        ids = self._buckets.pop(bucket)
        for command_id in ids:
            del self.entries[command_id]
        self.floor = max(self.floor, *ids)
        self._saved.pop(bucket, None)
        self._forgotten.add(bucket)


def _malformed(envelope: Envelope) -> str:
    """Why an id cannot be one of ours; empty if it can. Such ids are not remembered: they are refused at any time."""
    try:
        issued_ms = issued_at_ms(envelope.command_id)
    except BadCommandId as error:
        return str(error)
    if issued_ms != envelope.issued_at_ms:
        return f"issued_at_ms: {envelope.issued_at_ms} is not the time in the command id, which is {issued_ms}"
    return ""


def _untimely(late_ms: int) -> str:
    """Why a command appended `late_ms` after it was issued cannot be taken."""
    if late_ms > 0:
        return f"command id: expired, as it was appended {late_ms} ms after its time, and {LATE_MS} ms is the most"
    return f"command id: its time is {-late_ms} ms ahead of its append, and {AHEAD_MS} ms is the most"
