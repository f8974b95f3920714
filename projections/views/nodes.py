"""Views of nodes: their state in their zone, and the state of their addresses in fleet."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from projections.fleet.membership.address_index import Address
from projections.fleet.membership.contested import withheld_addresses
from projections.fleet.membership.rows import Member
from projections.fleet.state import FleetState
from projections.fleet.views import HELD, hold_state
from projections.zones.rows import Node
from projections.zones.state import ZonesState


class NodeView(NamedTuple):
    name: str
    zone: str
    addresses: tuple[str, ...]
    labels: dict[str, str]
    create_time_ms: int
    uid: str
    held: bool
    conflicts: tuple[str, ...] = ()
    withheld: str = ""
    hold_state: str = ""


def view(name: str, node: Node | Member, fleet: FleetState) -> NodeView:
    """The view of one node."""
    member = fleet.members.rows.get(name)
    return NodeView(
        name=name,
        zone=node.zone,
        addresses=_addresses(node),
        labels=node.labels,
        create_time_ms=node.created_ms,
        uid=node.uid,
        held=hold_state(fleet, name) == HELD,
        hold_state=hold_state(fleet, name),
        conflicts=_conflicts(name, node, member, fleet),
        withheld="; ".join(withheld_addresses(fleet, name)),
    )


def retained_nodes(
    fleet: FleetState, zone: str, number_of: Callable[[str], int], there: Mapping[int, Container[str]]
) -> dict[int, dict[str, Member]]:
    """Nodes that have left but that a hold retains, by the partition of their zone. An empty `zone` means all zones."""
    kept: dict[int, dict[str, Member]] = {}
    for names in fleet.held_names.values():
        for name in names:
            member = fleet.members.rows[name]
            number = number_of(member.zone)
            if member.held and zone in ("", member.zone) and name not in there.get(number, (name,)):
                kept.setdefault(number, {})[name] = member
    return kept


def find(name: str, places: Iterable[Node | None], fleet: FleetState) -> NodeView | None:
    """A node by name: its newest incarnation in any zone, or the state that a hold retains after the node left."""
    found: list[Node | Member] = [node for node in places if node is not None]
    member = fleet.members.rows.get(name)
    if not found and member is not None:
        found = [member]
    if not found:
        return None
    return view(name, max(found, key=lambda node: (node.created_ms, node.uid)), fleet)


def zone_of_node(name: str, states: Iterable[ZonesState], fleet: FleetState) -> str | None:
    """The zone of a node's newest incarnation, or the zone it left if a hold retains it; None if it is in no zone."""
    found = (state.nodes.rows.get(name) for state in states)
    newest = max(filter(None, found), key=lambda node: (node.created_ms, node.uid), default=None)
    member = fleet.members.rows.get(name)
    kept = member.zone if member is not None and member.held else None
    return newest.zone if newest is not None else kept


def _addresses(node: Node | Member) -> tuple[str, ...]:
    four = (str(IPv4Address(node.address4)),) if node.address4 else ()
    six = (str(IPv6Address(node.address6)),) if node.address6 else ()
    return four + six


def _conflicts(name: str, node: Node | Member, member: Member | None, fleet: FleetState) -> tuple[str, ...]:
    """Other nodes that hold one of the node's addresses, or wait for it.

    If this node holds the address, any other holder must be in the index of shared addresses. A lookup there is fast.
    Otherwise the lookup may have to search a stored batch of addresses.
    """
    holders = fleet.slot_table.address_index
    is_held = member is not None and (member.slot >= 0 or member.held) and _says(member) == _says(node)
    names: set[str] = set()
    addresses: tuple[Address, ...] = _says(node)
    for address in (each for each in addresses if each):
        slots = holders.shared.get(address, ()) if is_held else holders.slots_of(address)
        names |= {fleet.slot_table.names[slot] for slot in slots}
        names |= fleet.contested.get(address, set())
    return tuple(sorted(names - {name}))


def _says(node: Node | Member) -> tuple[int, bytes]:
    return node.address4, node.address6
