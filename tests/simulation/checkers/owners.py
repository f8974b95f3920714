"""Statements of node agents: they alter no data of an operator and take no address of another node.

Computed from raw records, the rows that each record changed, and the limits of zones in rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Any

from eventstore.log import FLEET_0, ZONES
from projections.fleet.membership.rows import Member, ReachableState, RetainedStates
from projections.zones.rows import Node, Zone
from schemas import events as e
from tests.simulation.checkers.evidence import Evidence
from tests.simulation.fresh import Step

Found = Iterator[str]

_BITS = ((e.AGENT_ADDRESS4, "address4"), (e.AGENT_ADDRESS6, "address6"))


def check_owners(run: Evidence) -> Found:
    """I24: an agent changes no label of an operator, states only addresses of its networks, and moves no node."""
    for partition, steps in run.steps.items():
        if partition.topic != ZONES:
            continue
        zones: dict[str, Zone] = {}
        nodes: dict[str, Node] = {}
        for step in steps:
            if isinstance(step.event, e.NodesJoined | e.NodesChanged | e.NodesLeft) and _is_agents(step.event):
                yield from (f"{partition}@{step.record.offset}: {fault}" for fault in _faults(step, zones, nodes))
            _take(zones, step.rows.get("zones", ()))
            _take(nodes, step.rows.get("nodes", ()))


def _faults(step: Step, zones: Mapping[str, Zone], nodes: Mapping[str, Node]) -> Found:
    for name, row in step.rows.get("nodes", ()):
        before = nodes.get(name)
        had = before.labels if before is not None else {}
        zone = zones.get(row.zone if row is not None else before.zone if before is not None else "")
        if zone is None:
            yield f"an agent created the zone of {name}"
            continue
        has = row.labels if row is not None else {}
        altered = sorted(key for key in had.keys() | has.keys() if had.get(key) != has.get(key))
        if not {*altered} <= {*zone.agent_label_keys}:
            yield f"an agent altered the labels {altered} of {name}, and may alter only {zone.agent_label_keys}"
        if row is None:
            continue
        if before is not None and before.zone != row.zone:
            yield f"an agent moved {name} from {before.zone} to {row.zone}"
        for bit, field in _BITS:
            address, was = getattr(row, field), getattr(before, field, None)
            if address and address != was and not _is_in(address, zone.agent_networks):
                yield f"an agent gave {name} the address {ip_address(address)}, which is in no network of the zone"
            if before is not None and was and not before.agent & bit and address != was:
                yield f"an agent replaced {ip_address(was)} of {name}, which an operator stated"


def check_addresses(run: Evidence) -> Found:
    """I24: no node gets an address from its agent while another node has that address.

    An address that a retained state of the node has is not new to it.
    """
    members: dict[str, Member] = {}
    retained: dict[str, RetainedStates] = {}
    for step in run.steps[FLEET_0]:
        before = {name: _states_of(name, members, retained) for name, _ in step.rows.get("members", ())}
        _take(members, step.rows.get("members", ()))
        _take(retained, step.rows.get("retained", ()))
        if not isinstance(step.event, e.MembershipChanged):
            continue
        bits = {name: max(0, state - e.SUPERSEDED) for name, state in _states(step.event)}
        for name in sorted(before.keys() & bits.keys()):
            row = members.get(name)
            for bit, field in _BITS if row is not None and row.slot >= 0 else ():
                address = getattr(row, field)
                if not address or not bits[name] & bit or any(getattr(was, field) == address for was in before[name]):
                    continue
                others = [n for n, m in members.items() if n != name and m.slot >= 0 and getattr(m, field) == address]
                if others:
                    yield f"{name} got {ip_address(address)} from its agent, although {others[0]} has it"


def _states_of(
    name: str, members: Mapping[str, Member], retained: Mapping[str, RetainedStates]
) -> list[Member | ReachableState]:
    """The newest state of a node, and its retained former states."""
    newest_incarnations = [members[name]] if name in members else []
    return [*newest_incarnations, *(retained[name].states if name in retained else ())]


def check_contested(run: Evidence) -> Found:
    """I24: a node waits for an address only while another node, or a retained state of one, has it."""
    members: dict[str, Member] = {}
    retained: dict[str, RetainedStates] = {}
    waiting: set[str] = set()
    for step in run.steps[FLEET_0]:
        changed = step.rows.get("members", ())
        _take(members, changed)
        _take(retained, step.rows.get("retained", ()))
        for name, row in changed:
            if row is not None and row.slot >= 0 and (row.contested4 or row.contested6):
                waiting.add(name)
            else:
                waiting.discard(name)
        parts = [part for row in retained.values() for part in row.states] if waiting else []
        effective = [row for row in members.values() if row.slot >= 0] if waiting else []
        holders: list[Member | ReachableState] = [*effective, *parts]
        held = {address for row in holders for address in (row.address4, row.address6)}
        for name in sorted(waiting):
            for address in (members[name].contested4, members[name].contested6):
                if address and address not in held:
                    yield f"fleet@{step.record.offset}: {name} waits for {ip_address(address)}, which no node has"


def _states(event: e.MembershipChanged) -> Iterator[tuple[str, int]]:
    states = event.states if len(event.states) == len(event.names) else event.states * len(event.names)
    return zip(event.names, states, strict=True)


def _is_agents(event: Any) -> bool:
    return bool(event.envelope.actor.startswith("node-agent/"))


def _is_in(address: Any, networks: tuple[str, ...]) -> bool:
    return any(ip_address(address) in ip_network(text) for text in networks)


def _take(rows: dict[str, Any], changed: Any) -> None:
    for key, row in changed:
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row
