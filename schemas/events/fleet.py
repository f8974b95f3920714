"""What all must agree on in one order: members, policies, budgets, holds, freezes, and what zones are."""

from __future__ import annotations

import msgspec

from schemas.envelope import Envelope

PRESENT, LEFT, INFERRED, SUPERSEDED = range(4)
"""What became of a node: it is there, somebody stated that it left, its silence did, or it is newer in another zone."""

AGENT_JOINED, AGENT_ADDRESS4, AGENT_ADDRESS6 = 1, 2, 4
"""Bits that say what the node's own agent stated of a present node: that it is in this zone, its IPv4 address, its IPv6
address. The state of such a node is SUPERSEDED plus these bits; PRESENT means that an operator stated all of it."""

MAX_STATE = SUPERSEDED + AGENT_JOINED + AGENT_ADDRESS4 + AGENT_ADDRESS6


class MembershipChanged(msgspec.Struct, frozen=True, gc=False):
    """The accepted changes of zones partition `cause_partition` in [from_offset, to_offset), as absolute states.

    Accepted only if `from_offset` is fleet's mark for that partition. `states` are PRESENT, the three ways to leave,
    and SUPERSEDED plus the bits of what the node's agent stated (AGENT_JOINED and the like). Columns as in NodesJoined,
    and a zone per item. `earliest_ms` is the append time of the earliest change.

    `changed_ms` is the append time of each node's last change; empty if it is `earliest_ms` for all. For a node that
    left, `last_present_ms` is the append time of the last record by which it was present. It is 0 for a present node
    and for one that its own agent had put there; the column is empty if it is 0 for all.

    `command_ids` and `actors` say which commands caused the changes, and who gave them: each of the next `cause_items`
    items, in order. The id is empty for a node that joined alone and was new to the partition: that node's uid is the
    id of the command, unless the command stated another one. Both are empty where no command is behind an item. Without
    any, all three are empty.
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
    changed_ms: list[int]
    last_present_ms: list[int]
    command_ids: list[str] = []
    actors: list[str] = []
    cause_items: list[int] = []


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
    """How many addresses of a table may turn per 10 minutes before a change is held: a share, and at least a count.

    `kind` says what it governs: `denied-by-leave`, `denied-by-change`, `allowed-by-change` or `allowed-by-join`.
    A `permille` of 1,000 is no limit.
    """

    envelope: Envelope
    kind: str
    permille: int
    min_addresses: int


class HoldApproved(msgspec.Struct, frozen=True, gc=False):
    """A principal approves a change that is held; it takes two of them. `hold_hash` is the hash of what they saw."""

    envelope: Envelope
    hold: int
    hold_hash: bytes


class HoldRejected(msgspec.Struct, frozen=True, gc=False):
    """A principal refuses a change that is held: what it would take away stays, what would replace it is dropped."""

    envelope: Envelope
    hold: int


class ZoneUpdated(msgspec.Struct, frozen=True, gc=False):
    """Labels (if `set_labels`) and limits of a zone. A limit of 0 means the default, one of -1 leaves it as it is.

    `agent_networks` (if `set_agent_networks`) are the networks, as CIDR, that an address which a node agent states must
    come from. `agent_label_keys` (if `set_agent_label_keys`) are the label keys that node agents of the zone own.

    `tries` says how often a step of a DPU is tried, by kind of failure: transient, device, operator; empty leaves all.
    """

    envelope: Envelope
    zone: str
    set_labels: bool
    labels: dict[str, str]
    parallel_installs: int
    unavailable_nodes: int
    set_agent_networks: bool = False
    agent_networks: list[str] = []
    set_agent_label_keys: bool = False
    agent_label_keys: list[str] = []
    tries: list[int] = []


class WritesFrozen(msgspec.Struct, frozen=True, gc=False):
    """Stops every write to devices of a zone, or of all zones if empty."""

    envelope: Envelope
    zone: str


class WritesThawed(msgspec.Struct, frozen=True, gc=False):
    """Ends a freeze of a zone, or the freeze of all if empty."""

    envelope: Envelope
    zone: str
