"""Nodes of zones, and the events that fleet causes in their partitions."""

from __future__ import annotations

import msgspec

from schemas.envelope import Envelope


class NodesJoined(msgspec.Struct, frozen=True, gc=False):
    """Nodes of one zone, stated absolutely. A name is `name` or `source/name`.

    `created_ms` and `uids` are the incarnation; empty means (issued_at_ms, command_id) for all. `addresses4` is 4 bytes
    per node (0.0.0.0: none), `addresses6` 16 bytes per node (:: : none); either may be empty for none at all.
    `label_index[i]` picks node i's labels from `label_sets`.
    """

    envelope: Envelope
    zone: str
    names: list[str]
    created_ms: list[int]
    uids: list[str]
    addresses4: bytes
    addresses6: bytes
    label_sets: list[dict[str, str]]
    label_index: list[int]


class NodesChanged(msgspec.Struct, frozen=True, gc=False):
    """New addresses and labels of nodes that are there, same columns as NodesJoined.

    Refused, item by item, for a node that is not there or whose incarnation is newer. Empty incarnation columns mean
    whichever incarnation is there.
    """

    envelope: Envelope
    zone: str
    names: list[str]
    created_ms: list[int]
    uids: list[str]
    addresses4: bytes
    addresses6: bytes
    label_sets: list[dict[str, str]]
    label_index: list[int]


class NodesLeft(msgspec.Struct, frozen=True, gc=False):
    """Nodes of one zone that left. `inferred` says that nobody asked: a source's complete list lacks them.

    An inferred leave quotes the hash of the list that lacks the node and is refused unless that is the last complete
    list of its source in this zone (`SnapshotCompleted`). Empty incarnation columns mean any incarnation.
    """

    envelope: Envelope
    zone: str
    names: list[str]
    created_ms: list[int]
    uids: list[str]
    inferred: bool
    list_hash: bytes


class SnapshotCompleted(msgspec.Struct, frozen=True, gc=False):
    """A source sent the complete list of its nodes in this zone; its count and hash. Every inferred leave quotes it."""

    envelope: Envelope
    zone: str
    source: str
    count: int
    list_hash: bytes


class ZoneDeleted(msgspec.Struct, frozen=True, gc=False):
    """A zone is forgotten. Refused while it has a node or a DPU.

    What fleet states of it (labels, limits) is not touched: ZoneUpdated takes that away.
    """

    envelope: Envelope
    zone: str


class NodesSuperseded(msgspec.Struct, frozen=True, gc=False):
    """Caused by fleet: these nodes have, or had, a newer incarnation in another zone, and leave this one.

    Accepted only if `from_offset` is this partition's mark for fleet. Fleet had folded this partition's
    changes before `seen_offset` when it decided so.
    """

    envelope: Envelope
    from_offset: int
    to_offset: int
    zones: list[str]
    names: list[str]
    created_ms: list[int]
    uids: list[str]
    seen_offset: int


class ZoneLimitsSet(msgspec.Struct, frozen=True, gc=False):
    """Caused by fleet: the limits of one zone (see ZoneUpdated), for the partition that enforces them.

    Accepted only if `from_offset` is this partition's mark for fleet.
    """

    envelope: Envelope
    from_offset: int
    to_offset: int
    zone: str
    parallel_installs: int
    unavailable_nodes: int
    agent_networks: list[str] = []
    agent_label_keys: list[str] = []
    tries: list[int] = []


class OutboxAcknowledged(msgspec.Struct, frozen=True, gc=False):
    """Caused by fleet, which has folded this partition's changes before `to_offset`: they leave the outbox."""

    envelope: Envelope
    to_offset: int
