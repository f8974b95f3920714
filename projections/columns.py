"""The columns of a record of nodes: validation as a whole, and expansion to one value per node.

A column of length 1 stands for every node, an empty one for no value. Bulk operations that run in C validate the whole
column first; single values are inspected only to name the fault. Replaying a million joins spends most of its time
here, so a valid record costs no Python instruction per node.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

import numpy as np

from projections.field_checks import (
    LONGEST_UID,
    MAX_AHEAD_MS,
    NAME_PATTERN,
    are_plain_names,
    check_address4,
    check_address6,
    check_labels,
    check_name,
    check_uid,
    check_zone,
    quoted,
)
from schemas.events import MAX_COMMAND_BYTES, MAX_ITEMS, MembershipChanged, NodesChanged, NodesJoined, NodesLeft

_NAMES = re.compile(rf"(?:{NAME_PATTERN}\n)*+")
_OCTETS = bytes(range(256))
_HOST_OCTETS = bytes(octet for octet in range(256) if octet != 127 and not 224 <= octet < 240)
"""Valid first octets of a host's IPv4 address, and 0, which stands for no address."""
_BROADCAST = 0xFFFFFFFF
_NONE6 = bytes(16)
_NUMPY_MIN = 32
"""Up to this many addresses, Python is faster than numpy."""
_PRINTABLE = bytes(range(0x20, 0x7F))


T = TypeVar("T")


class NodeColumns(NamedTuple):
    """The columns of nodes as iterables with a value per node. A value that all nodes share is repeated without end."""

    created_ms: Iterable[int]
    uids: Iterable[str]
    addresses4: Iterable[int]
    addresses6: Iterable[bytes]
    labels: Iterable[dict[str, str]]


def fault_of_nodes(event: NodesJoined | NodesChanged | NodesLeft, now_ms: int) -> str | None:
    """Why a record of nodes has an invalid shape: its first fault in one sentence."""
    lines = "\n".join(event.names) + "\n"
    fault = (
        check_zone("zone", event.zone)
        or _fault_of_names(event.names, lines)
        or _fault_of_incarnations(event, now_ms + MAX_AHEAD_MS)
    )
    if fault is None and not isinstance(event, NodesLeft):
        fault = _fault_of_labels(event) or _fault_of_addresses(event)
    return fault or _fault_of_size(event, len(lines) - len(event.names))


def expand(event: NodesJoined | NodesChanged) -> NodeColumns:
    """The columns of a valid record. If the incarnation columns are empty, `issued_at_ms` and `command_id` are the
    incarnation of every node."""
    created_ms = event.created_ms or [event.envelope.issued_at_ms]
    uids = event.uids or [event.envelope.command_id]
    return NodeColumns(
        repeated(created_ms),
        repeated(uids),
        _addresses4(event.addresses4),
        _addresses6(event.addresses6),
        _labels(event),
    )


def intern_labels(labels: dict[str, str]) -> dict[str, str]:
    """The shared instance of these labels: nodes that join one by one have few different ones, and their rows retain
    them."""
    return _interned(tuple(labels.items()))


@lru_cache(4_096)
def _interned(labels: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return dict(labels)


def label_columns(labels: Iterable[tuple[tuple[str, str], ...]]) -> tuple[list[dict[str, str]], list[int]]:
    """The columns `label_sets` and `label_index` of nodes. `labels` has the labels of each node, sorted by key.

    `label_sets` has each distinct set of labels once, in the order of first appearance. Both columns are empty if no
    node has a label. If all nodes have equal labels, `label_index` has one number for all of them.
    """
    numbers: dict[tuple[tuple[str, str], ...], int] = {}
    index = [numbers.setdefault(repeated, len(numbers)) for repeated in labels]
    if not any(numbers):
        return [], []
    return list(map(dict, numbers)), index if len(numbers) > 1 else [0]


def incarnations(event: NodesChanged | NodesLeft) -> Iterable[tuple[int, str] | None]:
    """The given incarnation per node; None where any incarnation is meant."""
    if not event.created_ms:
        return repeat(None)
    return zip(repeated(event.created_ms), repeated(event.uids), strict=False)


def repeated(column: Sequence[T]) -> Iterable[T]:
    """The values of a column, one per node."""
    return repeat(column[0]) if len(column) == 1 else column


def _fault_of_names(names: Sequence[str], lines: str) -> str | None:
    if not 1 <= len(names) <= MAX_ITEMS:
        return f"names: {len(names)} items must be from 1 to {MAX_ITEMS}"
    if len(names) == 1:
        return check_name("names", names[0])
    if are_plain_names(lines, len(names)):
        if _are_ascending(lines, len(names)):
            return None
    elif lines.count("\n") != len(names) or _NAMES.fullmatch(lines) is None:
        return next(fault for name in names if (fault := check_name("names", name)) is not None)
    if len(set(names)) != len(names):
        twice = _first_repeated(names)
        return f"names: {quoted(str(twice))} is given twice; a record must name a node once"
    return None


def _are_ascending(lines: str, count: int) -> bool:
    """Whether these lines, all of one length, ascend strictly, so no two are equal. The names of most records
    ascend."""
    width = len(lines) // count
    column = np.ndarray(count, f"S{width}", lines.encode())
    return bool((column[1:] > column[:-1]).all())


def _fault_of_incarnations(event: NodesJoined | NodesChanged | NodesLeft, latest_ms: int) -> str | None:
    created_ms, uids, count = event.created_ms, event.uids, len(event.names)
    if bool(created_ms) != bool(uids):
        return f"uids: {len(uids)} entries must go with as many entries of created_ms, or both must be empty"
    if not created_ms:
        return _fault_of_creation([event.envelope.issued_at_ms], latest_ms) if isinstance(event, NodesJoined) else None
    fault = (
        fault_of_length("created_ms", len(created_ms), count)
        or fault_of_length("uids", len(uids), count)
        or _fault_of_creation(created_ms, latest_ms)
    )
    text = "".join(uids).encode(errors="surrogatepass")
    if fault is not None or (not text.translate(None, _PRINTABLE) and max(map(len, uids)) <= LONGEST_UID):
        return fault
    return next(fault for uid in uids if (fault := check_uid("uids", uid)) is not None)


def _fault_of_creation(created_ms: Sequence[int], latest_ms: int) -> str | None:
    if min(created_ms) >= 0 and max(created_ms) <= latest_ms:
        return None
    worst = min(created_ms) if min(created_ms) < 0 else max(created_ms)
    return f"created_ms: {worst} must be from 0 to {latest_ms}, one minute ahead of the log"


def _fault_of_labels(event: NodesJoined | NodesChanged) -> str | None:
    sets, index = event.label_sets, event.label_index
    if not index:
        return f"label_index: 0 entries for {len(sets)} label sets must be one entry per name" if sets else None
    fault = fault_of_length("label_index", len(index), len(event.names))
    if fault is not None:
        return fault
    fault = fault_of_label_numbers(index, len(sets))
    if fault is not None:
        return fault
    try:
        for labels in sets:
            _check_label_set(tuple(labels.items()))
    except _BadLabels as bad:
        return str(bad)
    return None


class _BadLabels(Exception):
    """The fault of a set of labels."""


@lru_cache(1_024)
def _check_label_set(labels: tuple[tuple[str, str], ...]) -> None:
    """Check one label set. Results are cached: nodes that join one by one share few label sets, and this check costs as
    much as all other checks of a node together.

    A fault is raised as _BadLabels, because exceptions are not cached: the text of a fault may be as long as a message,
    and many such texts would fill the memory.
    """
    if fault := check_labels("labels", dict(labels)):
        raise _BadLabels(fault)


def fault_of_label_numbers(index: Sequence[int], sets: int) -> str | None:
    """Why these label numbers are invalid for this many label sets."""
    if _are_below(sets, index):
        return None
    low, high = min(index), max(index)
    return f"label_index: {low if low < 0 else high} must be the index of one of the {sets} label sets"


def _are_below(limit: int, numbers: Sequence[int]) -> bool:
    """Whether every number is at least 0 and below the limit. Small numbers, the common case, are packed and compared
    as bytes."""
    try:
        packed = bytes(numbers)
    except (ValueError, OverflowError):
        return min(numbers) >= 0 and max(numbers) < limit
    return limit >= len(_OCTETS) or not packed.translate(None, _OCTETS[:limit])


def _fault_of_addresses(event: NodesJoined | NodesChanged) -> str | None:
    return fault_of_widths(event) or _fault_of_addresses4(event) or _fault_of_addresses6(event)


def fault_of_widths(event: NodesJoined | NodesChanged | MembershipChanged) -> str | None:
    """Why the lengths of the packed columns are invalid."""
    count, packed4, packed6 = len(event.names), event.addresses4, event.addresses6
    return _fault_of_width("addresses4", packed4, 4, count) or _fault_of_width("addresses6", packed6, 16, count)


def _fault_of_width(field: str, packed: bytes, width: int, count: int) -> str | None:
    if not packed or len(packed) == width * count:
        return None
    return f"{field}: {len(packed)} bytes for {count} names must be 0, or {width} per name"


def _fault_of_addresses4(event: NodesJoined | NodesChanged) -> str | None:
    packed = event.addresses4
    if not packed:
        return None
    octets = packed[::4]
    if octets.translate(None, _HOST_OCTETS) or (255 in octets and _BROADCAST in _unpacked4(packed)):
        faults = (check_address4("addresses4", value) for value in _unpacked4(packed) if value)
        return next(fault for fault in faults if fault is not None)
    if _repeats4(packed):
        twice = IPv4Address(int(_first_repeated([value for value in _unpacked4(packed) if value])))
        return f"addresses4: {str(twice)!r} is given twice; a record must give an address once"
    return None


def _repeats4(packed: bytes) -> bool:
    """Whether packed IPv4 addresses contain a duplicate other than 0. Most columns are sorted, and sorting takes a
    fifth of the time of hashing."""
    if len(packed) == 4:
        return False
    if len(packed) <= 4 * _NUMPY_MIN:
        given = [value for value in _unpacked4(packed) if value]
        return len(set(given)) != len(given)
    values = np.frombuffer(packed, ">u4").astype(np.uint32)
    if (values[1:] > values[:-1]).all():
        return False
    values.sort()
    return bool(((values[1:] == values[:-1]) & (values[1:] > 0)).any())


def _fault_of_addresses6(event: NodesJoined | NodesChanged) -> str | None:
    packed = event.addresses6
    if not packed:
        return None
    values = _chunks(packed)
    first_octets = packed[::16]
    if b"\x00" in first_octets or b"\xff" in first_octets:
        for value in values:
            fault = None if value == _NONE6 else check_address6("addresses6", int.from_bytes(value, "big"))
            if fault is not None:
                return fault
    given = [value for value in values if value != _NONE6]
    if len(set(given)) != len(given):
        return f"addresses6: {str(IPv6Address(_first_repeated(given)))!r} is given twice; a record must give it once"
    return None


def _fault_of_size(event: NodesJoined | NodesChanged | NodesLeft, names_bytes: int) -> str | None:
    """The fault of a record that is too large; None if it fits. Other programs may write records of any size, but the
    changes of one record must fit in one MembershipChanged.

    A record of one node always fits, by the rules for its name, uid and labels.
    """
    if len(event.names) == 1:
        return None
    size = names_bytes + len("".join(event.uids))
    if not isinstance(event, NodesLeft):
        size += len(event.addresses4) + len(event.addresses6) + sum(map(size_of_labels, event.label_sets))
    if size > MAX_COMMAND_BYTES:
        return f"names: {size} bytes of names, uids, addresses and labels are more than the {MAX_COMMAND_BYTES} allowed"
    return None


def size_of_labels(labels: dict[str, str]) -> int:
    """An upper estimate of the bytes of a label set in a record."""
    return sum(len(key) + len(value.encode()) + 4 for key, value in labels.items())


def fault_of_length(field: str, length: int, count: int, items: str = "names") -> str | None:
    """Why a column cannot have this many entries for so many items."""
    if length in (0, 1, count):
        return None
    return f"{field}: {length} entries for {count} {items} must be 0, one for all {items}, or one per {items[:-1]}"


def _unpacked4(packed: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(packed) // 4}I", packed)


def _chunks(packed: bytes) -> list[bytes]:
    return [packed[i : i + 16] for i in range(0, len(packed), 16)]


def _addresses4(packed: bytes) -> Iterable[int]:
    return _unpacked4(packed) if packed else repeat(0)


def _addresses6(packed: bytes) -> Iterable[bytes]:
    return [b"" if chunk == _NONE6 else chunk for chunk in _chunks(packed)] if packed else repeat(b"")


def _labels(event: NodesJoined | NodesChanged) -> Iterable[dict[str, str]]:
    if not event.label_index:
        return repeat({})
    sets = list(map(intern_labels, event.label_sets))
    return repeated(list(map(sets.__getitem__, event.label_index)))


def _first_repeated(values: Sequence[Any]) -> Any:
    seen: set[Any] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    raise AssertionError("no value is repeated")
