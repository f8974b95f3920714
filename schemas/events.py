"""Every event of the log, as folds see it. One Struct per Avro schema in `schemas/events/`.

Field order here is field order there: a decoded Avro record turns into its Struct by position, which a test holds.
Events that carry many items are columnar: one list (or one packed bytes) per field, and **a column of length 1 stands
for every item**, an empty one for "not given". Times are milliseconds since the epoch, offsets are log offsets.

An event states what was asked or observed; whether it takes effect is decided by the fold that reads it.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from schemas.envelope import Envelope as Envelope  # noqa: PLC0414


class LogCreated(msgspec.Struct, frozen=True, gc=False):
    """Record 0 of every partition of zones, cliques and fleet. The first one of fleet decides; the others copy it."""

    envelope: Envelope
    log_id: str
    generation: int
    partition_count: int
    parent: str


class FoldVersionRaised(msgspec.Struct, frozen=True, gc=False):
    """From the next record on, this partition is folded under the rules of `version`."""

    envelope: Envelope
    version: int


# --- zones: nodes ----------------------------------------------------------------------------------------------------


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
    list (`ListCompleted`) of its source in this zone. Empty incarnation columns mean whichever incarnation is there.
    """

    envelope: Envelope
    zone: str
    names: list[str]
    created_ms: list[int]
    uids: list[str]
    inferred: bool
    list_hash: bytes


class ListCompleted(msgspec.Struct, frozen=True, gc=False):
    """A source has listed all its nodes of this zone: so many, with this hash. The gate of every inferred leave."""

    envelope: Envelope
    zone: str
    source: str
    count: int
    list_hash: bytes


class NodesSuperseded(msgspec.Struct, frozen=True, gc=False):
    """Caused by fleet: these nodes have a newer incarnation in another zone, and leave this one.

    Accepted only if `from_offset` is this partition's mark for fleet.
    """

    envelope: Envelope
    from_offset: int
    to_offset: int
    zones: list[str]
    names: list[str]
    created_ms: list[int]
    uids: list[str]


class ZoneLimited(msgspec.Struct, frozen=True, gc=False):
    """Caused by fleet: the limits of one zone (see ZoneDescribed), handed down to the partition that keeps them.

    Accepted only if `from_offset` is this partition's mark for fleet.
    """

    envelope: Envelope
    from_offset: int
    to_offset: int
    zone: str
    parallel_installs: int
    unavailable_nodes: int


class Forwarded(msgspec.Struct, frozen=True, gc=False):
    """Caused by fleet: it has folded this partition's changes up to (excluding) `to_offset`; the outbox may forget."""

    envelope: Envelope
    to_offset: int


# --- zones: DPUs and their lifecycle ---------------------------------------------------------------------------------


class DpuRegistered(msgspec.Struct, frozen=True, gc=False):
    """A DPU of a zone: where its BMC is, and its serial number, which tells a swapped card from the old one."""

    envelope: Envelope
    zone: str
    dpu: str
    node: str
    serial: str
    bmc_address: str


class LifecycleRequested(msgspec.Struct, frozen=True, gc=False):
    """What an operator wants of a DPU: provision (with an image), pause, resume, retry, skip, abort or delete."""

    envelope: Envelope
    zone: str
    dpu: str
    request: str
    image: str


class StepStarted(msgspec.Struct, frozen=True, gc=False):
    """A provisioner takes the open step of a DPU as attempt `attempt`; the fold takes the first that fits.

    `provisioner` is the replica's name, a `#`, and a mark of this life of its process.
    """

    envelope: Envelope
    zone: str
    dpu: str
    phase: str
    attempt: int
    provisioner: str


class StepProgressed(msgspec.Struct, frozen=True, gc=False):
    """The device accepted a task for the open attempt (whoever takes over adopts it), or got further with it."""

    envelope: Envelope
    zone: str
    dpu: str
    phase: str
    attempt: int
    task: str
    percent: int


class StepSucceeded(msgspec.Struct, frozen=True, gc=False):
    """The open attempt is done; `facts` is what the device said of itself (image, serial, boot id)."""

    envelope: Envelope
    zone: str
    dpu: str
    phase: str
    attempt: int
    facts: dict[str, str]


class StepFailed(msgspec.Struct, frozen=True, gc=False):
    """The open attempt failed. `kind` is transient, device or operator and decides what follows, never the message.

    A fourth, lost, is said by another provisioner: the attempt's own one is gone, and whoever comes next may go on.
    """

    envelope: Envelope
    zone: str
    dpu: str
    phase: str
    attempt: int
    kind: str
    message: str


class DeadlinePassed(msgspec.Struct, frozen=True, gc=False):
    """A timer's statement about its subject. It counts only if its own append time has reached the deadline."""

    envelope: Envelope
    kind: str
    deadline_ms: int


# --- cliques ---------------------------------------------------------------------------------------------------------


class IndexClaimed(msgspec.Struct, frozen=True, gc=False):
    """A node wants an index of a clique.

    `created_ms` and `uid` are the claiming pod's incarnation; an empty uid means (issued_at_ms, command_id). `wish` is
    the index that a foreign row already shows for it, or -1.
    """

    envelope: Envelope
    domain: str
    clique: str
    node: str
    address: str
    created_ms: int
    uid: str
    wish: int


class IndexReleased(msgspec.Struct, frozen=True, gc=False):
    """A node gives its index (or its place in line) back. Empty uid: whichever incarnation holds it."""

    envelope: Envelope
    domain: str
    clique: str
    node: str
    created_ms: int
    uid: str


class CapacitySet(msgspec.Struct, frozen=True, gc=False):
    """How many indices a clique has."""

    envelope: Envelope
    domain: str
    clique: str
    capacity: int


class DaemonReady(msgspec.Struct, frozen=True, gc=False):
    """The daemon of a member says whether it is ready; about one incarnation."""

    envelope: Envelope
    domain: str
    clique: str
    node: str
    uid: str
    ready: bool


class SessionOpened(msgspec.Struct, frozen=True, gc=False):
    """A member's daemon speaks through this edge now; a newer session replaces an older one."""

    envelope: Envelope
    domain: str
    clique: str
    node: str
    uid: str
    session: str
    edge: str


class NotHeard(msgspec.Struct, frozen=True, gc=False):
    """An edge has not heard from this session for a full grace. Ignored if a newer session exists."""

    envelope: Envelope
    domain: str
    clique: str
    node: str
    session: str


# --- fleet -----------------------------------------------------------------------------------------------------------


PRESENT, LEFT, INFERRED, SUPERSEDED = range(4)
"""What became of a node: it is there, somebody stated that it left, its silence did, or it is newer in another zone."""


class MembershipChanged(msgspec.Struct, frozen=True, gc=False):
    """The accepted changes of zones partition `cause_partition` in [from_offset, to_offset), as absolute states.

    Accepted only if `from_offset` is fleet's mark for that partition. `states` are PRESENT and the three ways to
    leave. Columns as in NodesJoined, and a zone per item. `earliest_ms` is the append time of the earliest change.
    """

    envelope: Envelope
    cause_partition: int
    from_offset: int
    to_offset: int
    earliest_ms: int
    zones: list[str]
    names: list[str]
    states: list[int]
    created_ms: list[int]
    uids: list[str]
    addresses4: bytes
    addresses6: bytes
    label_sets: list[dict[str, str]]
    label_index: list[int]


class PolicySet(msgspec.Struct, frozen=True, gc=False):
    """A rule policy: which sources (by node labels) may, or may not, reach the DPUs of which zones (by zone labels).

    Both selectors are conjunctions of `key=value`; an empty one matches everything. `action` is allow or drop. Higher
    `priority` goes first; at one priority drop goes before allow. `protocol` is any, tcp, udp or icmp; `ports` are
    inclusive `first`-`last` pairs, flat, and empty for all.
    """

    envelope: Envelope
    name: str
    priority: int
    action: str
    protocol: str
    ports: list[int]
    sources: dict[str, str]
    zones: dict[str, str]


class PolicyDeleted(msgspec.Struct, frozen=True, gc=False):
    """The policy is gone. Deleting `default` brings the built-in default back."""

    envelope: Envelope
    name: str


class BudgetSet(msgspec.Struct, frozen=True, gc=False):
    """How much may be withdrawn from a table per 10 minutes before it is held: a share, and at least a count.

    `kind` is `inferred` (absence, policy edits, new drops) or `stated` (leaves that somebody asked for).
    """

    envelope: Envelope
    kind: str
    permille: int
    at_least: int


class HoldApproved(msgspec.Struct, frozen=True, gc=False):
    """A principal lets a held withdrawal go; it takes two different ones. `hold_hash` is the hash of what they saw."""

    envelope: Envelope
    hold: int
    hold_hash: bytes


class HoldRejected(msgspec.Struct, frozen=True, gc=False):
    """A principal refuses a held withdrawal: what it would have taken away stays."""

    envelope: Envelope
    hold: int


class ZoneDescribed(msgspec.Struct, frozen=True, gc=False):
    """Labels (if `set_labels`) and limits of a zone. A limit of 0 means the default, one of -1 leaves it as it is."""

    envelope: Envelope
    zone: str
    set_labels: bool
    labels: dict[str, str]
    parallel_installs: int
    unavailable_nodes: int


class Frozen(msgspec.Struct, frozen=True, gc=False):
    """Stops every write to devices of a zone, or of all zones if empty."""

    envelope: Envelope
    zone: str


class Thawed(msgspec.Struct, frozen=True, gc=False):
    """Ends a freeze of a zone, or the freeze of all if empty."""

    envelope: Envelope
    zone: str


# --- installs --------------------------------------------------------------------------------------------------------


class RulesInstalled(msgspec.Struct, frozen=True, gc=False):
    """What a relay saw of one zone's DPUs since its last report.

    Per entry i: version `versions[i]` reached level `levels[i]` (0 received, 1 applied, 2 in hardware) on the DPUs
    whose ordinals are in the roaring bitmap `ordinals[i]`. The version's earliest change was appended at
    `appended_ms[i]`; the last of these DPUs said so at `reached_ms[i]` by the relay's clock. `went_back` names DPUs
    that now hold an older version than they had reported; `refused` maps DPUs to why they refused their last table.
    """

    envelope: Envelope
    zone: str
    relay: str
    epoch: int
    dpu_count: int
    versions: list[int]
    levels: list[int]
    ordinals: list[bytes]
    appended_ms: list[int]
    reached_ms: list[int]
    went_back: dict[str, int]
    refused: dict[str, str]


# --- decisions -------------------------------------------------------------------------------------------------------


class Decided(msgspec.Struct, frozen=True, gc=False):
    """What a fold decided of the record at (topic, partition, offset), spelled out for analysts.

    The envelope is that of the record, so whoever writes this of one record writes the same bytes. `event` is its type,
    `outcome` and `reason` are what its author was answered. Per item, `kinds` says what was decided, `subjects` about
    whom, `details` what else there is to say; columns as everywhere, one entry standing for all items.
    """

    envelope: Envelope
    topic: str
    partition: int
    offset: int
    appended_ms: int
    event: str
    fold_version: int
    outcome: str
    reason: str
    kinds: list[str]
    subjects: list[str]
    details: list[dict[str, str]]


Event: TypeAlias = (
    LogCreated
    | FoldVersionRaised
    | NodesJoined
    | NodesChanged
    | NodesLeft
    | ListCompleted
    | NodesSuperseded
    | ZoneLimited
    | Forwarded
    | DpuRegistered
    | LifecycleRequested
    | StepStarted
    | StepProgressed
    | StepSucceeded
    | StepFailed
    | DeadlinePassed
    | IndexClaimed
    | IndexReleased
    | CapacitySet
    | DaemonReady
    | SessionOpened
    | NotHeard
    | MembershipChanged
    | PolicySet
    | PolicyDeleted
    | BudgetSet
    | HoldApproved
    | HoldRejected
    | ZoneDescribed
    | Frozen
    | Thawed
    | RulesInstalled
    | Decided
)

MAX_ITEMS = 1_000
"""Items of one record at most."""

MAX_STATED_BYTES = 256 * 1024
"""Encoded size of a stated record at most; what one record changes must fit one forward."""

MAX_FORWARD_ITEMS = 2_000
"""Items of a MembershipChanged at most: two full records, some milliseconds for whoever makes or folds it."""

MAX_FORWARD_BYTES = 512 * 1024
"""Encoded size of a MembershipChanged at most."""
