"""Events in the one order that all zones share: members, policies, budgets, holds, freezes, updates of zones."""

from __future__ import annotations

from schemas.envelope import Event

PRESENT, LEFT, INFERRED, SUPERSEDED = range(4)
"""States of a node in a zone: present; left by command; left by inference from a snapshot; or superseded by a newer
incarnation in another zone."""

AGENT_JOINED, AGENT_ADDRESS4, AGENT_ADDRESS6 = 1, 2, 4
"""Bits for the fields that the node's own agent set: membership in this zone, IPv4 address, IPv6 address. A present
node with such fields has the state SUPERSEDED plus these bits. A node has the state PRESENT if an operator set all
three fields."""

MAX_STATE = SUPERSEDED + AGENT_JOINED + AGENT_ADDRESS4 + AGENT_ADDRESS6


class MembershipChanged(Event, frozen=True, gc=False):
    """The accepted changes of zones partition `cause_partition` in [from_offset, to_offset), as absolute states.

    Fleet accepts it only if `from_offset` is the end of the last range that it accepted from that partition. `states`
    are PRESENT, LEFT, INFERRED, SUPERSEDED, or SUPERSEDED plus the bits of the fields that the node's agent set
    (AGENT_JOINED and the like). The other columns of items are those of NodesJoined, and the zone. `earliest_ms` is the
    append time of the earliest change.

    `changed_ms` is the append time of each node's last change; empty if it is `earliest_ms` for all. For a node that
    left, `last_present_ms` is the append time of its last join or change before it left. It is 0 for a present node,
    and for a node that its own agent had joined. The column is empty if all values are 0.

    `command_ids` are the ids of the commands that caused the changes, and `actors` are their principals. Each entry
    applies to the next `cause_items` items, in order. The id is empty for a node that joined alone, was new to the
    partition and got no uid from the command: the uid of the node is then the command id. Id and actor are empty for
    items without a command. If no item has a command, all three columns are empty.
    """

    schema_id = 23
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


class PolicySet(Event, frozen=True, gc=False):
    """Sets a rule policy: it allows or drops traffic from sources (by node labels) to DPUs of zones (by zone labels).

    Both selectors are conjunctions of `key=value`; an empty one matches everything. `action` is allow or drop. A higher
    `priority` goes first; at equal priority, drop goes before allow. `protocol` is any, tcp, udp or icmp; `ports` are
    inclusive `first`-`last` pairs in one flat list, which is empty for all ports.
    """

    schema_id = 24
    name: str
    priority: int
    action: str
    protocol: str
    ports: list[int]
    sources: dict[str, str]
    zones: dict[str, str]


class PolicyDeleted(Event, frozen=True, gc=False):
    """Deletes a policy. Deleting `default` restores the built-in default."""

    schema_id = 25
    name: str


class BudgetSet(Event, frozen=True, gc=False):
    """Sets a budget: how many addresses of a table may change verdict per 10 minutes before a change is held.

    The limit is `permille` of the addresses, or `min_addresses` if that is more; a small table caps `min_addresses`.
    `kind` is the kind of change that the budget limits: `denied-by-leave`, `denied-by-change`, `allowed-by-change` or
    `allowed-by-join`. A `permille` of 1,000 means no limit.
    """

    schema_id = 26
    kind: str
    permille: int
    min_addresses: int


class HoldApproved(Event, frozen=True, gc=False):
    """A principal approves a hold; two must. `hold_hash` is the hash of the hold that the principal saw."""

    schema_id = 27
    hold: int
    hold_hash: bytes


class HoldRejected(Event, frozen=True, gc=False):
    """A principal rejects a hold: the held change gets no effect, and the rule tables keep the state before it."""

    schema_id = 28
    hold: int


class ZoneUpdated(Event, frozen=True, gc=False):
    """Sets labels (if `set_labels`) and limits of a zone. A limit of 0 means the default, -1 leaves it unchanged.

    `agent_networks` (if `set_agent_networks`) are the networks, in CIDR notation, from which node agents may set
    addresses. `agent_label_keys` (if `set_agent_label_keys`) are the label keys that node agents of the zone own.

    `attempt_limits` is the maximum of attempts at a step of a DPU, by kind of failure: transient, device, operator;
    empty leaves all of them unchanged.
    """

    schema_id = 29
    zone: str
    set_labels: bool
    labels: dict[str, str]
    parallel_installs: int
    unavailable_nodes: int
    set_agent_networks: bool = False
    agent_networks: list[str] = []
    set_agent_label_keys: bool = False
    agent_label_keys: list[str] = []
    attempt_limits: list[int] = []


class WritesFrozen(Event, frozen=True, gc=False):
    """Stops every write to devices of a zone, or of all zones if `zone` is empty."""

    schema_id = 30
    zone: str


class WritesThawed(Event, frozen=True, gc=False):
    """Ends the freeze of a zone, or the freeze of all zones if `zone` is empty."""

    schema_id = 31
    zone: str
