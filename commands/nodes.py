"""Requests about the nodes of one zone, as statements.

A join may come as nodes or as columns: columns are what the log has, and the bulk path passes them through after
checking each column whole. Both forms are refused for the same faults with the same sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address

from commands.columns import Columns, check_addresses, check_labels, check_names, check_widths
from commands.shapes import BadRequest, Enveloping, Statement, require, require_count, require_incarnation
from eventstore.log import ZONES
from projections import names
from schemas.api import dpuplane_pb2 as pb
from schemas.events import NodesChanged, NodesJoined, NodesLeft

_NO_ADDRESS4, _NO_ADDRESS6 = bytes(4), bytes(16)


def join(request: pb.JoinNodesRequest, envelope: Enveloping) -> Statement:
    require(names.check_zone("zone", request.zone))
    if request.HasField("columns"):
        if request.nodes:
            raise BadRequest(f"columns: {len(request.nodes)} nodes are given too; give one form only")
        columns = _given(request.columns)
    else:
        columns = _gathered(request.nodes)
    event = NodesJoined(envelope(request.zone), request.zone, *columns)
    return Statement(ZONES, request.zone, event)


def change(request: pb.ChangeNodesRequest, envelope: Enveloping) -> Statement:
    require(names.check_zone("zone", request.zone))
    event = NodesChanged(envelope(request.zone), request.zone, *_gathered(request.nodes))
    return Statement(ZONES, request.zone, event)


def leave(request: pb.LeaveNodesRequest, envelope: Enveloping, zone: str) -> Statement:
    """`zone` is the request's, or where the names were found."""
    require(names.check_zone("zone", zone))
    require_count("names", len(request.names))
    gone = list(request.names)
    check_names("names", gone)
    event = NodesLeft(envelope(zone), zone, gone, created_ms=[], uids=[], inferred=False, list_hash=b"")
    return Statement(ZONES, zone, event)


def _given(given: pb.NodeColumns) -> Columns:
    columns = Columns(
        names=list(given.names),
        created_ms=list(given.created_ms),
        uids=list(given.uids),
        addresses4=given.addresses4,
        addresses6=given.addresses6,
        label_sets=[dict(labels.labels) for labels in given.label_sets],
        label_index=list(given.label_index),
    )
    require_count("names", len(columns.names))
    check_names("names", columns.names)
    check_widths(columns)
    for created_ms in columns.created_ms:
        require_incarnation(created_ms, "")
    for uid in columns.uids:
        require_incarnation(0, uid)
    check_labels(columns)
    check_addresses(columns)
    return columns


def _gathered(nodes: Sequence[pb.NodeSpec]) -> Columns:
    """Nodes as columns. Raises BadRequest."""
    require_count("nodes", len(nodes))
    found = [node.name for node in nodes]
    check_names("name", found)
    addresses = [_addresses(node) for node in nodes]
    label_sets, label_index = _label_columns(nodes)
    created_ms, uids = _incarnations(nodes)
    columns = Columns(
        names=found,
        created_ms=created_ms,
        uids=uids,
        addresses4=_packed([pair[0] for pair in addresses], _NO_ADDRESS4),
        addresses6=_packed([pair[1] for pair in addresses], _NO_ADDRESS6),
        label_sets=label_sets,
        label_index=label_index,
    )
    check_labels(columns)
    check_addresses(columns)
    return columns


def _addresses(node: pb.NodeSpec) -> tuple[bytes, bytes]:
    address4, address6 = _NO_ADDRESS4, _NO_ADDRESS6
    for text in node.addresses:
        match names.parse_address("address", text):
            case IPv4Address() as address if address4 == _NO_ADDRESS4:
                address4 = address.packed
            case IPv6Address() as address if address6 == _NO_ADDRESS6:
                address6 = address.packed
            case _:
                raise BadRequest(
                    f"addresses: {names.shown(text)} is the second of its family for {names.shown(node.name)};"
                    " a node has at most one IPv4 and one IPv6 address"
                )
    return address4, address6


def _packed(addresses: list[bytes], none: bytes) -> bytes:
    return b"" if addresses.count(none) == len(addresses) else b"".join(addresses)


def _label_columns(nodes: Sequence[pb.NodeSpec]) -> tuple[list[dict[str, str]], list[int]]:
    """Distinct label sets in order of appearance, and each node's among them."""
    numbers: dict[tuple[tuple[str, str], ...], int] = {}
    index = [numbers.setdefault(tuple(sorted(node.labels.items())), len(numbers)) for node in nodes]
    if not any(numbers):
        return [], []
    return [dict(labels) for labels in numbers], index if len(numbers) > 1 else [0]


def _incarnations(nodes: Sequence[pb.NodeSpec]) -> tuple[list[int], list[str]]:
    """Columns of the incarnations, empty if no node states one."""
    created_ms = [node.created_ms for node in nodes]
    uids = [node.uid for node in nodes]
    if not any(created_ms) and not any(uids):
        return [], []
    for node in nodes:
        require_incarnation(node.created_ms, node.uid)
        if bool(node.created_ms) != bool(node.uid):
            raise BadRequest(
                f"uid: {names.shown(node.uid)} of {names.shown(node.name)} goes with created_ms, give both"
            )
    if not (all(created_ms) and all(uids)):
        raise BadRequest("created_ms: 0 is given for some nodes only; give an incarnation for all of them or for none")
    return created_ms, uids
