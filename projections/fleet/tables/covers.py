"""The covers of rule sets: prefixes, digests and history, computed on read and cached beside the fold.

The cache of a fleet state is not part of the state: the fold never reads it, and only reads of covers fill it. A read
applies the changes since the last read. Few changes are applied one by one, and each version becomes a step of the
history. For many changes, the whole cover is computed anew in numpy, and its difference to the old cover becomes a
single step. Both ways lead to the same cover and digest, and differ only in the older versions from which a delta can
start.

History is in memory and never larger than the set itself: beyond that a snapshot is cheaper than a delta.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from projections.fleet.membership.address_index import Address
from projections.fleet.membership.slot_table import SlotTable, as_int
from projections.fleet.state import FleetState
from projections.fleet.tables.rulesets import CHANGES_KEPT, INCREMENTAL_MAX, AddressChange, RuleSet, incremental_max
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

MIN_HISTORY_BYTES = 4096

MAX_STEPS = 16_384
"""Maximum number of history steps retained per set: some 10 minutes at 24 versions a second. A step takes about 400
bytes of memory however few prefixes it has, so a bound on the bytes of prefixes alone would retain hundreds of
thousands."""

MAX_RETIRED = 1_000
"""Maximum number of retired sets in memory. Sets without a member take no bytes, so a bound on bytes alone would retain
them all."""


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


class _HistoryStep(NamedTuple):
    """The net change of the cover by all versions from `first` to `version`, both included."""

    first: int
    version: int
    change: PrefixChange


class SetCover:
    """The cover of a set as of its last read, and the history of the cover."""

    def __init__(self, found: RuleSet, slot_table: SlotTable, bit: int) -> None:
        self.rule = found.key.rule
        self._four, self._six, self._addresses = _full_cover(slot_table, bit)
        self.digest = digest_of(self.rule, self._four.packed(), self._six.packed())
        self._history: deque[_HistoryStep] = deque()
        self._history_bytes = 0
        self._floor = found.version
        self._filled_at = found.filled_at if found.filled_at == found.version else 0
        """The version of the only change before the first read, if the set was empty until that change; otherwise 0."""
        self._take_versions(found)

    def _take_versions(self, found: RuleSet) -> None:
        self.version, self.earliest_ms, self._changed = found.version, found.earliest_ms, tuple(found.changed)

    def catch_up(self, found: RuleSet, slot_table: SlotTable, bit: int) -> None:
        """Apply the changes since the last read. `bit` is the set's bit in the present plan. It selects the slots whose
        labels match the set."""
        if found.version == self.version:
            return
        changes = found.changes_after(self.version)
        if changes is None or _count(changes) > incremental_max(self._addresses):
            self._recompute(found, slot_table, bit)
        else:
            self._apply_all(changes)
        self._take_versions(found)

    def retire(self, found: RuleSet) -> bool:
        """Apply the last changes of a set that left the plan; False if these changes are no longer retained."""
        changes = found.changes_after(self.version)
        if changes is not None:
            self._apply_all(changes)
            self._take_versions(found)
        return changes is not None

    def earliest_since(self, version: int) -> int | None:
        """Append time of the earliest of the remembered changes after a version; None if there was none."""
        return min((earliest for changed, earliest in self._changed if changed > version), default=None)

    def content(self) -> PrefixChange:
        """The whole set, as of the last read, as added prefixes."""
        return PrefixChange(self._four.packed(), self._six.packed(), b"", b"")

    def size(self) -> int:
        """The number of prefixes."""
        return len(self._four) + len(self._six)

    def bytes(self) -> int:
        """The bytes of the prefixes when packed."""
        return SIZE4 * len(self._four) + SIZE6 * len(self._six)

    def since(self, version: int) -> PrefixChange | None:
        """The net change after `version`; None if history does not reach back to it."""
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
        """The key of the prefix that contains this address, as of the last read; None if no prefix contains it."""
        family = self._four if isinstance(address, int) else self._six
        return family.holding(as_int(address))

    def held_since(self, address: Address) -> tuple[int, int]:
        """The version at which an address of the set was added, and the append time of that change. A value is 0 if
        history does not reach back to it."""
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
        """The version at which the history begins. If the set contains an address now, and no step of the history added
        the address, the set contained it at this version."""
        return self._floor

    def _apply_all(self, changes: Sequence[AddressChange]) -> None:
        for recorded in changes:
            self._apply(recorded)
            self._addresses += len(recorded.added) - len(recorded.removed)

    def _apply(self, recorded: AddressChange) -> None:
        four, six, net4, net6 = self._four, self._six, Net(), Net()
        for address in recorded.removed:
            family, net = (four, net4) if isinstance(address, int) else (six, net6)
            family.cover().remove(as_int(address), net)
        for address in recorded.added:
            family, net = (four, net4) if isinstance(address, int) else (six, net6)
            family.cover().add(as_int(address), net)
        self._record(recorded.version, recorded.version, PrefixChange(*_packed(net4, SIZE4, net6, SIZE6)))

    def _recompute(self, found: RuleSet, slot_table: SlotTable, bit: int) -> None:
        four, six, self._addresses = _full_cover(slot_table, bit)
        added4, removed4 = diff(self._four.keys(), four.keys())
        added6, removed6 = diff(self._six.keys(), six.keys())
        self._four, self._six = four, six
        first = min(version for version, _ in found.changed if version > self.version)
        if first == found.changed[0][0] and len(found.changed) == CHANGES_KEPT:  # there may have been earlier changes
            first = self.version + 1
        self._record(first, found.version, PrefixChange(pack(added4), pack(added6), pack(removed4), pack(removed6)))

    def _record(self, first: int, version: int, change: PrefixChange) -> None:
        rule = self.rule
        self.digest += digest_of(rule, change.add4, change.add6) - digest_of(rule, change.remove4, change.remove6)
        self._history.append(_HistoryStep(first, version, change))
        self._history_bytes += change.size
        most = max(MIN_HISTORY_BYTES, self.bytes())
        while self._history_bytes > most or len(self._history) > MAX_STEPS:
            dropped = self._history.popleft()
            self._history_bytes -= dropped.change.size
            self._floor = dropped.version


class CoverCache:
    """The covers of one fleet state's sets. Retired sets are in no list any more: deltas from previous lists start from
    their last content. Retired sets never take more bytes than the sets of present lists."""

    def __init__(self) -> None:
        self._covers: dict[RuleSet, SetCover] = {}
        self._sets: tuple[RuleSet, ...] = ()
        self._bits: dict[RuleSet, int] = {}
        self._retired: dict[RuleSet, SetCover] = {}
        self._retired_bytes = 0

    def __len__(self) -> int:
        """The number of retired sets."""
        return len(self._retired)

    def at(self, state: FleetState, bit: int) -> SetCover:
        """The cover of a set of the present plan, with all recorded changes applied."""
        self._follow_plan(state)
        found = state.sets[bit]
        cover = self._covers.get(found)
        if cover is None:
            cover = self._covers[found] = SetCover(found, state.slot_table, bit)
        else:
            cover.catch_up(found, state.slot_table, bit)
        return cover

    def of(self, state: FleetState, found: RuleSet) -> SetCover | None:
        """The cover of a set of the present plan, or the last cover of a retired set; None if that cover is no longer
        retained."""
        self._follow_plan(state)
        bit = self._bits.get(found)
        return self._retired.get(found) if bit is None else self.at(state, bit)

    def _follow_plan(self, state: FleetState) -> None:
        """Retire the sets that left the plan since the last read."""
        if state.sets is self._sets:
            return
        self._sets, self._bits = state.sets, {found: bit for bit, found in enumerate(state.sets)}
        for found in [found for found in self._covers if found not in self._bits]:
            cover = self._covers.pop(found)
            if cover.retire(found):
                self._retired[found] = cover
                self._retired_bytes += cover.bytes()
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Forget the oldest retired sets until the rest are within their limits. The bytes of the plan's sets are
        summed only if the retired sets take more than MIN_HISTORY_BYTES, because the method is called for every
        edit."""
        most = MIN_HISTORY_BYTES
        if self._retired_bytes > most:
            most = max(most, sum(cover.bytes() for cover in self._covers.values()))
        while self._retired_bytes > most or len(self._retired) > MAX_RETIRED:
            self._retired_bytes -= self._retired.pop(next(iter(self._retired))).bytes()


_CACHES: WeakKeyDictionary[FleetState, CoverCache] = WeakKeyDictionary()


def covers_of(state: FleetState) -> CoverCache:
    """The cache of a fleet state; it ends with the state."""
    cache = _CACHES.get(state)
    if cache is None:
        cache = _CACHES[state] = CoverCache()
    return cache


def _count(changes: Iterable[AddressChange]) -> int:
    return sum(len(recorded.added) + len(recorded.removed) for recorded in changes)


class _AddressFamily:
    """The cover of one address family. It is an array after it was computed from all addresses, and becomes a set at
    the first single change."""

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
    """Whether any of these prefixes holds an address. The prefixes are part of one cover: they are in order, and none
    lies within another."""
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
    """Like `_netted`, without numpy: faster for few prefixes. It takes 1 us per prefix, so many would block the event
    loop."""
    net = Net()
    for added, removed in changes:
        for key in unpack(removed, size):
            net.remove(key)
        for key in unpack(added, size):
            net.add(key)
    return pack_ints(sorted(net.added), size), pack_ints(sorted(net.removed), size)
