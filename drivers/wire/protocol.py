"""The agent link's vocabulary: what both ends share of it, and its limits.

Whatever comes over a link was written by somebody else's program: it is parsed into the types below or refused with one
sentence (`ProtocolError`), which closes that link and touches nothing else. Nothing of protobuf leaves `up`
(agent to relay) and `down` (relay to agent).

A set of DPUs is an integer whose bit n stands for the DPU with the number n on its link: the same code serves an agent
with one DPU and a simulator with a thousand, and splitting, joining and counting cost nothing. Parsing such a bitmap
cannot go wrong, which a compressed one from a hostile peer can.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from eventstore.errors import PermanentError

VERSION = 1
"""Version of this protocol; an agent with another one is refused."""

MAX_LINK_DPUS = 10_000
"""DPUs that one link may speak for."""

MAX_UP_BYTES = 2 * 1024 * 1024
"""Size of a message to a relay at most: a Hello of MAX_LINK_DPUS long names."""

MAX_DOWN_BYTES = 64 * 1024 * 1024
"""Size of a message to an agent at most: a snapshot of three million IPv6 prefixes."""

MAX_PARTS = 256
"""TableStatuses, and refusals, of one message at most; who has more to say says it in several."""

MAX_REASON = 200
"""Characters of a reason that are kept."""

MAX_VERSION = (1 << 63) - 1
"""Epochs and versions at most: what a log can say."""

DIGEST_BYTES = 16


class ProtocolError(PermanentError):
    """The peer said something that this protocol does not allow."""


class TableStatus(NamedTuple):
    """The status of the table on the DPUs in `dpus`: versions of `epoch` by level, and the digest of their table."""

    dpus: int
    epoch: int
    received: int
    applied: int
    in_hardware: int
    digest: bytes


def mask_of(bitmap: bytes) -> int:
    """A bitmap as it travels, as a set of DPUs."""
    return int.from_bytes(bitmap, "little")


def bitmap_of(mask: int) -> bytes:
    """A set of DPUs as it travels."""
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def all_dpus(count: int) -> int:
    """The set of the DPUs 0 to count - 1."""
    return (1 << count) - 1


def union(masks: Iterable[int]) -> int:
    """Everybody who is in one of these sets."""
    joined = 0
    for mask in masks:
        joined |= mask
    return joined


def numbers_of(mask: int) -> list[int]:
    """The members of a set of DPUs, in order."""
    numbers = []
    while mask:
        lowest = mask & -mask
        numbers.append(lowest.bit_length() - 1)
        mask ^= lowest
    return numbers


def printable_line(reason: str) -> str:
    """A peer's words as they may be logged and stored: one printable line, cut if long."""
    printable = "".join(character if character.isprintable() else "?" for character in reason[:MAX_REASON])
    return printable + ("..." if len(reason) > MAX_REASON else "")
