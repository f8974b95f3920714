"""Classes of traffic that policies and rules distinguish: by protocol, and by port where the protocol has ports."""

from __future__ import annotations

from collections.abc import Iterable

from projections.rules.policies import Policy
from projections.rules.rule import Rule

Class = tuple[str, int]
"""A protocol and one port that represents its class: filters treat all traffic of the class alike."""

PORT_MAX = 65_535
PORTLESS = ("other", "icmp")
WITH_PORTS = ("tcp", "udp")


def classes_of(filters: Iterable[Policy | Rule]) -> list[Class]:
    """One representative of every class of traffic that these filters distinguish."""
    all_ports = {each.ports for each in filters}
    firsts = {0, *(port for ports in all_ports for port in ports[::2])}
    after = {port + 1 for ports in all_ports for port in ports[1::2]} - {PORT_MAX + 1}
    ports = sorted(firsts | after)
    return [*((name, 0) for name in PORTLESS), *((name, port) for name in WITH_PORTS for port in ports)]


def fits(filtered_by: Policy | Rule, protocol: str, port: int) -> bool:
    """Whether this filter matches this class of traffic."""
    if filtered_by.protocol not in ("any", protocol):
        return False
    return not filtered_by.ports or any(
        a <= port <= b for a, b in zip(filtered_by.ports[::2], filtered_by.ports[1::2], strict=True)
    )
