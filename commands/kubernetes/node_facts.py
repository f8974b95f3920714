"""A Node object as a node of the plane: its zone, addresses and labels, by the settings of the edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Address
from typing import NamedTuple

from commands.inventory.batches import PlannedNode
from projections.field_checks import BadAddress, check_label_key, check_name, check_text, check_zone, parse_address
from schemas.kubernetes.objects import RACK_LABEL, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRules:
    """How an edge reads Node objects."""

    source: str
    """The name of the source cluster: a node is named SOURCE/NAME."""
    zone_label: str = RACK_LABEL
    fallback_zone: str = "unassigned"
    """The zone of nodes without a valid zone label. The missing or invalid label is one of the node's faults."""
    address_type: str = "InternalIP"
    labels: Sequence[str] = ()
    """Patterns of the label keys that policies select by. Other labels of a Node are ignored: they change too often."""


class NodeFacts(NamedTuple):
    """A node as its Node object describes it."""

    zone: str
    node: PlannedNode
    created_ms: int
    uid: str


class ReadNode(NamedTuple):
    """The facts of a Node object (None if its name is not valid), and its faults, one sentence each."""

    facts: NodeFacts | None
    faults: tuple[str, ...]


def read_node(found: Node, rules: NodeRules) -> ReadNode:
    """The facts of a Node object. Invalid labels and addresses are left out and listed as faults."""
    name = f"{rules.source}/{found.metadata.name}"
    if (fault := check_name("name", name)) is not None:
        return ReadNode(None, (fault,))
    given = found.metadata.labels or {}
    faults: list[str] = []
    zone = given.get(rules.zone_label, "")
    if not zone:
        faults.append(f"zone: the Node has no label {rules.zone_label}; it is in zone {rules.fallback_zone}")
        zone = rules.fallback_zone
    elif (fault := check_zone("zone", zone)) is not None:
        faults.append(f"{fault}; the node is in zone {rules.fallback_zone}")
        zone = rules.fallback_zone
    address4, address6 = _addresses(found, rules.address_type, faults)
    labels = tuple(
        (key, value)
        for key, value in sorted(given.items())
        if any(fnmatchcase(key, pattern) for pattern in rules.labels) and _is_valid(key, value, faults)
    )
    node = PlannedNode(name, address4, address6, labels)
    return ReadNode(NodeFacts(zone, node, found.metadata.created_ms, found.metadata.uid), tuple(faults))


def _addresses(found: Node, kind: str, faults: list[str]) -> tuple[int, int]:
    """The first address of each family, 0 for none."""
    address4 = address6 = 0
    for each in found.status.addresses or ():
        if each.type != kind:
            continue
        try:
            address = parse_address("address", each.address)
        except BadAddress as error:
            faults.append(str(error))
            continue
        if isinstance(address, IPv4Address):
            address4 = address4 or int(address)
        else:
            address6 = address6 or int(address)
    return address4, address6


def _is_valid(key: str, value: str, faults: list[str]) -> bool:
    fault = check_label_key("labels key", key) or check_text(f"labels[{key}]", value)
    if fault is not None:
        faults.append(fault)
    return fault is None
