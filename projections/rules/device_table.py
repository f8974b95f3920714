"""A rule table on a device: validation of frames, and the table after each. Pure.

This is the device's own check, independent of the code that built the frame. The device never goes back to an older
(epoch, version). It accepts a delta only on the table that the delta starts from. It computes the new table and the
digest before it changes anything. An invalid frame is refused with a sentence, and the last good table stays.

Tables are values: a delta yields a new one that shares every untouched set with the old. So a thousand simulated
devices of one version hold one table, and a device can go from the old to the new in steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from projections.rules import digests
from projections.rules.rule import Delta, Rule, SetStep, precedence

WIDTH4, WIDTH6 = 5, 17
NUMPY_MIN = 16
"""Up to this many prefixes, single integers are faster than numpy."""
JOINED_AT_ONCE = 4_096

Prefixes = frozenset[bytes]
"""Packed prefixes of both families; their widths tell them apart."""
_NONE: Prefixes = frozenset()


class RefusalCode(IntEnum):
    """The reason of a refused frame. The control plane acts on this code alone, never on the sentence of the
    refusal."""

    UNSPECIFIED = 0
    OLDER = 1
    BASE = 2
    DIGEST = 3
    FULL = 4
    MALFORMED = 5
    DEVICE = 6


class FrameRefused(NamedTuple):
    """The frame was refused, and the table is unchanged."""

    code: RefusalCode
    reason: str


class DeviceTable(NamedTuple):
    """The table of a device. Version 0 is the empty table of a new device."""

    epoch: int
    version: int
    digest: bytes
    rules: Mapping[Rule, Prefixes]

    @property
    def size(self) -> int:
        """The number of prefixes."""
        return sum(map(len, self.rules.values()))


EMPTY_TABLE = DeviceTable(0, 0, bytes(16), {})


def apply(table: DeviceTable, epoch: int, delta: Delta, *, capacity: int) -> DeviceTable | FrameRefused:
    """The table after a frame, or the reason for a refusal. `capacity` is the maximum number of prefixes that the
    device can have at any moment."""
    held, offered = (table.epoch, table.version), (epoch, delta.to_version)
    if offered < held:
        return FrameRefused(RefusalCode.OLDER, f"version: {offered} is older than {held}, which this device holds")
    if offered == held and delta.digest == table.digest:
        return table
    if delta.from_version and (epoch, delta.from_version) != held:
        base = (epoch, delta.from_version)
        return FrameRefused(RefusalCode.BASE, f"from_version: {base} is not {held}, which this device holds")
    base_table = table if delta.from_version else EMPTY_TABLE
    rules = _after(base_table, delta, capacity)
    if isinstance(rules, FrameRefused):
        return rules
    digest = _digest_after(base_table, delta)
    if digest != delta.digest:
        return FrameRefused(RefusalCode.DIGEST, f"digest: {digest.hex()} after these steps is not {delta.digest.hex()}")
    return DeviceTable(epoch, delta.to_version, digest, rules)


def steps_between(old: DeviceTable, new: DeviceTable) -> tuple[SetStep, ...]:
    """Steps from one table to another that at no time deny a source that both tables allow: all adds, highest
    precedence first, then all removes.

    A snapshot names only the final content, so the device computes the steps to it.
    """
    ordered = sorted({*old.rules, *new.rules}, key=precedence)
    adds = [(rule, _without(new.rules.get(rule, _NONE), old.rules.get(rule, _NONE))) for rule in ordered]
    removes = [(rule, _without(old.rules.get(rule, _NONE), new.rules.get(rule, _NONE))) for rule in reversed(ordered)]
    return (
        *(SetStep(rule, *pack(prefixes), b"", b"") for rule, prefixes in adds if prefixes),
        *(SetStep(rule, b"", b"", *pack(prefixes)) for rule, prefixes in removes if prefixes),
    )


def _without(prefixes: Prefixes, others: Prefixes) -> Prefixes:
    """The difference. A difference from the empty set would be a copy, which costs megabytes for a whole table."""
    return prefixes - others if others else prefixes


def pack(prefixes: Prefixes) -> tuple[bytes, bytes]:
    """A set as packed IPv4 and IPv6 prefixes, in order."""
    ordered = sorted(prefixes)
    return (
        _joined([prefix for prefix in ordered if len(prefix) == WIDTH4]),
        _joined([prefix for prefix in ordered if len(prefix) == WIDTH6]),
    )


def _joined(prefixes: Sequence[bytes]) -> bytes:
    """These prefixes one after the other. They are joined in batches, because a join takes 80 bytes for each of its
    parts until it is done, more than a set of them has."""
    whole = bytearray()
    for start in range(0, len(prefixes), JOINED_AT_ONCE):
        whole += b"".join(prefixes[start : start + JOINED_AT_ONCE])
    return bytes(whole)


def digest_of(rules: Mapping[Rule, Prefixes]) -> bytes:
    """The digest of a table computed from its content, as for a read-back of a device."""
    return digests.to_bytes(sum(digests.digest_of(rule, *pack(prefixes)) for rule, prefixes in rules.items()))


def _after(table: DeviceTable, delta: Delta, capacity: int) -> dict[Rule, Prefixes] | FrameRefused:
    """The sets of the table after all steps of a delta, or the refusal of the first step that is invalid or does not
    fit."""
    rules = dict(table.rules)
    size = table.size
    for step in delta.steps:
        if fault := _fault(step):
            return FrameRefused(RefusalCode.MALFORMED, fault)
        before = rules.get(step.rule, _NONE)
        adds, removes = _split(step.add4, step.add6), _split(step.remove4, step.remove6)
        added = before.union(adds) if adds else before
        if len(added) != len(before) + len(adds):
            return FrameRefused(
                RefusalCode.MALFORMED, f"steps: {_shown(step.rule)} adds prefixes that the table already has"
            )
        size += len(adds)
        if size > capacity:
            return FrameRefused(
                RefusalCode.FULL, f"steps: {size} prefixes are more than the {capacity} that fit the device"
            )
        after = added.difference(removes) if removes else added
        if len(after) != len(added) - len(removes):
            return FrameRefused(
                RefusalCode.MALFORMED, f"steps: {_shown(step.rule)} removes prefixes that the table lacks"
            )
        size -= len(removes)
        rules[step.rule] = after
    return {rule: prefixes for rule, prefixes in rules.items() if prefixes}


def _digest_after(table: DeviceTable, delta: Delta) -> bytes:
    total = int.from_bytes(table.digest, "big")
    for step in delta.steps:
        total += digests.digest_of(step.rule, step.add4, step.add6)
        total -= digests.digest_of(step.rule, step.remove4, step.remove6)
    return digests.to_bytes(total)


def unpack(packed4: bytes, packed6: bytes) -> Prefixes:
    """Packed prefixes as a set. Raises ValueError if the bytes are not a whole number of prefixes."""
    return frozenset(_split(packed4, packed6))


def _split(packed4: bytes, packed6: bytes) -> list[bytes]:
    return _cut(packed4, WIDTH4) + _cut(packed6, WIDTH6)


def _cut(packed: bytes, width: int) -> list[bytes]:
    if len(packed) <= NUMPY_MIN * width:
        if len(packed) % width:  # the numpy path raises the same error
            raise ValueError(f"{len(packed)} bytes must be a multiple of {width} bytes per prefix")
        return [packed[at : at + width] for at in range(0, len(packed), width)]
    prefixes: list[bytes] = np.frombuffer(packed, f"V{width}").tolist()
    return prefixes


def _fault(step: SetStep) -> str | None:
    """Why a step of a table update is invalid in itself, whatever the table holds; None if it is valid."""
    ports = step.rule.ports
    if len(ports) % 2 or any(port > 65_535 for port in ports):
        return f"steps.ports: {ports} must be pairs of first and last, up to 65535"
    for packed, width in ((step.add4, WIDTH4), (step.remove4, WIDTH4), (step.add6, WIDTH6), (step.remove6, WIDTH6)):
        if len(packed) % width:
            return f"steps: {len(packed)} bytes must be a multiple of {width} bytes per prefix"
        if packed and not _canonical(packed, width):
            return f"steps: {_shown(step.rule)} has a prefix that is too long or has host bits set"
    return None


def _canonical(packed: bytes, width: int) -> bool:
    """Whether every prefix's length fits its family, and no bit beyond that length is set."""
    bits = (width - 1) * 8
    if len(packed) <= NUMPY_MIN * width:
        prefixes = (divmod(int.from_bytes(packed[at : at + width]), 256) for at in range(0, len(packed), width))
        return all(length <= bits and not address & ((1 << bits - length) - 1) for address, length in prefixes)
    rows = np.frombuffer(packed, np.uint8).reshape(-1, width)
    lengths = rows[:, -1].astype(np.int16)
    if (lengths > bits).any():
        return False
    kept = np.clip(lengths[:, None] - np.arange(0, bits, 8), 0, 8)
    host_bits = rows[:, :-1] & (0xFF >> kept).astype(np.uint8)
    return not host_bits.any()


def _shown(rule: Rule) -> str:
    return f"the {rule.action} rule of priority {rule.priority} ({rule.protocol})"
