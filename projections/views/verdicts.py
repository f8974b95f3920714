"""Verdicts on the traffic of an address: allowed or denied, by which policy, on which protocols and ports. As on a
device, the first rule that matches a packet decides, and a packet without a matching rule is denied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from projections.rules.rule import Rule
from projections.rules.traffic import PORTS_END

TRAFFIC_PROTOCOLS = ("tcp", "udp", "icmp", "other")
"""All traffic. `other` is every protocol except the first three."""

_WITH_PORTS = ("tcp", "udp")

VerdictSummary = Literal["allowed", "denied", "partly"]


class Matching(NamedTuple):
    """A rule that holds an address, and the policies that give this rule to a node with the address."""

    policy: str
    rule: Rule


class Verdict(NamedTuple):
    """The verdict on a part of the traffic. `ports` is inclusive first-last pairs, flat; empty for all. `policy` is
    empty if no rule matches."""

    allowed: bool
    policy: str
    protocols: tuple[str, ...]
    ports: tuple[int, ...]


def verdicts(rules: Sequence[Matching]) -> tuple[Verdict, ...]:
    """Verdicts that divide the traffic of one address without overlap or gap. `rules` are in order of precedence."""
    of_ports: list[Verdict] = []
    whole: dict[tuple[bool, str], list[str]] = {}
    for protocol in TRAFFIC_PROTOCOLS:
        ranges = _ranges(rules, protocol)
        if len(ranges) == 1:
            whole.setdefault(next(iter(ranges)), []).append(protocol)
        else:
            of_ports += (Verdict(*decided, (protocol,), tuple(ports)) for decided, ports in ranges.items())
    return *of_ports, *(Verdict(*decided, tuple(protocols), ()) for decided, protocols in whole.items())


def summary(found: Iterable[Verdict]) -> VerdictSummary:
    """One word for all traffic; a node without an address is denied."""
    said = {verdict.allowed for verdict in found}
    if len(said) > 1:
        return "partly"
    return "allowed" if said == {True} else "denied"


def sentence(by_address: Mapping[str, Sequence[Verdict]]) -> str:
    """The verdicts on a node's addresses as one readable sentence."""
    if not by_address:
        return "denied: the node has no address"
    rendered = {address: ", ".join(map(_verdict_text, found)) for address, found in by_address.items()}
    if len(set(rendered.values())) == 1:
        return next(iter(rendered.values()))
    return "; ".join(f"{address} {said}" for address, said in rendered.items())


def _verdict_text(verdict: Verdict) -> str:
    word = "allowed" if verdict.allowed else "denied"
    by = f"by policy {verdict.policy}" if verdict.policy else "because no rule matches"
    if verdict.protocols == TRAFFIC_PROTOCOLS:
        return f"{word} on all traffic {by}"
    protocols = " and ".join("other protocols" if name == "other" else name for name in verdict.protocols)
    return f"{word} on {protocols}{f' {ports_text(verdict.ports)}' if verdict.ports else ''} {by}"


def ports_text(ports: Sequence[int]) -> str:
    """First-last pairs on one line."""
    pairs = zip(ports[::2], ports[1::2], strict=True)
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)


def _ranges(rules: Sequence[Matching], protocol: str) -> dict[tuple[bool, str], list[int]]:
    """Port ranges of a protocol, by verdict. A protocol without ports has one range."""
    speaking = [found for found in rules if found.rule.protocol in ("any", protocol)]
    starts = {0}
    for found in speaking:
        if protocol in _WITH_PORTS:
            starts.update(found.rule.ports[::2], (last + 1 for last in found.rule.ports[1::2]))
    ordered = [*sorted(starts - {PORTS_END}), PORTS_END]
    ranges: dict[tuple[bool, str], list[int]] = {}
    for first, end in pairwise(ordered):
        ports = ranges.setdefault(_decided(speaking, first), [])
        if ports and ports[-1] == first - 1:
            ports[-1] = end - 1
        else:
            ports += (first, end - 1)
    return ranges


def _decided(rules: Iterable[Matching], port: int) -> tuple[bool, str]:
    for policy, rule in rules:
        pairs = zip(rule.ports[::2], rule.ports[1::2], strict=True)
        if not rule.ports or any(first <= port <= last for first, last in pairs):
            return rule.action == "allow", policy
    return False, ""
