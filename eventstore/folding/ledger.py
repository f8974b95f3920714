"""The command ids that a partition has seen, so that a command takes effect at most once, for ever.

Copies of a command can land at any time: a retry, an abandoned send that lands minutes later, another process. No copy
of a command that the ledger has remembered takes effect again. The ledger remembers an id in one of three forms, one
after the other, each smaller than the one before:

1. as an **entry** with content and outcome, for ten minutes of fold time: a copy gets the outcome of the first;
2. as an **exact id** of 16 bytes (`used_ids`), for the last million ids that left the entries;
3. within a **range** of ids, from then on.

Proof of at most once. A command that is decided, or refused for its time, gets an entry. An entry is removed only when
its id becomes an exact id. An exact id is removed only when a range contains it. Ranges only grow. So the ledger has
the id of the command in one of the three forms for ever, and in each form it refuses or answers a copy of the command
without a new decision. No clock is part of this argument.

A fast clock therefore delays no new command, as long as the exact ids reach back far enough. Suppose that append times
ran ahead by D from time S on, and were corrected at time T. The ids used meanwhile contain times from S + D to T + D.
(A ledger that kept only the latest forgotten time, and refused every id up to it, would refuse every command until
T + D.) Entries and exact ids affect only ids that were used. Only a range can refuse a new id, and ranges contain only
ids used before the last million. So no new command is refused if this partition took less than a million commands in
the last D before T (four hours at the highest rate of joins that we measure; weeks at most rates). If it took more, a
range of the ids used meanwhile begins at S + D, and new ids are refused while the present time lies in this range. If
the clock was corrected before S + D, new ids are accepted until S + D.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from eventstore.folding.fold import Outcome, RecordMetadata, refused
from eventstore.folding.id_columns import are_issued_at
from eventstore.folding.used_ids import USED_MAX, IdRange, UsedIds
from eventstore.ids import InvalidCommandId, issued_at_ms
from eventstore.reasons import Fault, Reason
from schemas.events import Envelope

LATE_MS = 120_000
"""A command appended longer than this after it was issued is refused."""

AHEAD_MS = 60_000
"""A command issued longer than this after its append is refused: the caller's clock is ahead."""

KEEP_MS = 600_000
"""How long outcomes are remembered, in fold time."""

IDS_MAX = 500_000
"""Maximum number of remembered outcomes, about 200 bytes each; at the limit the oldest bucket is forgotten early."""

MINUTE_MS = 60_000
"""Ids are remembered and forgotten in buckets of one minute of fold time."""

_BUCKET_IDS = 50_000
"""Maximum number of ids in a bucket. A minute with more ids has several buckets; otherwise one busy minute could only
be forgotten whole.
"""

_MINUTE_BITS = 32
"""The low bits of a bucket's number hold its minute of fold time; the high bits count the buckets before it."""

_CHUNK_BIT = 1 << 63
"""This bit in the number of a saved bucket marks a chunk of used ids."""


class LedgerEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The outcome of a command. `content` is the digest of its body and its principal (`folding/command_digest.py`)."""

    content: bytes
    outcome: Outcome
    offset: int


class UnsavedIds(NamedTuple):
    """Changes to save, by bucket: `chunks` are written whole, `added` has only the new ids, because a bucket can be
    large.
    """

    added: Mapping[int, list[str]]
    chunks: Mapping[int, bytes]
    forgotten: frozenset[int]


class Ledger:
    """Pure: a function of the folded records. Times are append times and fold times, never a clock."""

    __slots__ = ("_buckets", "_forgotten", "_ids_max", "_minute", "_newest", "_saved", "_used", "entries")

    def __init__(self, ids_max: int = IDS_MAX, used_max: int = USED_MAX) -> None:
        self.entries: dict[str, LedgerEntry] = {}
        self._ids_max = ids_max
        self._minute = 0
        self._newest = 0
        self._buckets: dict[int, list[str]] = {}
        self._used = UsedIds(used_max)
        self._saved: dict[int, int] = {}
        self._forgotten: set[int] = set()

    @property
    def ranges(self) -> tuple[IdRange, ...]:
        """Ranges of ids in which the ledger no longer distinguishes used from unused ids."""
        return self._used.ranges

    def state(self) -> tuple[object, ...]:
        """All state that affects further commands, for a comparison with another ledger."""
        return self.entries, self.ranges, [*self._used.chunks().values()]

    def has_forgotten(self, command_id: str) -> bool:
        """Whether a command with this id may have been decided although no outcome is remembered."""
        return command_id in self._used

    def admit(self, envelope: Envelope, content: bytes, at: RecordMetadata) -> LedgerEntry | None:
        """None if the command is to be decided now. Otherwise its outcome: the remembered one, or a refusal by the
        ledger."""
        self._go_to(at.time_ms // MINUTE_MS)
        command_id = envelope.command_id
        if command_id in self.entries:
            return self.find(command_id, content)
        if mistake := _malformed(envelope):
            return LedgerEntry(content, refused(mistake), at.offset)
        if command_id in self._used:
            return LedgerEntry(content, refused(self._expired(command_id)), at.offset)
        late_ms = at.append_ms - envelope.issued_at_ms
        if not -AHEAD_MS <= late_ms <= LATE_MS:
            entry = LedgerEntry(content, refused(_untimely(late_ms)), at.offset)
            self.remember(envelope, entry, at.time_ms)
            return entry
        return None

    def find(self, command_id: str, content: bytes) -> LedgerEntry | None:
        """The entry of a command, or a refusal if its id was used for another command; None if it has no entry."""
        entry = self.entries.get(command_id)
        if entry is None or entry.content == content:
            return entry
        reason = f"command_id: {command_id} was used for another command, at offset {entry.offset}"
        other = refused(Fault(reason, Reason.COMMAND_ID_IN_USE, offset=entry.offset))
        return LedgerEntry(content, other, entry.offset)

    def remember(self, envelope: Envelope, entry: LedgerEntry, time_ms: int) -> None:
        """Remember the outcome of an admitted command, at fold time `time_ms`."""
        self._bucket(time_ms // MINUTE_MS, 1).append(envelope.command_id)
        self.entries[envelope.command_id] = entry
        if len(self.entries) > self._ids_max:
            self._forget(min(self._buckets))

    def admits_all(self, ids: Sequence[str], issued_ms: Sequence[int], append_ms: Sequence[int], time_ms: int) -> bool:
        """Whether `admit` would let each of these commands be decided now.

        `time_ms` is the fold time at the first of them; the fold time at the last lies in the same minute. Internal
        events have no command id, so the result for a run of them is False. The fold time of the ledger then stays the
        same, as it does when internal events are folded one by one.
        """
        if not are_issued_at(ids, issued_ms):
            return False
        self._go_to(time_ms // MINUTE_MS)
        lateness = list(map(int.__sub__, append_ms, issued_ms))
        return (
            min(lateness) >= -AHEAD_MS
            and max(lateness) <= LATE_MS
            and not self._used.may_hold(min(ids))
            and len(set(ids)) == len(ids)
            and self.entries.keys().isdisjoint(ids)
            and len(self.entries) + len(ids) <= self._ids_max
            and self._filled(time_ms // MINUTE_MS) + len(ids) <= _BUCKET_IDS
        )

    def remember_all(self, ids: Sequence[str], entries: Sequence[LedgerEntry], time_ms: int) -> None:
        """Remember the outcomes of the commands with these ids, for which `admits_all` returned true."""
        self._bucket(time_ms // MINUTE_MS, len(ids)).extend(ids)
        self.entries.update(zip(ids, entries, strict=True))

    def unsaved(self) -> UnsavedIds:
        """The changes since `mark_saved`."""
        fresh = {bucket: ids[self._saved.get(bucket, 0) :] for bucket, ids in self._buckets.items()}
        chunks = self._used.chunks()
        changed = {_CHUNK_BIT | number: chunks[number] for number in sorted(self._used.changed)}
        gone = self._forgotten | changed.keys() | {_CHUNK_BIT | number for number in self._used.dropped}
        return UnsavedIds({bucket: ids for bucket, ids in fresh.items() if ids}, changed, frozenset(gone))

    def mark_saved(self) -> None:
        """Mark all changes of `unsaved` as durable."""
        self._saved = {bucket: len(ids) for bucket, ids in self._buckets.items()}
        self._forgotten.clear()
        self._used.mark_saved()

    def load(
        self, ranges: Sequence[IdRange], saved: Iterable[tuple[int, Iterable[tuple[str, LedgerEntry]] | bytes]]
    ) -> None:
        """Fill an empty ledger from its saved ranges, buckets, and chunks of used ids, by number."""
        chunks: dict[int, bytes] = {}
        for bucket, found in saved:
            if isinstance(found, bytes):
                chunks[bucket ^ _CHUNK_BIT] = found
                continue
            for command_id, entry in found:
                self.entries[command_id] = entry
                self._buckets.setdefault(bucket, []).append(command_id)
        self._used.load(ranges, chunks.items())
        self._newest = max(self._buckets, default=0)
        self.mark_saved()

    def _filled(self, minute: int) -> int:
        """How many ids the current bucket of this minute has."""
        return len(self._buckets.get(self._newest, ())) if self._newest & (1 << _MINUTE_BITS) - 1 == minute else 0

    def _bucket(self, minute: int, count: int) -> list[str]:
        """The bucket for `count` ids of this minute: the newest, or a new one. Buckets are forgotten in the order of
        their numbers. A forgotten bucket is therefore not filled again: its new ids would be forgotten before the older
        ids in buckets with higher numbers.
        """
        filled = self._filled(minute)
        if not filled or filled + count > _BUCKET_IDS:
            self._newest = (self._newest >> _MINUTE_BITS) + 1 << _MINUTE_BITS | minute
        return self._buckets.setdefault(self._newest, [])

    def _go_to(self, minute: int) -> None:
        """Set the fold time to this minute, which may be an earlier one after a correction of the clock."""
        if minute == self._minute:
            return
        self._minute = minute
        old = [b for b in self._buckets if (b & (1 << _MINUTE_BITS) - 1) * MINUTE_MS < minute * MINUTE_MS - KEEP_MS]
        if old:  # also the buckets before it, which a fast clock filled
            for bucket in sorted(b for b in self._buckets if b <= max(old)):
                self._forget(bucket)

    def _forget(self, bucket: int) -> None:
        ids = self._buckets.pop(bucket)
        for command_id in ids:
            self.entries.pop(command_id, None)
        self._used.add(ids)
        self._saved.pop(bucket, None)
        self._forgotten.add(bucket)

    def _expired(self, command_id: str) -> str:
        found = self._used.range_of(command_id)
        if found is None:
            reason = f"command_id: {command_id} has expired: it was used, and its outcome is no longer kept"
        else:
            reason = f"command_id: {command_id} has expired: ids from {found.first} to {found.last} are no longer kept"
        return Fault(reason, Reason.COMMAND_ID_EXPIRED)


def is_chunk(bucket: int) -> bool:
    """Whether the saved row of this number is a chunk of used ids."""
    return bool(bucket & _CHUNK_BIT)


def _malformed(envelope: Envelope) -> str:
    """Why an id is malformed; empty if it is not. Malformed ids are not remembered, because they are always refused."""
    try:
        issued_ms = issued_at_ms(envelope.command_id)
    except InvalidCommandId as error:
        return str(error)
    if issued_ms != envelope.issued_at_ms:
        return f"issued_at_ms: {envelope.issued_at_ms} must be the time in the command id, {issued_ms}"
    return ""


def _untimely(late_ms: int) -> str:
    """Why a command appended `late_ms` after its issue time is refused."""
    if late_ms > 0:
        reason = f"command_id: expired: appended {late_ms} ms after its time, over the limit of {LATE_MS} ms"
        return Fault(reason, Reason.COMMAND_TOO_LATE, late_ms=late_ms)
    reason = (
        f"command_id: its time is {-late_ms} ms ahead of the log, over the limit of {AHEAD_MS} ms; check the clocks"
    )
    return Fault(reason, Reason.COMMAND_FROM_FUTURE, ahead_ms=-late_ms)
