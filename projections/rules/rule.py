"""What a rule is, and how a table goes from one version to the next: the words that plane and devices share.

A device's table holds, per rule, a set of prefixes. Its verdict on a packet is that of the first rule, in order of
precedence, whose protocol and ports fit and one of whose prefixes holds the packet's source; none: denied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias


class Rule(NamedTuple):
    """What becomes of the traffic of a set of sources. `ports` is inclusive first-last pairs, flat; empty for all."""

    priority: int
    action: str
    protocol: str
    ports: tuple[int, ...]


class SetStep(NamedTuple):
    """Prefixes of one rule that come and go, packed: 5 bytes (address, length) each for IPv4, 17 for IPv6."""

    rule: Rule
    add4: bytes
    add6: bytes
    remove4: bytes
    remove6: bytes


class Delta(NamedTuple):
    """The way from one version of a table to another, steps in the order in which a device must apply them.

    A delta from version 0 is a snapshot: the whole table. `digest` is that of the table after it.
    """

    from_version: int
    to_version: int
    digest: bytes
    steps: tuple[SetStep, ...]


class Held(NamedTuple):
    """What a DPU has, in its own words: a version within an epoch, and the digest of its table."""

    epoch: int
    version: int
    digest: bytes


Holdings: TypeAlias = Mapping[str, Mapping[str, Held]]
"""What DPUs have, by zone and name."""


def precedence(rule: Rule) -> tuple[int, bool, str, tuple[int, ...]]:
    """Sort key, first rule first: higher priority, then drop before allow; the rest only makes it an order."""
    return (-rule.priority, rule.action != "drop", rule.protocol, rule.ports)


def size(delta: Delta) -> int:
    """Bytes of prefixes that a delta carries."""
    return sum(len(s.add4) + len(s.add6) + len(s.remove4) + len(s.remove6) for s in delta.steps)
