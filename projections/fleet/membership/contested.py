"""Contested addresses: a node agent set the address of its node while another node held that address. A contested
address is not effective.

A member's row keeps such an address apart (`contested4`, `contested6`), and the member is reachable by its other
address only. When no node holds the address any more, the first waiting node by name gets the address. An address that
a hold retains after its node left counts as held. An operator's address is never contested: it is effective at once,
and the conflict is reported on both nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from msgspec.structs import replace

from eventstore.reasons import Fault, Reason
from projections.field_checks import quoted
from projections.fleet.membership.address_index import Address
from projections.fleet.membership.rows import Member, MembershipColumns
from projections.fleet.state import FleetState
from schemas.events import AGENT_ADDRESS4, AGENT_ADDRESS6, PRESENT, SUPERSEDED


def agent_bits(state: int) -> int:
    """The bits (AGENT_JOINED, AGENT_ADDRESS4, AGENT_ADDRESS6) of the fields that the node's own agent set."""
    return max(0, state - SUPERSEDED)


class RecordAddresses:
    """The addresses that one record sets. If an operator and an agent set the same address, the operator's node gets
    it."""

    def __init__(self, state: FleetState, items: MembershipColumns) -> None:
        self._state = state
        self._taken: dict[Address, str] = {}
        if max(items.states, default=0) <= SUPERSEDED:
            return
        columns = zip(items.names, items.states, items.addresses4.values, items.addresses6.values, strict=True)
        for name, found, address4, address6 in columns:
            bits = agent_bits(found)
            if found == PRESENT or bits:
                for bit, address in ((AGENT_ADDRESS4, address4), (AGENT_ADDRESS6, address6)):
                    if address and not bits & bit:
                        self._taken[address] = name

    def admit(self, name: str, member: Member, bits: int) -> Member:
        """The row of a node. An address that its agent set becomes a contested address if another node holds it."""
        contested4 = bits & AGENT_ADDRESS4 and self._is_of_another(name, member.address4)
        contested6 = bits & AGENT_ADDRESS6 and self._is_of_another(name, member.address6)
        if contested4:
            member = replace(member, address4=0, contested4=member.address4)
        if contested6:
            member = replace(member, address6=b"", contested6=member.address6)
        return member

    def _is_of_another(self, name: str, address: Address) -> bool:
        """Whether another node already has this address. If no node has it, this call reserves it for this node against
        later items of the record."""
        if not address:
            return False
        holders = {
            self._state.slot_table.names[slot] for slot in self._state.slot_table.address_index.slots_of(address)
        }
        if name in holders:
            return False
        return bool(holders) or self._taken.setdefault(address, name) != name


def grant(state: FleetState, addresses: Iterable[Address]) -> Mapping[Address, int]:
    """Give each of these addresses that no node holds to the first node, by name, that waits for it. Returns the rule
    sets of each granted address."""
    granted: dict[Address, int] = {}
    for address in addresses:
        waiting = (name for name in state.contested.get(address, ()) if state.members.rows[name].slot >= 0)
        name = None if state.slot_table.address_index.slots_of(address) else min(waiting, default=None)
        if name is not None:
            _give(state, name, address)
            granted[address] = state.slot_table.bits(address)
    return granted


def _give(state: FleetState, name: str, address: Address) -> None:
    before = state.members.rows[name]
    state.slot_table.free(before.slot, before.address4, before.address6)
    if isinstance(address, int):
        after = replace(before, address4=address, contested4=0)
    else:
        after = replace(before, address6=address, contested6=b"")
    number = state.labels.intern(after.labels, state.plan)
    after = replace(after, slot=state.slot_table.allocate(name, after.address4, after.address6, number))
    state.members.put(name, after)
    state.contest(name, before, after)


def faults_of_agent(state: FleetState, name: str, zone: str) -> tuple[Fault, ...]:
    """Why values that a node's agent set are not effective, one sentence for each."""
    member = state.members.rows.get(name)
    if member is not None and not member.held and member.zone != zone:
        reason = (
            f"node: {quoted(name)} is in zone {quoted(member.zone)}, and a node agent cannot move a node; an operator"
            f" can move it, or remove it with 'dpuplane nodes leave {name}'"
        )
        return (Fault(reason, Reason.NODE_IN_OTHER_ZONE, node=name, zone=member.zone),)
    return withheld_addresses(state, name)


def withheld_addresses(state: FleetState, name: str) -> tuple[Fault, ...]:
    """Why addresses that a node's agent set are not effective, one sentence for each."""
    member = state.members.rows.get(name)
    found: list[Fault] = []
    for address in (member.contested4, member.contested6) if member is not None else ():
        slots = state.slot_table.address_index.slots_of(address) if address else ()
        if slots:
            holder = min(state.slot_table.names[slot] for slot in slots)
            text = str(ip_address(address))
            reason = (
                f"address: {text!r} of {quoted(name)} is withheld: its agent stated it, and node"
                f" {quoted(holder)} holds it; it takes effect when that node gives it up, or when an operator states it"
            )
            found.append(Fault(reason, Reason.ADDRESS_IN_USE, address=text, node=holder))
    return tuple(found)
