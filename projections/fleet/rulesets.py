"""One set of a table: the cover of its sources' addresses, its version, its digest, and its history.

The fold only notes each change with its version. Covers are computed on read, so a replay computes none. A read applies
few changes one by one, each version a step of its own in the history, and many at once: the whole cover in numpy, and
the difference to the old one as a single step. Both give the same cover and digest; they differ only in the older
versions from which a delta can start.

History is in memory and never larger than the set itself: beyond that a snapshot is cheaper than a delta.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from projections.fleet.address_index import Address
from projections.fleet.slot_table import SlotTable, as_int
from projections.rules.lists import SetKey
from projections.rules.prefixes import (
    NO_KEYS4,
    NO_KEYS6,
    SIZE4,
    SIZE6,
    WIDTH4,
    WIDTH6,
    Cover,
    Keys,
    Net,
    cover4,
    cover6,
    diff,
    digest_of,
    holder_in,
    keys_of,
    pack,
    pack_ints,
    unpack,
)

INCREMENTAL_MAX = 256
"""Changes that are always applied one by one; more are too if the set has 128 times as many addresses.

One change costs about 3 us, the whole cover 0.04 us for each address of the set.
"""

MIN_HISTORY_BYTES = 4096

MAX_STEPS = 16_384
"""Steps of history retained per set: some 10 minutes of 24 versions a second. A step takes about 400 bytes of
memory however few prefixes it has, so a bound on the bytes of prefixes alone would retain hundreds of thousands."""

CHANGES_KEPT = 256
"""Last changes of a set whose append times are retained, for readers that skip versions."""


class PrefixChange(NamedTuple):
    """Added and removed prefixes, packed."""

    add4: bytes
    add6: bytes
    remove4: bytes
    remove6: bytes

    @property
    def size(self) -> int:
        return sum(map(len, self))


NO_CHANGE = PrefixChange(b"", b"", b"", b"")


class _Pending(NamedTuple):
    version: int
    added: Sequence[Address]
    removed: Sequence[Address]


class _HistoryStep(NamedTuple):
    """The change from before `first` up to `version`."""

    first: int
    version: int
    change: PrefixChange


class RuleSet:
    """A set of one or more zones' tables."""

    def __init__(self, key: SetKey, text: str, version: int, earliest_ms: int) -> None:
        self.key = key
        self.text = text
        self.version = version
        self.earliest_ms = earliest_ms
        self._changed: deque[tuple[int, int]] = deque(maxlen=CHANGES_KEPT)
        self.digest = 0
        self._four: _AddressFamily | None = None
        self._six: _AddressFamily | None = None
        self._pending: list[_Pending] = []
        self._pending_count = 0
        self._stale_since = 0
        self._addresses = 0
        self._history: deque[_HistoryStep] = deque()
        self._history_bytes = 0
        self._floor = 0
        self._filled_at = -1 if version else 0
        """Version of the only change before the first read, which filled the set; 0 before that change, -1 after
        further ones."""

    def record_change(
        self, version: int, earliest_ms: int, added: Sequence[Address], removed: Sequence[Address]
    ) -> None:
        """Record the addresses that entered and left the set at `version`."""
        self.version, self.earliest_ms = version, earliest_ms
        self._changed.append((version, earliest_ms))
        if self._four is None:
            self._filled_at = -1 if self._filled_at else version
        if self._four is None or self._stale_since:
            return
        self._pending.append(_Pending(version, added, removed))
        self._pending_count += len(added) + len(removed)
        self._addresses += len(added) - len(removed)
        if self._pending_count > max(INCREMENTAL_MAX, self._addresses // 128):
            self._stale_since = self._pending[0].version
            self._pending.clear()
            self._pending_count = 0

    def earliest_since(self, version: int) -> int | None:
        """Append time of the earliest of the remembered changes after a version; None if there was none."""
        return min((earliest for changed, earliest in self._changed if changed > version), default=None)

    def is_read(self) -> bool:
        """Whether the content was ever read."""
        return self._four is not None

    def catch_up(self, slot_table: SlotTable, bit: int) -> None:
        """Apply all recorded changes. `bit` is the set's bit in the plan that the labels of the slot table were
        matched with."""
        if self._four is None or self._six is None:
            self._four, self._six, self._addresses = _full_cover(slot_table, bit)
            self._floor = self.version
            self.digest = digest_of(self.key.rule, self._four.packed(), self._six.packed())
        elif self._stale_since:
            self._recompute(slot_table, bit)
        else:
            for pending in self._pending:
                self._apply_incrementally(pending, self._four, self._six)
            self._pending.clear()
            self._pending_count = 0

    def content(self) -> PrefixChange:
        """The whole set, as of the last `catch_up`, as added prefixes."""
        assert self._four is not None
        assert self._six is not None
        return PrefixChange(self._four.packed(), self._six.packed(), b"", b"")

    def size(self) -> int:
        """The number of prefixes."""
        return len(self._four) + len(self._six) if self._four is not None and self._six is not None else 0

    def bytes(self) -> int:
        """The bytes of the prefixes when packed."""
        return 0 if self._four is None or self._six is None else SIZE4 * len(self._four) + SIZE6 * len(self._six)

    def since(self, version: int) -> PrefixChange | None:
        """The net change after `version`; None if history does not reach back to it."""
        if not self.is_read():
            return None
        if version >= self.version:
            return NO_CHANGE
        steps = [*takewhile(lambda step: step.version > version, reversed(self._history))][::-1]
        if version < self._floor or not steps or steps[0].first <= version:
            return None
        return steps[0].change if len(steps) == 1 else netted(step.change for step in steps)

    def content_at(self, version: int) -> PrefixChange | None:
        """The whole set at an older version; None if history does not reach back to it."""
        change = self.since(version)
        if change is None or change == NO_CHANGE:
            return None if change is None else self.content()
        undone = PrefixChange(change.remove4, change.remove6, change.add4, change.add6)
        return netted((self.content(), undone))

    def prefix_of(self, address: Address) -> int | None:
        """The prefix, as a key, that holds an address, as of the last `catch_up`; None if none does."""
        family = self._four if isinstance(address, int) else self._six
        assert family is not None
        return family.holding(as_int(address))

    def held_since(self, address: Address) -> tuple[int, int]:
        """The version since which the set holds an address that it holds now, and the append time of that change; 0
        for each that history does not reach."""
        for step in reversed(self._history):
            if not _holds(step.change.remove4, step.change.remove6, address) and _holds(
                step.change.add4, step.change.add6, address
            ):
                return step.version, self._time_of(step.version)
        if 0 < self._filled_at == self._floor:  # one change filled the set, and history begins with it
            return self._floor, self._time_of(self._floor)
        return 0, 0

    def _time_of(self, version: int) -> int:
        return dict(self._changed).get(version, 0)

    @property
    def history_start(self) -> int:
        """The version at which the history begins. A prefix that the set held before and still holds was in it at
        this version."""
        return self._floor

    def forget(self) -> None:
        """Drop content and history; no more reads are allowed."""
        self._four = self._six = None
        self._history.clear()

    def _apply_incrementally(self, pending: _Pending, four: _AddressFamily, six: _AddressFamily) -> None:
        net4, net6 = Net(), Net()
        for address in pending.removed:
            family, net = (four, net4) if isinstance(address, int) else (six, net6)
            family.cover().remove(as_int(address), net)
        for address in pending.added:
            family, net = (four, net4) if isinstance(address, int) else (six, net6)
            family.cover().add(as_int(address), net)
        self._record(pending.version, pending.version, PrefixChange(*_packed(net4, SIZE4, net6, SIZE6)))

    def _recompute(self, slot_table: SlotTable, bit: int) -> None:
        assert self._four is not None
        assert self._six is not None
        four, six, self._addresses = _full_cover(slot_table, bit)
        added4, removed4 = diff(self._four.keys(), four.keys())
        added6, removed6 = diff(self._six.keys(), six.keys())
        self._four, self._six = four, six
        first, self._stale_since = self._stale_since, 0
        self._record(first, self.version, PrefixChange(pack(added4), pack(added6), pack(removed4), pack(removed6)))

    def _record(self, first: int, version: int, change: PrefixChange) -> None:
        rule = self.key.rule
        self.digest += digest_of(rule, change.add4, change.add6) - digest_of(rule, change.remove4, change.remove6)
        self._history.append(_HistoryStep(first, version, change))
        self._history_bytes += change.size
        most = max(MIN_HISTORY_BYTES, self.bytes())
        while self._history_bytes > most or len(self._history) > MAX_STEPS:
            dropped = self._history.popleft()
            self._history_bytes -= dropped.change.size
            self._floor = dropped.version


class _AddressFamily:
    """The cover of one family: an array after it was computed whole, a set once it is changed singly."""

    __slots__ = ("_cover", "_keys", "_packed", "_size", "_width")

    def __init__(self, keys: Keys, width: int, size: int) -> None:
        self._keys: Keys | None = keys
        self._packed: bytes | None = None
        self._cover: Cover | None = None
        self._width = width
        self._size = size

    def __len__(self) -> int:
        return len(self._cover.keys) if self._cover is not None else len(self.keys())

    def cover(self) -> Cover:
        """The cover as a mutable set for single changes."""
        if self._cover is None:
            keys = self.keys()
            ints = keys.tolist() if self._size == SIZE4 else unpack(pack(keys), self._size)
            self._cover = Cover(self._width, ints)
        self._keys = self._packed = None
        return self._cover

    def keys(self) -> Keys:
        """Keys in ascending order."""
        if self._keys is None:
            assert self._cover is not None
            found = self._cover.keys
            if self._size == SIZE4:
                self._keys = np.sort(np.fromiter(found, np.uint64, len(found)))
            else:
                self._keys = np.frombuffer(pack_ints(sorted(found), self._size), "S17")
        return self._keys

    def holding(self, address: int) -> int | None:
        """The prefix that holds an address. At most one prefix of a cover does."""
        if self._cover is not None:
            masks = ((address >> drop << drop) << 8 | self._width - drop for drop in range(self._width + 1))
            return next((key for key in masks if key in self._cover.keys), None)
        return holder_in(self.keys(), address, self._width)

    def packed(self) -> bytes:
        """Packed prefixes in ascending order."""
        if self._packed is None:
            self._packed = pack(self.keys())
        return self._packed


def _full_cover(slot_table: SlotTable, bit: int) -> tuple[_AddressFamily, _AddressFamily, int]:
    """The minimal prefixes of both families that cover a set, and the number of its addresses. An address that two
    nodes share counts twice."""
    picked = slot_table.in_set(bit)
    four, six = slot_table.addresses4(picked), slot_table.addresses6(picked)
    keys4 = cover4(four) if len(four) else NO_KEYS4
    keys6 = cover6(*six) if len(six[0]) else NO_KEYS6
    return _AddressFamily(keys4, WIDTH4, SIZE4), _AddressFamily(keys6, WIDTH6, SIZE6), len(four) + len(six[0])


def _holds(packed4: bytes, packed6: bytes, address: Address) -> bool:
    """Whether any of these prefixes holds an address. They are of one cover: in order, and none within another."""
    if isinstance(address, int):
        return holder_in(keys_of(packed4, SIZE4), address, WIDTH4) is not None
    return holder_in(keys_of(packed6, SIZE6), as_int(address), WIDTH6) is not None


def _packed(net4: Net, size4: int, net6: Net, size6: int) -> tuple[bytes, bytes, bytes, bytes]:
    return (
        pack_ints(sorted(net4.added), size4),
        pack_ints(sorted(net6.added), size6),
        pack_ints(sorted(net4.removed), size4),
        pack_ints(sorted(net6.removed), size6),
    )


def netted(changes: Iterable[PrefixChange]) -> PrefixChange:
    """Successive changes as one net change, in which no prefix is both added and removed."""
    listed = list(changes)
    added4, removed4 = _netted([(change.add4, change.remove4) for change in listed], SIZE4)
    added6, removed6 = _netted([(change.add6, change.remove6) for change in listed], SIZE6)
    return PrefixChange(added4, added6, removed4, removed6)


def _netted(changes: Sequence[tuple[bytes, bytes]], size: int) -> tuple[bytes, bytes]:
    """The net change of one family, in order. Additions and removals of a prefix alternate, so counting them is
    enough."""
    if sum(len(added) + len(removed) for added, removed in changes) <= INCREMENTAL_MAX * size:
        return _netted_singly(changes, size)
    came, went = (keys_of(b"".join(packed), size) for packed in zip(*changes, strict=True))
    keys, places = np.unique(np.concatenate((came, went)), return_inverse=True)
    counts = np.bincount(places[: len(came)], minlength=len(keys)) - np.bincount(
        places[len(came) :], minlength=len(keys)
    )
    return pack(keys[counts > 0]), pack(keys[counts < 0])


def _netted_singly(changes: Iterable[tuple[bytes, bytes]], size: int) -> tuple[bytes, bytes]:
    """The same in Python: faster for few prefixes; at 1 us per prefix, many would block the event loop."""
    net = Net()
    for added, removed in changes:
        for key in unpack(removed, size):
            net.remove(key)
        for key in unpack(added, size):
            net.add(key)
    return pack_ints(sorted(net.added), size), pack_ints(sorted(net.removed), size)
