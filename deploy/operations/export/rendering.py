"""Renders an event as plain data for people and scripts: addresses and hashes as text, other bytes as base64."""

from __future__ import annotations

from socket import AF_INET, AF_INET6, inet_ntop
from typing import Any

import msgspec

_FAMILIES = {"addresses4": (AF_INET, 4), "addresses6": (AF_INET6, 16)}
_HASHES = ("hold_hash", "list_hash")
_TEXTS = frozenset({*_FAMILIES, *_HASHES})


def rendered(event: msgspec.Struct) -> dict[str, Any]:
    """The fields of an event. An address column is a list with one address per node, null for a node without one."""
    found: dict[str, Any] = msgspec.to_builtins(event)
    for name in _TEXTS.intersection(event.__struct_fields__):
        packed: bytes = getattr(event, name)
        found[name] = packed.hex() if name in _HASHES else addresses(packed, *_FAMILIES[name])
    return found


def addresses(packed: bytes, family: int, width: int) -> list[str | None] | str:
    """A packed column as text. A column whose length is not a multiple of `width` is returned in hex; the plane never
    writes such a column."""
    if len(packed) % width:
        return packed.hex()
    none = bytes(width)
    each = (packed[at : at + width] for at in range(0, len(packed), width))
    return [None if one == none else inet_ntop(family, one) for one in each]
