"""Rules, and the deltas between versions of a table: the types that the control plane and devices share.

A device's table holds, per rule, a set of prefixes. A rule matches a packet if its protocol and ports match, and one of
its prefixes holds the packet's source. The first matching rule, in order of precedence, decides. A packet that no rule
matches is denied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias


class Rule(NamedTuple):
    """The action for the traffic of a set of sources. `ports` is inclusive first-last pairs, flat; empty for all."""

    priority: int
    action: str
    protocol: str
    ports: tuple[int, ...]


class SetStep(NamedTuple):
    """Prefixes added to and removed from one rule, packed: 5 bytes (address, length) each for IPv4, 17 for IPv6."""

    rule: Rule
    add4: bytes
    add6: bytes
    remove4: bytes
    remove6: bytes


class Delta(NamedTuple):
    """The change from one version of a table to another, in the order in which a device must apply its steps.

    A delta from version 0 is a snapshot: the whole table. `digest` is the digest of the table after the delta.
    """

    from_version: int
    to_version: int
    digest: bytes
    steps: tuple[SetStep, ...]


class Held(NamedTuple):
    """The table that a DPU reports: a version within an epoch, and its digest."""

    epoch: int
    version: int
    digest: bytes


Holdings: TypeAlias = Mapping[str, Mapping[str, Held]]
"""The tables of DPUs, by zone and name."""


def precedence(rule: Rule) -> tuple[int, bool, str, tuple[int, ...]]:
    """Sort key, first rule first: higher priority, then drop before allow; the other fields only break ties."""
    return (-rule.priority, rule.action != "drop", rule.protocol, rule.ports)


def size(delta: Delta) -> int:
    """Bytes of prefixes in a delta."""
    return sum(len(s.add4) + len(s.add6) + len(s.remove4) + len(s.remove6) for s in delta.steps)
