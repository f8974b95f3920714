"""The flows of a rule table, and the rules that the flows of a switch amount to. Pure.

One prefix of a rule is one flow, however many ports the rule has: a rule with several protocols or ranges of ports is a
conjunction (ovs-fields(7), "Conjunctive Match Fields") of its prefixes and its ports. The cookie of a flow tells its
rule: the upper 16 bits are those of the plane, the others a hash of the rule. Flows with other cookies belong to other
programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from drivers.openflow import messages as of
from drivers.openflow.messages import Flow
from projections.rules import digests
from projections.rules.device_table import WIDTH4, DeviceTable, Prefixes
from projections.rules.rule import Rule, precedence

COOKIE = 0xD9A5 << 48
COOKIE_MASK = 0xFFFF << 48
ETH_TYPE, IP_PROTO, IPV4_SRC, TCP_DST, UDP_DST, IPV6_SRC, ICMPV6_TYPE = 5, 10, 11, 14, 16, 26, 29
PRIORITY_MIN, PRIORITY_MAX = 16, 65_000
NEIGHBOR_PRIORITY = PRIORITY_MAX + 1
_NEIGHBOR_TYPES = range(133, 137)
"""Types of ICMPv6 messages of neighbor discovery (RFC 4861): solicitations and advertisements of routers and neighbors.
A host drops those that a router has forwarded."""
_TCP, _UDP = 6, 17
_PORT_FIELDS = {_TCP: TCP_DST, _UDP: UDP_DST}
_NUMBERS = {"tcp": (_TCP, _TCP), "udp": (_UDP, _UDP), "icmp": (1, 58)}
"""Protocol numbers of IPv4 and IPv6."""


class Family(NamedTuple):
    """An address family: its number, EtherType, the OXM field of the source, and the bytes of an address."""

    number: int
    eth_type: int
    source: int
    width: int


FAMILIES = (Family(0, 0x0800, IPV4_SRC, 4), Family(1, 0x86DD, IPV6_SRC, 16))


class FlowLayout(NamedTuple):
    """Where the flows of a bridge are: the table of the rules, what an allowed packet does next (instructions), and the
    priority of the flows of table 0 that send packets to the rules. `chains` is the table in which the switches of
    chains begin, and `unchained` what a packet does there whose port is in no chain (instructions)."""

    table: int
    allowed: bytes
    hook_priority: int
    chains: int
    unchained: bytes


def rule_cookie(rule: Rule) -> int:
    """The cookie of the flows of a rule."""
    return COOKIE | int.from_bytes(blake2b(repr(tuple(rule)).encode(), digest_size=6).digest(), "big")


def fixed_flows(layout: FlowLayout) -> list[Flow]:
    """The flows that do not depend on rules: IP packets go to the table of the rules, and what no rule matches is
    dropped there. Neighbor discovery is allowed from every source, as ARP is, which is no IP: its sources are also
    link-local addresses and routers, so without it no packet of an allowed IPv6 address would arrive. The last flow of
    the chains is here because allowed packets need it, whether there are chains or not."""
    hooks = [
        Flow(0, layout.hook_priority, COOKIE, _eth_type(family), of.goto_table(layout.table))
        for family in FAMILIES
        if layout.table
    ]
    neighbors = [
        Flow(layout.table, NEIGHBOR_PRIORITY, COOKIE, _ICMPV6 + of.field(ICMPV6_TYPE, bytes((kind,))), layout.allowed)
        for kind in _NEIGHBOR_TYPES
    ]
    last = Flow(layout.chains, 0, COOKIE, b"", layout.unchained)
    return [*hooks, *neighbors, Flow(layout.table, 0, COOKIE, b"", b""), last]


class RuleFlows:
    """The flows of one rule at one priority."""

    def __init__(self, rule: Rule, priority: int, layout: FlowLayout) -> None:
        self.cookie = rule_cookie(rule)
        self.priority = priority
        self._table = layout.table
        self._verdict = layout.allowed if rule.action == "allow" else b""
        self._clauses = tuple(_clauses(rule, family) for family in FAMILIES)
        self._id = self.cookie & 0xFFFF_FFFF
        self._is_conjunction = tuple(len(clauses) > 1 for clauses in self._clauses)

    def flow(self, prefix: bytes) -> Flow:
        """The flow of a prefix."""
        family = FAMILIES[len(prefix) != WIDTH4]
        source = _ETH_TYPES[family.number] + _source(family, prefix)
        if self._is_conjunction[family.number]:
            instructions = of.apply_actions(of.conjunction(self._id, 0, 2))
            return Flow(self._table, self.priority, self.cookie, source, instructions)
        return Flow(self._table, self.priority, self.cookie, source + self._clauses[family.number][0], self._verdict)

    def prefix_of(self, flow: Flow) -> bytes | None:
        """The prefix whose flow this is; None if it is not the flow of a prefix of this rule."""
        prefix = _prefix(flow.match)
        return prefix if prefix is not None and self.flow(prefix) == flow else None

    def shared(self, family: Family) -> list[Flow]:
        """The flows that all prefixes of a family share."""
        if not self._is_conjunction[family.number]:
            return []
        instructions = of.apply_actions(of.conjunction(self._id, 1, 2))
        clauses = [
            Flow(self._table, self.priority, self.cookie, _eth_type(family) + clause, instructions)
            for clause in self._clauses[family.number]
        ]
        completed = of.conjunction_id(self._id) + _eth_type(family)
        return [*clauses, Flow(self._table, self.priority, self.cookie, completed, self._verdict)]

    def flows(self, prefixes: Prefixes) -> Iterator[Flow]:
        """All flows of the rule with these prefixes."""
        yield from map(self.flow, prefixes)
        yield from _shared(self, prefixes)


def _shared(flows: RuleFlows, prefixes: Prefixes) -> Iterator[Flow]:
    """The flows that these prefixes share, of the families that they have."""
    for index in sorted({len(prefix) != WIDTH4 for prefix in prefixes}):
        yield from flows.shared(FAMILIES[index])


def table_flows(table: DeviceTable, priorities: Mapping[Rule, int], layout: FlowLayout) -> Iterator[Flow]:
    """All flows of a table."""
    yield from fixed_flows(layout)
    for rule, prefixes in table.rules.items():
        yield from RuleFlows(rule, priorities[rule], layout).flows(prefixes)


class Priorities:
    """Priorities of rules in a switch, 16 bits, in the order of precedence. A new rule is placed between its neighbors,
    so that no flow of another rule has to change."""

    def __init__(self, of_rules: Mapping[Rule, int] | None = None) -> None:
        self.of_rules: dict[Rule, int] = dict(of_rules or {})

    @classmethod
    def spread(cls, rules: Iterable[Rule]) -> Priorities:
        """New priorities, at equal distances. Raises ValueError if there are too many rules."""
        ordered = sorted(rules, key=precedence, reverse=True)
        step = (PRIORITY_MAX - PRIORITY_MIN) // (len(ordered) + 1)
        if not step:
            raise ValueError(f"{len(ordered)} rules are more than a switch can order")
        return cls({rule: PRIORITY_MIN + step * number for number, rule in enumerate(ordered, 1)})

    def place(self, rule: Rule) -> bool:
        """Give a rule a priority unless it has one. Returns False if there is no room between its neighbors."""
        if rule in self.of_rules:
            return True
        key = precedence(rule)
        above = min((own for other, own in self.of_rules.items() if precedence(other) < key), default=PRIORITY_MAX)
        below = max((own for other, own in self.of_rules.items() if precedence(other) > key), default=PRIORITY_MIN)
        if above - below < 2:
            return False
        self.of_rules[rule] = (above + below) // 2
        return True

    def is_ordered(self) -> bool:
        """Whether the priorities are in the order of precedence."""
        ordered = sorted(self.of_rules, key=precedence)
        numbers = [self.of_rules[rule] for rule in ordered]
        return numbers == sorted(set(numbers), reverse=True)


class FlowComparison:
    """The flows of a switch, with cookies of the plane, compared one by one with those of a table. It needs little more
    memory than the table, because agents run on devices that have little."""

    def __init__(self, table: DeviceTable, priorities: Mapping[Rule, int], layout: FlowLayout) -> None:
        self._table = table
        self._flows = {rule: RuleFlows(rule, priorities[rule], layout) for rule in table.rules}
        self._rules = {flows.cookie: rule for rule, flows in self._flows.items()}
        self._lacking = {rule: set(prefixes) for rule, prefixes in table.rules.items()}
        """The prefixes of each rule whose flows have not been found."""
        shared = [flow for rule, found in self._flows.items() for flow in _shared(found, table.rules[rule])]
        self._single = dict.fromkeys([*fixed_flows(layout), *shared])
        """The flows, other than those of prefixes, that have not been found."""
        self._fixed = frozenset(fixed_flows(layout))
        self._strays: list[Flow] = []
        self.is_empty = True
        """Whether the switch has no flow with a cookie of the plane."""

    def add(self, flow: Flow) -> None:
        """Take a flow of the switch."""
        self.is_empty = False
        rule = self._rules.get(flow.cookie)
        prefix = self._flows[rule].prefix_of(flow) if rule is not None else None
        if rule is not None and prefix is not None and prefix in self._lacking[rule]:
            self._lacking[rule].remove(prefix)
        elif flow in self._single:
            del self._single[flow]
        else:
            self._strays.append(flow)

    def missing(self) -> Iterator[Flow]:
        """The flows that the switch lacks."""
        yield from self._single
        for rule, prefixes in self._lacking.items():
            yield from map(self._flows[rule].flow, prefixes)

    def strays(self) -> list[Flow]:
        """The flows to delete. A flow that a missing one replaces is not among them."""
        if not self._strays:
            return []
        found = {_place(flow) for flow in self._strays}
        replaced = {place for place in map(_place, self.missing()) if place in found}
        return [flow for flow in self._strays if _place(flow) not in replaced]

    @property
    def lacks_fixed(self) -> bool:
        """Whether a flow that does not depend on rules is missing."""
        return any(flow in self._fixed for flow in self._single)

    @property
    def differences(self) -> int:
        """The number of flows that are missing, and of those to delete."""
        return len(self._single) + sum(map(len, self._lacking.values())) + len(self.strays())

    def digest(self) -> bytes:
        """The digest of the table that the flows amount to. A flow that belongs to no rule of the table changes it, and
        a rule with a missing flow that its prefixes share counts as missing."""
        if not self.differences:
            return self._table.digest
        total = int(bool(self.strays()) or self.lacks_fixed)
        for rule in self._table.rules:
            total += digests.digest_of(rule, *(self._held(rule, family) for family in FAMILIES))
        return digests.to_bytes(total)

    def _held(self, rule: Rule, family: Family) -> bytes:
        if any(flow in self._single for flow in self._flows[rule].shared(family)):
            return b""
        prefixes, lacking = self._table.rules[rule], self._lacking[rule]
        return b"".join(
            prefix for prefix in prefixes if (len(prefix) != WIDTH4) == family.number and prefix not in lacking
        )


def _place(flow: Flow) -> tuple[int, int, bytes]:
    """What tells a flow from the others in a switch."""
    return flow.table, flow.priority, flow.match


def priorities_found(by_cookie: Mapping[int, int], rules: Iterable[Rule]) -> Priorities:
    """The priorities that the flows of a switch have, for the rules that it knows; all are new if they are out of
    order. One that no rule may have, such as that of the last flow, is that of a flow of another program. Raises
    ValueError if there are too many rules."""
    found = ((rule, by_cookie.get(rule_cookie(rule), 0)) for rule in rules)
    known = {rule: priority for rule, priority in found if PRIORITY_MIN < priority < PRIORITY_MAX}
    priorities = Priorities(known)
    if priorities.is_ordered() and all(priorities.place(rule) for rule in rules):
        return priorities
    return Priorities.spread(rules)


def removed_flows(flows: RuleFlows, prefixes: Prefixes, left: Prefixes) -> Iterator[Flow]:
    """The flows to delete when a rule keeps only the prefixes `left`."""
    for prefix in prefixes:
        yield flows.flow(prefix)
    for family in FAMILIES:
        if not any((len(prefix) != WIDTH4) == family.number for prefix in left):
            yield from flows.shared(family)


def _eth_type(family: Family) -> bytes:
    return of.field(ETH_TYPE, family.eth_type.to_bytes(2, "big"))


def _source(family: Family, prefix: bytes) -> bytes:
    """The match of a prefix as the switch prints it: without a mask for a whole address, nothing for length 0."""
    address, length = prefix[:-1], prefix[-1]
    bits = family.width * 8
    if length == bits:
        return _WHOLE_SOURCES[family.number] + address
    if not length:
        return b""
    return of.field(family.source, address, ((1 << bits) - (1 << bits - length)).to_bytes(family.width, "big"))


def _prefix(match: bytes) -> bytes | None:
    """The prefix of a match that begins as one of a prefix does: with an EtherType, and with a source unless it has
    length 0."""
    head = _HEADS.get(match[:_HEAD])
    if head is None:
        width = _WIDTHS.get(match[:_ETH_TYPE])
        return None if width is None else bytes(width + 1)
    width, has_mask = head
    address, mask = match[_HEAD : _HEAD + width], match[_HEAD + width : _HEAD + 2 * width]
    return address + (int.from_bytes(mask, "big").bit_count() if has_mask else 8 * width).to_bytes(1, "big")


_ETH_TYPES = tuple(map(_eth_type, FAMILIES))
"""Made once: a table has a flow for each of its prefixes."""
_ICMPV6 = _ETH_TYPES[1] + of.field(IP_PROTO, bytes((_NUMBERS["icmp"][1],)))
_ETH_TYPE, _HEAD = 6, 10
"""Bytes of the EtherType of a match, and of those with the header of the source."""
_WIDTHS = {_eth_type(family): family.width for family in FAMILIES}
_WHOLE_SOURCES = tuple(of.field(family.source, bytes(family.width))[:4] for family in FAMILIES)
"""The headers of the sources that are whole addresses."""
_HEADS = {
    _eth_type(family) + of.field(family.source, bytes(family.width), mask)[:4]: (family.width, bool(mask))
    for family in FAMILIES
    for mask in (b"", bytes(family.width))
}


def _clauses(rule: Rule, family: Family) -> list[bytes]:
    """The matches of protocol and ports, of which a packet must have one."""
    numbers = [_NUMBERS[rule.protocol][family.number]] if rule.protocol in _NUMBERS else []
    if not rule.ports:
        return [_protocol(number) for number in numbers] or [b""]
    pairs = zip(rule.ports[::2], rule.ports[1::2], strict=True)
    masked = sorted({found for first, last in pairs for found in port_masks(first, last)})
    return [
        _protocol(number) + _port(_PORT_FIELDS[number], value, mask)
        for number in numbers or (_TCP, _UDP)
        for value, mask in masked
    ]


def _protocol(number: int) -> bytes:
    return of.field(IP_PROTO, bytes((number,)))


def _port(field: int, value: int, mask: int) -> bytes:
    if not mask:
        return b""
    return of.field(field, value.to_bytes(2, "big"), b"" if mask == 0xFFFF else mask.to_bytes(2, "big"))


def port_masks(first: int, last: int) -> Iterator[tuple[int, int]]:
    """The fewest pairs of value and mask that match exactly the ports from `first` to `last`."""
    while first <= last:
        size = first & -first or 1 << 16
        while first + size - 1 > last:
            size >>= 1
        yield first, 0x1_0000 - size
        first += size
