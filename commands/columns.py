"""Checks of whole columns of nodes at once.

A request of a thousand nodes is checked with a few passes in C rather than a thousand calls: names by one expression
over all of them, addresses in numpy. Only when such a pass fails are the items looked at one by one, to name the first
that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from commands.shapes import BadRequest, require
from projections import names

_SIMPLE_NAMES = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,62}\n)*")
"""Lines that are all certainly names by the rule; others are looked at one by one."""


class Columns(NamedTuple):
    """Nodes by column, in the order of NodesJoined."""

    names: list[str]
    created_ms: list[int]
    uids: list[str]
    addresses4: bytes
    addresses6: bytes
    label_sets: list[dict[str, str]]
    label_index: list[int]


def check_names(field: str, found: list[str]) -> None:
    """Every name by the rule, and none twice. Raises BadRequest."""
    text = "\n".join(found) + "\n"
    if text.count("\n") != len(found) or _SIMPLE_NAMES.fullmatch(text) is None:
        for name in found:
            require(names.check_name(field, name))
    if len(set(found)) != len(found):
        raise BadRequest(f"{field}: {names.shown(_first_repeated(found))} is given twice; a request names a node once")


def check_widths(columns: Columns) -> None:
    """Columns that came by column have an entry per node, or one for all, or none. Raises BadRequest."""
    count = len(columns.names)
    for field in ("created_ms", "uids", "label_index"):
        length = len(getattr(columns, field))
        if length not in (0, 1, count):
            raise BadRequest(f"{field}: {length} entries for {count} names must be none, one for all, or one each")
    for field, width in (("addresses4", 4), ("addresses6", 16)):
        length = len(getattr(columns, field))
        if length not in (0, width * count):
            raise BadRequest(f"{field}: {length} bytes for {count} names must be none or {width} a name")
    if bool(columns.created_ms) != bool(columns.uids):
        raise BadRequest(f"uids: {len(columns.uids)} entries must go with as many of created_ms; give both or neither")


def check_labels(columns: Columns) -> None:
    for labels in columns.label_sets:
        require(names.check_labels("labels", labels))
    sets = len(columns.label_sets)
    if len(columns.label_index) == 0 and sets:
        raise BadRequest(f"label_index: 0 entries for {sets} label sets; give each name its set")
    if columns.label_index and max(columns.label_index) >= sets:
        raise BadRequest(f"label_index: {max(columns.label_index)} must be the number of one of the {sets} label sets")


def check_addresses(columns: Columns) -> None:
    """Every address one that a host may have, and none twice in the request. Raises BadRequest."""
    if columns.addresses4:
        _check_addresses4(columns.names, np.frombuffer(columns.addresses4, dtype=">u4"))
    if columns.addresses6:
        _check_addresses6(columns.names, columns.addresses6)


def _check_addresses4(found: list[str], addresses: npt.NDArray[np.uint32]) -> None:
    given = addresses[addresses != 0]
    for value in given[(given >= 0xE0000000) | (given >> 24 == 127)]:
        require(names.check_address4("address", int(value)))
    if len(np.unique(given)) != len(given):
        _raise_shared(found, [int(value) for value in addresses], 32)


def _check_addresses6(found: list[str], packed: bytes) -> None:
    values = list(_integers6(packed))
    given = [value for value in values if value]
    for value in given:
        require(names.check_address6("address", value))
    if len(set(given)) != len(given):
        _raise_shared(found, values, 128)


def _integers6(packed: bytes) -> Iterator[int]:
    return (int.from_bytes(packed[i : i + 16], "big") for i in range(0, len(packed), 16))


def _raise_shared(found: list[str], values: list[int], width: int) -> None:
    holders: dict[int, str] = {}
    for name, value in zip(found, values, strict=True):
        if value and value in holders:
            raise BadRequest(
                f"address: {_text(value, width)!r} is given for both {names.shown(holders[value])}"
                f" and {names.shown(name)}; a request gives an address once"
            )
        holders[value] = name


def _text(value: int, width: int) -> str:
    return str(IPv4Address(value) if width == 32 else IPv6Address(value))


def _first_repeated(found: list[str]) -> str:
    seen: set[str] = set()
    for name in found:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no name is repeated")
