"""The types that both ends of the agent link share, and its limits.

Input from a link is untrusted. It is parsed into the types below, or refused with one sentence (`ProtocolError`) that
closes this link and affects no other. Types of protobuf stay within `agent_messages` and `relay_messages`.

A set of DPUs is an integer; bit n stands for the DPU with number n on its link. The same code serves an agent with one
DPU and a simulator with a thousand, and splitting, joining and counting are cheap. Parsing such a bitmap cannot fail;
parsing a compressed one from a hostile peer can.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from eventstore.errors import PermanentError

VERSION = 1
"""Version of this protocol; an agent with another one is refused."""

MAX_LINK_DPUS = 10_000
"""Maximum number of DPUs of one link."""

MAX_UP_BYTES = 2 * 1024 * 1024
"""Largest message to a relay: a Hello of MAX_LINK_DPUS long names."""

MAX_DOWN_BYTES = 64 * 1024 * 1024
"""Largest message to an agent: a snapshot of three million IPv6 prefixes."""

MAX_PARTS = 256
"""Maximum number of TableStatuses, and of refusals, in one message. More of them need several messages."""

MAX_REASON = 200
"""Maximum number of characters of a reason; the rest is cut off."""

MAX_VERSION = (1 << 63) - 1
"""Largest epoch and version: the limit of the log."""

DIGEST_BYTES = 16

MAX_UNRESOLVED = 50
"""Maximum number of unresolved interfaces that a status names; the others are not named."""

MAX_INTERFACE = 127
"""Maximum number of characters of an interface's name: a namespace and a name."""

MAX_NETWORK_BYTES = 1024 * 1024
"""Maximum size of a network document, several times that of the plane's limit."""


class ProtocolError(PermanentError):
    """The peer sent a message that this protocol does not allow."""


class TableStatus(NamedTuple):
    """The status of the table on the DPUs in `dpus`: versions of `epoch` by level, and the digest of their table."""

    dpus: int
    epoch: int
    received: int
    applied: int
    in_hardware: int
    digest: bytes


class NetworkStatus(NamedTuple):
    """The status of the network document on the DPUs in `dpus`: versions of `epoch`, the digest of what they have, and
    the interfaces whose ports do not exist yet."""

    dpus: int
    epoch: int
    received: int
    applied: int
    digest: bytes
    unresolved: tuple[str, ...] = ()


def mask_of(bitmap: bytes) -> int:
    """Decode a bitmap into a set of DPUs."""
    return int.from_bytes(bitmap, "little")


def bitmap_of(mask: int) -> bytes:
    """Encode a set of DPUs as a bitmap."""
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def all_dpus(count: int) -> int:
    """The set of the DPUs 0 to count - 1."""
    return (1 << count) - 1


def union(masks: Iterable[int]) -> int:
    """The union of these sets."""
    joined = 0
    for mask in masks:
        joined |= mask
    return joined


def numbers_of(mask: int) -> list[int]:
    """The numbers of the DPUs in a set, ascending."""
    numbers = []
    while mask:
        lowest = mask & -mask
        numbers.append(lowest.bit_length() - 1)
        mask ^= lowest
    return numbers


def printable_line(reason: str) -> str:
    """A peer's text for logs and storage: one printable line, truncated if long."""
    printable = "".join(character if character.isprintable() else "?" for character in reason[:MAX_REASON])
    return printable + ("..." if len(reason) > MAX_REASON else "")
