"""The action of Open vSwitch by which a flow makes another flow of each packet (`learn`, ovs-actions(7)).

Layouts: `struct nx_action_learn` and the specifications after it, in `ofp-actions.c` of Open vSwitch.
"""

from __future__ import annotations

from struct import Struct

IN_PORT = 0x0000_0002
ETH_DST = 0x0000_0206
ETH_SRC = 0x0000_0406
VLAN_TCI = 0x0000_0802
"""Fields by their headers (nicira-ext.h)."""

_LEARN = Struct("!HHIHHHHQHBxHH")
_EXPERIMENTER, _NICIRA, _SUBTYPE = 0xFFFF, 0x2320, 16
_DELETE_LEARNED = 2
_IMMEDIATE = 1 << 13
_MATCH, _LOAD, _OUTPUT = 0, 1 << 11, 2 << 11
_FIELD = Struct("!IH")
_SPECIFICATION = Struct("!H")


def learn(table: int, priority: int, cookie: int, idle_s: int, specifications: bytes) -> bytes:
    """Make a flow by these specifications. It ends when no packet has met it for `idle_s`, and when the last flow that
    makes flows with this cookie is deleted or changed."""
    length = _LEARN.size + len(specifications)
    padding = -length % 8
    head = _LEARN.pack(
        _EXPERIMENTER,
        length + padding,
        _NICIRA,
        _SUBTYPE,
        idle_s,
        0,
        priority,
        cookie,
        _DELETE_LEARNED,
        table,
        0,
        0,
    )
    return head + specifications + bytes(padding)


def matches(field: int, value: int, bits: int, offset: int = 0) -> bytes:
    """The flow matches a value in these bits of a field."""
    return _SPECIFICATION.pack(_IMMEDIATE | _MATCH | bits) + value.to_bytes(2, "big") + _FIELD.pack(field, offset)


def matches_packet(field: int, source: int, bits: int) -> bytes:
    """The flow matches in `field` what the packet has in `source`."""
    return _SPECIFICATION.pack(_MATCH | bits) + _FIELD.pack(source, 0) + _FIELD.pack(field, 0)


def loads(field: int, value: int, bits: int) -> bytes:
    """The flow writes a value into a field."""
    return _SPECIFICATION.pack(_IMMEDIATE | _LOAD | bits) + value.to_bytes(2, "big") + _FIELD.pack(field, 0)


def outputs_to_source() -> bytes:
    """The flow outputs to the port by which the packet came."""
    return _SPECIFICATION.pack(_OUTPUT | 16) + _FIELD.pack(IN_PORT, 0)
