"""Requests about the nodes of one zone, as events.

A join request contains either a list of nodes or columns, which have one list per field of the nodes. The log stores
columns, so a request with columns needs no conversion. Both forms are checked by the rules of the zone fold, so a fault
has the same sentence in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from commands.requests.validation import (
    TIME_MS_MAX,
    EnvelopeFactory,
    InvalidRequest,
    NewEvent,
    require,
    require_count,
    require_zone,
    sorted_labels,
    time_of,
)
from eventstore.log import ZONES
from projections import field_checks
from projections.columns import fault_of_nodes, label_columns
from projections.rules.policies import Selector, selector
from schemas.api import dpuplane_pb2 as pb
from schemas.events import MAX_ITEMS, NodesChanged, NodesJoined, NodesLeft, ZoneDeleted

_NO_ADDRESS4, _NO_ADDRESS6 = bytes(4), bytes(16)


def join(request: pb.JoinNodesRequest, envelope: EnvelopeFactory) -> NewEvent:
    if not request.HasField("columns"):
        columns = _columns_of(request.nodes)
    elif request.nodes:
        raise InvalidRequest(f"columns: {len(request.nodes)} nodes must not be given together with columns")
    else:
        columns = _columns_as_given(request.columns)
    return validated(NodesJoined(envelope(request.zone), request.zone, **columns))


def change(request: pb.ChangeNodesRequest, envelope: EnvelopeFactory) -> NewEvent:
    return validated(NodesChanged(envelope(request.zone), request.zone, **_columns_of(request.nodes)))


def delete_zone(request: pb.DeleteZoneRequest, envelope: EnvelopeFactory) -> NewEvent:
    """Delete a zone. The zone's partition refuses it while the zone has nodes or DPUs."""
    require(field_checks.check_zone("zone", request.zone))
    return NewEvent(ZONES, request.zone, ZoneDeleted(envelope(request.zone), request.zone))


def leave(request: pb.LeaveNodesRequest, envelope: EnvelopeFactory) -> NewEvent:
    """Remove nodes. The caller names the zone, because the zone is the key: a command that is repeated under its id
    must go to the same partition."""
    require_count("names", len(request.names))
    require_zone(request.zone, "LocateNodes")
    zone, gone = request.zone, list(request.names)
    return validated(NodesLeft(envelope(zone), zone, gone, created_ms=[], uids=[], inferred=False, list_hash=b""))


def validated(event: NodesJoined | NodesChanged | NodesLeft) -> NewEvent:
    """The event, if it is valid. Raises InvalidRequest."""
    # The limit on an incarnation's time depends on the log's time, which only the fold has.
    require(fault_of_nodes(event, TIME_MS_MAX))
    return NewEvent(ZONES, event.zone, event)


def _columns_as_given(given: pb.NodeColumns) -> dict[str, Any]:
    """Columns from the request. The number of label sets is checked before any label set is sorted. Raises
    InvalidRequest if there are more than MAX_ITEMS."""
    if len(given.label_sets) > MAX_ITEMS:
        raise InvalidRequest(f"label_sets: {len(given.label_sets)} items must be at most {MAX_ITEMS}")
    return {
        "names": list(given.names),
        "created_ms": list(given.created_ms),
        "uids": list(given.uids),
        "addresses4": given.addresses4,
        "addresses6": given.addresses6,
        "label_sets": [sorted_labels("labels", labels.labels) for labels in given.label_sets],
        "label_index": list(given.label_index),
    }


def _columns_of(nodes: Sequence[pb.NodeSpec]) -> dict[str, Any]:
    """Columns from nodes. Raises PermanentError."""
    require_count("nodes", len(nodes))
    if len(nodes) == 1:
        return _columns_of_one(nodes[0])
    addresses = [_addresses(node) for node in nodes]
    label_sets, label_index = label_columns(list(map(_labels, nodes)))
    created_ms, uids = _incarnations(nodes)
    return {
        "names": [node.name for node in nodes],
        "created_ms": created_ms,
        "uids": uids,
        "addresses4": _packed([pair[0] for pair in addresses], _NO_ADDRESS4),
        "addresses6": _packed([pair[1] for pair in addresses], _NO_ADDRESS6),
        "label_sets": label_sets,
        "label_index": label_index,
    }


def _columns_of_one(node: pb.NodeSpec) -> dict[str, Any]:
    """Columns from one node: the form of most requests."""
    address4, address6 = _addresses(node)
    labels = _labels(node)
    created_ms, uids = _incarnations([node]) if node.uid or node.HasField("create_time") else ([], [])
    return {
        "names": [node.name],
        "created_ms": created_ms,
        "uids": uids,
        "addresses4": b"" if address4 == _NO_ADDRESS4 else address4,
        "addresses6": b"" if address6 == _NO_ADDRESS6 else address6,
        "label_sets": [dict(labels)] if labels else [],
        "label_index": [0] if labels else [],
    }


def _labels(node: pb.NodeSpec) -> Selector:
    require(field_checks.check_label_count("labels", len(node.labels)))
    return selector(node.labels)


def _addresses(node: pb.NodeSpec) -> tuple[bytes, bytes]:
    address4, address6 = _NO_ADDRESS4, _NO_ADDRESS6
    for text in node.addresses:
        packed = field_checks.packed_address("address", text)
        is_4 = len(packed) == len(_NO_ADDRESS4)
        if is_4 and address4 == _NO_ADDRESS4:
            address4 = packed
        elif not is_4 and address6 == _NO_ADDRESS6:
            address6 = packed
        else:
            raise InvalidRequest(
                f"addresses: {field_checks.quoted(text)} is the second address of its family for"
                f" {field_checks.quoted(node.name)};"
                " a node has at most one IPv4 and one IPv6 address"
            )
    return address4, address6


def _packed(addresses: list[bytes], none: bytes) -> bytes:
    return b"" if addresses.count(none) == len(addresses) else b"".join(addresses)


def _incarnations(nodes: Sequence[pb.NodeSpec]) -> tuple[list[int], list[str]]:
    """Columns of the incarnations, empty if no node has one."""
    created_ms = [time_of("create_time", node.create_time) for node in nodes]
    uids = [node.uid for node in nodes]
    if not any(created_ms) and not any(uids):
        return [], []
    for node, created in zip(nodes, created_ms, strict=True):
        if not (created and node.uid):
            raise InvalidRequest(
                f"uid: {field_checks.quoted(node.uid)} of {field_checks.quoted(node.name)} must go with"
                " create_time; give both for every"
                " node of the request, or neither for any"
            )
    return created_ms, uids
