"""Rule policies: they allow or deny nodes, selected by labels, access to the DPUs of zones, selected by labels.

A policy named `default` exists from the start. It allows every member to reach every zone, and its priority is lower
than any that can be set. It can be replaced like any other policy. Deleting the replacement restores the built-in
policy, so no table lacks a default policy by accident. The fold validates policies here, because other programs may
write to the topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from projections import field_checks
from projections.rules.rule import Rule
from schemas.events import PolicySet

DEFAULT = "default"
MAX_PRIORITY = 1_000_000
BUILT_IN_PRIORITY = -MAX_PRIORITY - 1
MAX_POLICIES = 1_000
"""Maximum number of policies: bounds the cost of matching one join, and the number of traffic classes."""

MAX_PORT_RANGES = 64
ACTIONS = ("allow", "drop")
RULE_PROTOCOLS = ("any", "tcp", "udp", "icmp")

Selector: TypeAlias = tuple[tuple[str, str], ...]
"""A conjunction of `key=value`, in order of the keys; empty matches everything."""


class Policy(msgspec.Struct, frozen=True):
    """A policy in force. `version` is the position in fleet of its last change, 0 for the built-in one."""

    name: str
    priority: int
    action: str
    protocol: str
    ports: tuple[int, ...]
    sources: dict[str, str]
    zones: dict[str, str]
    version: int

    @property
    def rule(self) -> Rule:
        return Rule(self.priority, self.action, self.protocol, self.ports)

    def content(self) -> tuple[Rule, dict[str, str], dict[str, str]]:
        """The policy's fields, without its name and version."""
        return self.rule, self.sources, self.zones


BUILT_IN = Policy(DEFAULT, BUILT_IN_PRIORITY, "allow", "any", (), {}, {}, 0)


def selector(labels: Mapping[str, str]) -> Selector:
    """Labels in their canonical form."""
    return tuple([(key, labels[key]) for key in sorted(labels)])


def matches(wanted: Mapping[str, str] | Selector, labels: Mapping[str, str]) -> bool:
    """Whether a selector matches these labels."""
    pairs = wanted if isinstance(wanted, tuple) else wanted.items()
    return all(labels.get(key) == value for key, value in pairs)


def policy_of(event: PolicySet, version: int) -> Policy:
    """The policy that a valid event describes; its ports sorted, and merged where they touch."""
    return Policy(
        name=event.name,
        priority=event.priority,
        action=event.action,
        protocol=event.protocol,
        ports=_joined(event.ports),
        sources=dict(sorted(event.sources.items())),
        zones=dict(sorted(event.zones.items())),
        version=version,
    )


def _joined(ports: Sequence[int]) -> tuple[int, ...]:
    joined: list[int] = []
    for first, last in sorted(zip(ports[::2], ports[1::2], strict=True)):
        if joined and first <= joined[-1] + 1:
            joined[-1] = max(joined[-1], last)
        else:
            joined += (first, last)
    return tuple(joined)


def fault_of_policy(event: PolicySet) -> str | None:
    """Why a policy is invalid, in one sentence; None if it is valid."""
    if event.action not in ACTIONS:
        return f"action: {field_checks.quoted(event.action)} must be allow or drop"
    if event.protocol not in RULE_PROTOCOLS:
        return f"protocol: {field_checks.quoted(event.protocol)} must be any, tcp, udp or icmp"
    if not -MAX_PRIORITY <= event.priority <= MAX_PRIORITY:
        return f"priority: {event.priority} must be from -{MAX_PRIORITY} to {MAX_PRIORITY}"
    return (
        field_checks.check_zone("name", event.name)
        or _ports_fault(event.ports, event.protocol)
        or field_checks.check_labels("sources", event.sources)
        or field_checks.check_labels("zones", event.zones)
    )


def _ports_fault(ports: Sequence[int], protocol: str) -> str | None:
    if not ports:
        return None
    if protocol not in ("tcp", "udp"):
        return f"ports: must be empty with protocol {protocol!a}: only tcp and udp have ports"
    if len(ports) % 2 or len(ports) > 2 * MAX_PORT_RANGES:
        return f"ports: {len(ports)} port numbers must be at most {MAX_PORT_RANGES} pairs of first and last"
    for first, last in zip(ports[::2], ports[1::2], strict=True):
        if not 0 <= first <= last <= 65_535:
            return f"ports: {first}-{last} must be FIRST-LAST, each from 0 to 65535, in order"
    return None
