"""Ownership of a node's fields between its node agent and operators: each label and each address has an owner.

An operator owns the zone of a node and every label, except for label keys that the zone leaves to agents. An address
belongs to the principal that set it last. So a command of an agent is merged into the node's row: labels of other keys
and addresses of an operator stay unchanged, whether the agent repeats them or leaves them out. If one value is beyond
the agent's rights, all its values for the node are refused. An agent must not set a label of another key, an address
outside the zone's networks, an address in place of an operator's address, a zone other than the node's, or a zone that
does not exist. Repeating a stored value is always allowed.

A command of an operator is absolute: it also replaces the agent's labels and addresses, and takes ownership of them.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple

from msgspec import structs

from eventstore.reasons import Fault, Reason
from projections.columns import intern_labels
from projections.field_checks import check_label_count, network, quoted
from projections.zones.rows import Node, Zone
from schemas.events import AGENT_ADDRESS4, AGENT_ADDRESS6, AGENT_JOINED


def merged(name: str, stated: Node, old: Node | None, zone: Zone) -> Node | str:
    """The row after a command of the node's agent, or one sentence with the reason for a refusal."""
    if old is not None and old.zone != stated.zone:
        reason = (
            f"node: {quoted(name)} is in zone {old.zone!r}, and a node agent cannot move a node; an operator"
            " can move it, or"
            f" remove it with 'dpuplane nodes leave {name}'"
        )
        return Fault(reason, Reason.NODE_IN_OTHER_ZONE, node=name, zone=old.zone)
    labels = _labels(stated, old, zone)
    if isinstance(labels, str):
        return labels
    owned = old.agent if old is not None else AGENT_JOINED
    had4, had6 = (old.address4, old.address6) if old is not None else (0, b"")
    place = _Place(name, stated.zone, zone)
    fault = _fault_of_address(place, stated.address4, had4, owned & AGENT_ADDRESS4)
    fault = fault or _fault_of_address(place, stated.address6, had6, owned & AGENT_ADDRESS6)
    if fault is not None:
        return fault
    address4 = stated.address4 if owned & AGENT_ADDRESS4 else stated.address4 or had4
    address6 = stated.address6 if owned & AGENT_ADDRESS6 else stated.address6 or had6
    if address4 != had4:
        owned |= AGENT_ADDRESS4
    if address6 != had6:
        owned |= AGENT_ADDRESS6
    return structs.replace(stated, address4=address4, address6=address6, labels=labels, agent=owned)


def fault_of_zone(name: str, zone: Zone | None) -> str | None:
    """Why a node agent may not join this zone: an agent cannot create a zone."""
    if zone is not None:
        return None
    reason = (
        f"zone: {quoted(name)} does not exist; an operator creates it with 'dpuplane zones limit {name} --create"
        " --agent-network CIDR'"
    )
    return Fault(reason, Reason.ZONE_NOT_FOUND, zone=name)


def fault_of_leave(name: str, old: Node, zone: Zone) -> str | None:
    """Why a node agent may not remove its node; None if it may. An agent may not remove a node with labels of an
    operator, because the node would lack them when it joined again."""
    kept = [key for key in sorted(old.labels) if key not in zone.agent_label_keys]
    if not kept:
        return None
    reason = (
        f"labels: {quoted(kept[0])} of {quoted(name)} is set by an operator, and a node agent cannot remove a node"
        " that has one;"
        f" an operator removes it with 'dpuplane nodes leave {name}'"
    )
    return Fault(reason, Reason.NOT_PERMITTED_TO_AGENT, node=name, label=kept[0])


def _labels(stated: Node, old: Node | None, zone: Zone) -> dict[str, str] | str:
    """The node's labels after the agent's command, or the fault of the labels in the command."""
    keys = zone.agent_label_keys
    had = old.labels if old is not None else {}
    for key, value in stated.labels.items():
        if key not in keys and had.get(key) != value:
            reason = (
                f"labels: {quoted(key)} must be a key that zone {stated.zone!r} permits to node agents"
                f" ({', '.join(keys) or 'none'}); an operator allows it with 'dpuplane zones limit {stated.zone}"
                f" --agent-label-key {key}'"
            )
            return Fault(reason, Reason.NOT_PERMITTED_TO_AGENT, zone=stated.zone, label=key)
    labels = {key: value for key, value in had.items() if key not in keys} | stated.labels
    return check_label_count("labels", len(labels)) or intern_labels(dict(sorted(labels.items())))


class _Place(NamedTuple):
    """The node of an agent, and its zone."""

    name: str
    zone_name: str
    zone: Zone


def _fault_of_address(place: _Place, stated: int | bytes, had: int | bytes, is_agents: int) -> str | None:
    """Why an agent may not set this address of its node; None if it may. `had` is the node's previous address, 0 or b""
    for none."""
    if not stated or stated == had:
        return None
    address = ip_address(stated)
    if had and not is_agents:
        reason = (
            f"address: {str(address)!r} must be {str(ip_address(had))!r} or none, because an operator stated"
            " that address of"
            f" {quoted(place.name)}"
        )
        return Fault(reason, Reason.NOT_PERMITTED_TO_AGENT, node=place.name, address=address)
    networks, zone_name = place.zone.agent_networks, place.zone_name
    if any((found := network(text)) is not None and address in found for text in networks):
        return None
    reason = (
        f"address: {str(address)!r} must be in a network that zone {zone_name!r} permits to node agents"
        f" ({', '.join(networks) or 'none'}); an operator allows it with 'dpuplane zones limit {zone_name}"
        f" --agent-network {address}/{address.max_prefixlen}'"
    )
    return Fault(reason, Reason.NOT_PERMITTED_TO_AGENT, zone=zone_name, address=address)
