"""Nodes of one zone as columns, split so that each batch fits one record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from projections.columns import label_columns, size_of_labels
from schemas.events import MAX_COMMAND_BYTES, MAX_ITEMS

_BYTES_PER_NODE = 64
"""Upper bound of a node's bytes for addresses, lengths and the number of its label set."""

_MAX_BYTES = MAX_COMMAND_BYTES - 16 * 1024
"""Maximum number of bytes per batch, which leaves space for the envelope and the zone's name."""


class PlannedNode(NamedTuple):
    """One node: its addresses as integers (0 for none), its labels sorted by key."""

    name: str
    address4: int
    address6: int
    labels: tuple[tuple[str, str], ...]

    @property
    def address_text(self) -> str:
        """The address that peers use: IPv4 if the node has one."""
        if self.address4:
            return str(IPv4Address(self.address4))
        return str(IPv6Address(self.address6)) if self.address6 else ""


class ExistingNode(NamedTuple):
    """A node of the plane in the form of a planned node: its labels sorted by key."""

    zone: str
    address4: int
    address6: int
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NodeBatch:
    """The nodes of one record, in the columns of NodesJoined."""

    zone: str
    names: tuple[str, ...]
    addresses4: bytes
    addresses6: bytes
    label_sets: tuple[dict[str, str], ...]
    label_index: tuple[int, ...]


def batches(zone: str, nodes: Iterable[PlannedNode]) -> Iterator[NodeBatch]:
    """Split nodes, in order, into batches that fill one record each."""
    batch: list[PlannedNode] = []
    labels: set[tuple[tuple[str, str], ...]] = set()
    size = 0
    for node in nodes:
        own = len(node.name) + _BYTES_PER_NODE
        of_labels = size_of_labels(dict(node.labels))
        added = own + (of_labels if node.labels not in labels else 0)
        if batch and (len(batch) >= MAX_ITEMS or size + added > _MAX_BYTES):
            yield _batch(zone, batch)
            batch, labels, size, added = [], set(), 0, own + of_labels
        batch.append(node)
        labels.add(node.labels)
        size += added
    if batch:
        yield _batch(zone, batch)


def _batch(zone: str, nodes: list[PlannedNode]) -> NodeBatch:
    label_sets, label_index = label_columns(node.labels for node in nodes)
    has4, has6 = any(node.address4 for node in nodes), any(node.address6 for node in nodes)
    return NodeBatch(
        zone,
        tuple(node.name for node in nodes),
        b"".join(node.address4.to_bytes(4, "big") for node in nodes) if has4 else b"",
        b"".join(node.address6.to_bytes(16, "big") for node in nodes) if has6 else b"",
        tuple(label_sets),
        tuple(label_index),
    )
