"""Verdicts per class of traffic, so that a withdrawal counts by its effect on packets.

A policy for one port takes nothing from another port. The rules divide all traffic into classes that none of them
splits: per protocol, and for tcp and udp per range of ports. A class is a bit, so the traffic that a rule matches, and
the traffic that a list of rules allows a source, are integers, and "something turned from allow to deny" is `before &
~after`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from projections.rules.rule import Rule

PORTS_END = 65_536
"""The number after the highest port."""


class TrafficClasses:
    """The traffic classes of these rules: `masks` has the classes that each rule matches."""

    __slots__ = ("masks",)

    def __init__(self, rules: Iterable[Rule]) -> None:
        wanted = frozenset(rules)
        tcp, udp = _starts(wanted, "tcp"), _starts(wanted, "udp")
        bases = {"other": 0, "icmp": 1, "tcp": 2, "udp": 2 + len(tcp)}
        everything = (1 << 2 + len(tcp) + len(udp)) - 1
        starts = {"tcp": tcp, "udp": udp, "icmp": [0]}
        self.masks = {
            rule: everything if rule.protocol == "any" else _mask(rule, starts[rule.protocol]) << bases[rule.protocol]
            for rule in wanted
        }


def _starts(rules: Iterable[Rule], protocol: str) -> list[int]:
    """The first port of every class of a protocol."""
    starts = {0}
    for rule in rules:
        if rule.protocol == protocol:
            starts.update(rule.ports[::2])
            starts.update(last + 1 for last in rule.ports[1::2])
    return sorted(starts - {PORTS_END})


def _mask(rule: Rule, starts: list[int]) -> int:
    ranges = zip(rule.ports[::2], rule.ports[1::2], strict=True) if rule.ports else [(0, PORTS_END - 1)]
    mask = 0
    for first, last in ranges:
        mask |= (1 << bisect_left(starts, last + 1)) - (1 << bisect_left(starts, first))
    return mask


def allowed_classes(rules: Iterable[tuple[bool, int]]) -> int:
    """The classes that a source may use. `rules` are the rules that hold the source, in order of precedence: whether
    the rule allows, and the classes that it matches."""
    may = decided = 0
    for allows, mask in rules:
        if allows:
            may |= mask & ~decided
        decided |= mask
    return may
