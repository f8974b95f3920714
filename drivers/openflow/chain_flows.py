"""The flows of the switches of a network document. Pure.

A packet of a port that is in a switch goes through two tables, as in DPF: the table of learning makes flows for the
packets back to its source, and the table of switching outputs it. There, flows that were learned have the priority 1,
those of multicast 2, and those that output to all other ports 0. All of them are higher by 3 for an interface of a
VLAN, as it shares its port with others.

PTP messages to the MAC address that no bridge forwards go between a service that synchronizes clocks and the physical
interface of its switch only: by flows of the priority 50 in the table of learning, as in DPF.

The two hooks of table 0 for rules have a higher priority than those of chains. So IP packets meet the rules first, and
the allowed ones go to the table of learning; other packets go there at once.

Learned flows end with the flow that learned them, in the same bundle: their cookie is a hash of what they are made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from drivers.openflow import learning
from drivers.openflow import messages as of
from drivers.openflow.messages import Flow

NETWORK_COOKIE = 0xD9A6 << 48
LEARNED_COOKIE = 0xD9A7 << 48
IDLE_S = 10
"""A learned flow ends after this time without a packet, as in DPF."""
_IN_PORT, _ETH_DST, _VLAN_VID = 0, 3, 6
_MULTICAST = b"\x01\x00\x00\x00\x00\x00"
_PTP = bytes.fromhex("0180c200000e")
"""The address of PTP messages that end at the next hop (IEEE 1588, annex E)."""
_PTP_PRIORITY = 50
_TAGGED = 0x1000
_OF_VLAN = 3
SWITCHING_PRIORITIES = frozenset({0, 2, _OF_VLAN, _OF_VLAN + 2})
"""Priorities of the flows of the table of switching that are not learned."""


class Endpoint(NamedTuple):
    """Where an interface is on the bridge: its port, and its VLAN there (0: the port itself)."""

    port: int
    vlan: int = 0


class ChainLayout(NamedTuple):
    """Where the flows of chains are: the table of learning, before that of switching, and the priority of the flows of
    table 0 that send packets there."""

    table: int
    hook_priority: int


class _Connected(NamedTuple):
    """An endpoint with those that it is connected with. A port that is connected with a VLAN carries untagged packets
    only: a tag would not survive the VLAN's."""

    at: Endpoint
    others: tuple[Endpoint, ...]
    cookie: int

    @property
    def is_untagged(self) -> bool:
        return not self.at.vlan and any(other.vlan for other in self.others)


def chain_flows(
    switches: Iterable[tuple[str, Sequence[Endpoint]]],
    layout: ChainLayout,
    ptp: Iterable[tuple[str, Endpoint, Endpoint]] = (),
) -> list[Flow]:
    """The flows of switches, each with the name of its chain and its endpoints. An endpoint in several switches is
    connected with those of all. `ptp` are the pairs of endpoints that exchange PTP messages, with their chains."""
    connected = _connected(switches)
    untagged = frozenset(each.at for each in connected if each.is_untagged)
    found: list[Flow] = []
    for each in connected:
        found += _hook(each, layout)
        found.append(_learning(each, untagged, layout))
        found += _switching(each, layout)
    return found + _ptp_flows(ptp, layout)


def _ptp_flows(pairs: Iterable[tuple[str, Endpoint, Endpoint]], layout: ChainLayout) -> list[Flow]:
    """The flows that send PTP messages of each endpoint to those that it exchanges them with."""
    near: dict[Endpoint, set[Endpoint]] = {}
    chains: dict[Endpoint, set[str]] = {}
    for chain, *pair in pairs:
        for at, other in (pair, pair[::-1]):
            near.setdefault(at, set()).add(other)
            chains.setdefault(at, set()).add(chain)
    found = []
    for at, others in sorted(near.items()):
        actions = b"".join(of.output(other.port) for other in sorted(others))
        match = _match(at, of.field(_ETH_DST, _PTP))
        found.append(Flow(layout.table, _PTP_PRIORITY, chain_cookie(chains[at]), match, of.apply_actions(actions)))
    return found


def _connected(switches: Iterable[tuple[str, Sequence[Endpoint]]]) -> list[_Connected]:
    others: dict[Endpoint, dict[Endpoint, None]] = {}
    chains: dict[Endpoint, set[str]] = {}
    for chain, endpoints in switches:
        for at in endpoints:
            chains.setdefault(at, set()).add(chain)
            near = others.setdefault(at, {})
            # A packet is never output to the port by which it came, so the VLANs of a port are not connected.
            near.update((other, None) for other in endpoints if other.port != at.port)
    return [_Connected(at, tuple(sorted(near)), chain_cookie(chains[at])) for at, near in sorted(others.items())]


def chain_cookie(chains: Iterable[str]) -> int:
    """The cookie of the flows of an endpoint of these chains."""
    return NETWORK_COOKIE | _hash(",".join(sorted(chains)).encode())


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=6).digest(), "big")


def _hook(each: _Connected, layout: ChainLayout) -> list[Flow]:
    """The flow of table 0, and for a port that carries untagged packets only, the one that drops the others."""
    at = each.at
    hook = Flow(0, layout.hook_priority, each.cookie, _match(at), of.goto_table(layout.table))
    if not each.is_untagged:
        return [hook]
    return [hook, Flow(layout.table, 1, each.cookie, _match(at), b"")]


def _learning(each: _Connected, untagged: frozenset[Endpoint], layout: ChainLayout) -> Flow:
    """The flow that learns, for the other endpoints, where the source of a packet is."""
    made = [_specifications(each.at, other, is_untagged=other in untagged) for other in each.others]
    cookie = LEARNED_COOKIE | _hash(b"".join(made))
    actions = b"".join(
        learning.learn(layout.table + 1, 1 + _OF_VLAN * bool(other.vlan), cookie, IDLE_S, specifications)
        for other, specifications in zip(each.others, made, strict=True)
    )
    instructions = (of.apply_actions(actions) if actions else b"") + of.goto_table(layout.table + 1)
    priority = 2 if each.at.vlan or each.is_untagged else 1
    return Flow(layout.table, priority, each.cookie, _match(each.at, is_untagged=each.is_untagged), instructions)


def _specifications(at: Endpoint, other: Endpoint, *, is_untagged: bool) -> bytes:
    """What the packets of `other` to a source behind `at` have, and what happens to them."""
    found = learning.matches(learning.IN_PORT, other.port, 16)
    if other.vlan:
        found += learning.matches(learning.VLAN_TCI, _TAGGED | other.vlan, 13)
    elif is_untagged:
        found += learning.matches(learning.VLAN_TCI, 0, 1, 12)
    found += learning.matches_packet(learning.ETH_DST, learning.ETH_SRC, 48)
    if at.vlan or other.vlan:  # writing 0 removes the tag
        found += learning.loads(learning.VLAN_TCI, _TAGGED | at.vlan if at.vlan else 0, 16)
    return found + learning.outputs_to_source()


def _switching(each: _Connected, layout: ChainLayout) -> list[Flow]:
    """The flows that output to all other endpoints, until the destination is learned."""
    table, base = layout.table + 1, _OF_VLAN * bool(each.at.vlan)
    actions = _to_all(each)
    instructions = of.apply_actions(actions) if actions else b""
    unicast = _match(each.at, is_untagged=each.is_untagged)
    multicast = _match(each.at, of.field(_ETH_DST, _MULTICAST, _MULTICAST), is_untagged=each.is_untagged)
    return [
        Flow(table, base, each.cookie, unicast, instructions),
        Flow(table, base + 2, each.cookie, multicast, instructions),
    ]


def _to_all(each: _Connected) -> bytes:
    """Output to the others: to ports first, then, with their tags, to VLANs."""
    actions = of.pop_vlan() if each.at.vlan else b""
    is_tagged = False
    for other in sorted(each.others, key=lambda found: (found.vlan, found.port)):
        if other.vlan:
            actions += (b"" if is_tagged else of.push_vlan()) + of.set_vlan(other.vlan)
            is_tagged = True
        actions += of.output(other.port)
    return actions if each.others else b""


def _match(at: Endpoint, destination: bytes = b"", *, is_untagged: bool = False) -> bytes:
    """The packets of an endpoint, with the fields in the order in which the switch prints them."""
    vlan = b""
    if at.vlan:
        vlan = of.field(_VLAN_VID, (_TAGGED | at.vlan).to_bytes(2, "big"))
    elif is_untagged:
        vlan = of.field(_VLAN_VID, bytes(2), _TAGGED.to_bytes(2, "big"))
    return of.field(_IN_PORT, at.port.to_bytes(4, "big")) + destination + vlan


class ChainDifference(NamedTuple):
    """The flows of chains in a switch, compared with those that it should have."""

    missing: list[Flow]
    strays: list[Flow]


def compare_chains(found: Iterable[Flow], expected: Iterable[Flow]) -> ChainDifference:
    """Flows to add, and flows to delete. A flow that an added one replaces is not to be deleted: that would come
    last."""
    missing = dict.fromkeys(expected)
    strays = []
    for flow in found:
        if flow in missing:
            del missing[flow]
        else:
            strays.append(flow)
    written = {(flow.table, flow.priority, flow.match) for flow in missing}
    return ChainDifference(
        list(missing), [flow for flow in strays if (flow.table, flow.priority, flow.match) not in written]
    )
