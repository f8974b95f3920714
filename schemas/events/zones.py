"""Events about the nodes of zones, and the events that fleet causes in partitions of topic zones."""

from __future__ import annotations

from schemas.envelope import Event


class NodesJoined(Event, frozen=True, gc=False):
    """Nodes join one zone, each with its complete addresses and labels. A name is `name` or `source/name`.

    `created_ms` and `uids` are the incarnations. If these columns are empty, `issued_at_ms` and `command_id` are the
    incarnation of every node. `addresses4` has 4 bytes per node (0.0.0.0 for none), and `addresses6` has 16 bytes per
    node (`::` for none). Either column may be empty if no node has such an address. `label_index[i]` is the index of
    node i's labels in `label_sets`.
    """

    schema_id = 3
    zone: str
    names: list[str]
    created_ms: list[int]
    uids: list[str]
    addresses4: bytes
    addresses6: bytes
    label_sets: list[dict[str, str]]
    label_index: list[int]


class NodesChanged(Event, frozen=True, gc=False):
    """New addresses and labels of present nodes, in the columns of NodesJoined.

    An item is refused if its node is absent or has a newer incarnation. Empty incarnation columns mean the present
    incarnation.
    """

    schema_id = 4
    zone: str
    names: list[str]
    created_ms: list[int]
    uids: list[str]
    addresses4: bytes
    addresses6: bytes
    label_sets: list[dict[str, str]]
    label_index: list[int]


class NodesLeft(Event, frozen=True, gc=False):
    """Nodes left one zone. `inferred` means that a source's snapshot lacks them, without a request to leave.

    An inferred leave quotes the hash of that snapshot. The leave is refused unless that snapshot is the last one of its
    source in this zone (`SnapshotCompleted`). Empty incarnation columns mean any incarnation.
    """

    schema_id = 5
    zone: str
    names: list[str]
    created_ms: list[int]
    uids: list[str]
    inferred: bool
    list_hash: bytes


class SnapshotCompleted(Event, frozen=True, gc=False):
    """A source sent a snapshot, the complete list of its nodes in this zone. Every inferred leave quotes its hash.

    `count` nodes are in this zone, of `total` nodes of the source. `version` is the resource version of the list, 0 if
    the source has none. `restored` means that the source was restored from an older backup, so the list may lack nodes
    that joined after the backup.
    """

    schema_id = 6
    zone: str
    source: str
    count: int
    list_hash: bytes
    version: int
    total: int
    restored: bool


class ZoneDeleted(Event, frozen=True, gc=False):
    """Deletes a zone. Refused while it has a node or a DPU.

    Fleet keeps the labels and limits of the zone until a ZoneUpdated clears them.
    """

    schema_id = 34
    zone: str


class NodesSuperseded(Event, frozen=True, gc=False):
    """Caused by fleet: these nodes have, or had, a newer incarnation in another zone, and leave this one.

    Accepted only if `from_offset` is the end of the last range that this partition accepted from fleet. Fleet had
    folded this partition's changes before `seen_offset` when it decided this.
    """

    schema_id = 7
    from_offset: int
    to_offset: int
    zones: list[str]
    names: list[str]
    created_ms: list[int]
    uids: list[str]
    seen_offset: int


class ZoneLimitsSet(Event, frozen=True, gc=False):
    """Caused by fleet: the limits of one zone (see ZoneUpdated), for the partition that enforces them.

    Accepted only if `from_offset` is the end of the last range that this partition accepted from fleet.
    """

    schema_id = 8
    from_offset: int
    to_offset: int
    zone: str
    parallel_installs: int
    unavailable_nodes: int
    agent_networks: list[str] = []
    agent_label_keys: list[str] = []
    attempt_limits: list[int] = []


class OutboxAcknowledged(Event, frozen=True, gc=False):
    """Caused by fleet: it has folded this partition's changes before `to_offset`. These changes leave the outbox."""

    schema_id = 9
    to_offset: int
