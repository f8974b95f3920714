"""The rows of a cliques partition: the assignment of indices to nodes, and the state derived from it.

There is one row per node that a clique knows, in one of three claim states: the node holds an index, it waits in the
queue, or it left and its last index is remembered. So a claim or a release changes one or two small rows, whatever the
size of the clique. The lookup structures of decisions (index map, free indices, queue, addresses) are derived.

Nodes that left are evicted oldest first, beyond a bound per clique and one per partition, because the number of domains
over time is unbounded. A clique without a known node takes no memory: its capacity is dropped with the last node.
`apply` asserts the invariants: a row that violates one is a bug of the fold.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from eventstore.folding.state_table import StateTable
from projections.overlay import Overlay

DEFAULT_CAPACITY = 18
"""The number of indices of a clique by default: an NVL72 rack of GB200 or GB300 has 18 compute trays."""

MAX_CAPACITY = 4_096
"""Maximum number of indices of a clique: far more than any existing fabric needs. It bounds a clique's index map and
files."""

MAX_QUEUE = MAX_CAPACITY
"""Maximum number of nodes that wait for an index of one clique."""

MAX_LEFT_PER_CLIQUE = MAX_CAPACITY
"""Maximum number of remembered nodes that left one clique: all nodes of a clique may leave and come back to the same
indices."""

MAX_LEFT = 32_768
"""Maximum number of remembered nodes per partition that left: they take about 10 MB."""

MAX_UNUSED = 65_536
"""Maximum number of cliques per partition with a capacity of their own and no node yet: they take about 20 MB. A domain
is in one partition."""

ClaimState = Literal["holds", "waits", "left"]


class Since(NamedTuple):
    """The item of a record at which a claim state began: the offset of the record, and the number of the item."""

    offset: int
    item: int = 0


class CliqueMember(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The row of one node in a clique.

    `last` is the index that the node holds or last held, or -1. `since` orders the queue, and the eviction of nodes
    that left. `created_ms` and `uid` are the incarnation of its pod. `issued_ms`, `ready_ms` and `session_ms` are the
    times at which the claim (or release), the readiness and the session were issued. A record about one of the three
    that was issued earlier is a late copy. `session_alive` is false once the session expired. An address is empty if
    none was given, or if a newer pod of the domain has it now.
    """

    claim_state: ClaimState
    last: int
    since: Since
    address: str
    created_ms: int
    uid: str
    issued_ms: int
    ready: bool = False
    ready_ms: int = 0
    session: str = ""
    session_ms: int = 0
    edge: str = ""
    session_alive: bool = False


class Capacity(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The number of indices of a clique, if it is not the default."""

    capacity: int


class CliquesChange(NamedTuple):
    """The changes of a decision: a clique's capacity first, then rows in this order (None deletes the row)."""

    rows: Sequence[tuple[str, CliqueMember | None]]
    capacity: tuple[str, int] | None = None


class ItemChanges(NamedTuple):
    """The change of each item of a record, in order; None where an item changes nothing."""

    changes: Sequence[CliquesChange | None]


class Clique:
    """Derived state of one clique. Dicts of nodes are in the order in which the nodes began to wait, or left."""

    __slots__ = ("capacity", "holders", "left", "queue", "ready", "used")

    def __init__(self) -> None:
        self.capacity = DEFAULT_CAPACITY
        self.holders: dict[int, str] = {}
        self.used = 0
        self.ready = 0
        self.queue: dict[str, None] = {}
        self.left: dict[str, None] = {}

    def copy(self) -> Clique:
        copied = Clique()
        copied.capacity, copied.used, copied.ready = self.capacity, self.used, self.ready
        copied.holders, copied.queue, copied.left = self.holders.copy(), self.queue.copy(), self.left.copy()
        return copied

    @property
    def is_empty(self) -> bool:
        """Whether the clique has no row, not even of a node that left."""
        return not (self.holders or self.queue or self.left)

    @property
    def is_full(self) -> bool:
        return len(self.holders) == self.capacity

    def is_free(self, index: int) -> bool:
        return 0 <= index < self.capacity and index not in self.holders


def lowest_free(used: int) -> int:
    """The lowest bit that is 0 in a bitmap of used indices."""
    return (~used & (used + 1)).bit_length() - 1


def clique_key(domain: str, clique: str) -> str:
    """The key of a clique. Neither part may contain a slash (projections/field_checks.py)."""
    return f"{domain}/{clique}"


def split_key(member_key: str) -> tuple[str, str]:
    """The clique's key and the node, from a member's key; a node may be `source/name`."""
    domain, clique, node = member_key.split("/", 2)
    return f"{domain}/{clique}", node


class CliquesState:
    """The cliques of one partition. `cliques` is keyed `domain/clique`, `members` `domain/clique/node`.

    `unused` are the cliques that have a capacity and no node.
    """

    def __init__(self) -> None:
        self.capacities: StateTable[Capacity] = StateTable("capacities", Capacity)
        self.members: StateTable[CliqueMember] = StateTable("members", CliqueMember)
        self._clear()

    def _clear(self) -> None:
        self.cliques: MutableMapping[str, Clique] = {}
        self.domains: MutableMapping[str, MutableMapping[str, None]] = {}
        self.homes: MutableMapping[str, str] = {}
        self.addresses: MutableMapping[str, str] = {}
        self.left: MutableMapping[str, None] = {}
        self.unused: MutableMapping[str, None] = {}

    def draft(self) -> CliquesState:
        """A draft of this state: changes are applied to the draft, and this state stays as it is. The draft is valid
        until this state changes."""
        draft = CliquesState()
        draft.capacities.rows, draft.members.rows = Overlay(self.capacities.rows), Overlay(self.members.rows)
        draft.cliques = Overlay(self.cliques, Clique.copy)
        draft.domains = Overlay(self.domains, Overlay)
        draft.homes, draft.addresses = Overlay(self.homes), Overlay(self.addresses)
        draft.left, draft.unused = Overlay(self.left), Overlay(self.unused)
        return draft

    @property
    def tables(self) -> Sequence[StateTable[Any]]:
        return (self.capacities, self.members)

    def rederive(self) -> None:
        self._clear()
        for key, row in self.capacities.rows.items():
            self._clique(key).capacity = row.capacity
            self.unused[key] = None
        for key, member in sorted(self.members.rows.items(), key=lambda item: (item[1].since, item[0])):
            self._add_claim(key, member)
            self._add_address(key, member)

    def member(self, clique: str, node: str) -> CliqueMember | None:
        return self.members.rows.get(f"{clique}/{node}")

    def home(self, domain: str, node: str) -> str | None:
        """The clique of this domain in which a node holds an index or waits: one at most."""
        return self.homes.get(f"{domain}/{node}")

    def apply(self, change: CliquesChange) -> None:
        if change.capacity is not None:
            key, capacity = change.capacity
            clique = self._clique(key)
            assert not clique.used >> capacity, f"{key}: an index at or above {capacity} is in use"
            self._set_capacity(key, clique, capacity)
            assert not clique.queue or clique.is_full or change.rows, f"{key}: a larger capacity serves no waiting node"
        for key, row in change.rows:
            self._replace(key, self.members.rows.get(key), row)
        for key, row in change.rows:
            clique_id, _ = split_key(key)
            touched = self.cliques.get(clique_id)
            assert touched is None or not touched.queue or touched.is_full, f"{key}: a node waits for a free index"
            if row is None and touched is not None and touched.is_empty:
                self._forget(clique_id)

    def _set_capacity(self, key: str, clique: Clique, capacity: int) -> None:
        clique.capacity = capacity
        if capacity != DEFAULT_CAPACITY:
            self.capacities.put(key, Capacity(capacity))
            if clique.is_empty:
                self.unused[key] = None
        elif clique.is_empty:
            self._forget(key)
        else:
            self.capacities.remove(key)

    def _replace(self, key: str, old: CliqueMember | None, row: CliqueMember | None) -> None:
        """Replace one row. It keeps its place in the queue if neither its claim state nor its `since` changes."""
        stays = old is not None and row is not None and (old.claim_state, old.since) == (row.claim_state, row.since)
        if old is not None:
            self._remove_address(key, old)
            if not stays:
                self._remove_claim(key, old)
        if row is None:
            self.members.remove(key)
            return
        if not stays:
            self._add_claim(key, row)
        self._add_address(key, row)
        self.members.put(key, row)

    def _clique(self, key: str) -> Clique:
        clique = self.cliques.get(key)
        if clique is None:
            clique = self.cliques[key] = Clique()
            self.domains.setdefault(_domain(key), {})[key] = None
        return clique

    def _forget(self, key: str) -> None:
        """Drop a clique without rows of nodes."""
        domain = _domain(key)
        self.capacities.remove(key)
        self.unused.pop(key, None)
        del self.cliques[key]
        del self.domains[domain][key]
        if not self.domains[domain]:
            del self.domains[domain]

    def _add_claim(self, key: str, row: CliqueMember) -> None:
        clique_id, node = split_key(key)
        clique = self._clique(clique_id)
        self.unused.pop(clique_id, None)
        if row.claim_state == "left":
            clique.left[node] = self.left[key] = None
            return
        home = self.homes.setdefault(f"{_domain(key)}/{node}", clique_id)
        assert home == clique_id, f"{key} has another home, {home}"
        if row.claim_state == "waits":
            clique.queue[node] = None
            return
        assert clique.is_free(row.last), f"{key}: index {row.last} is not free"
        clique.holders[row.last] = node
        clique.used |= 1 << row.last

    def _remove_claim(self, key: str, row: CliqueMember) -> None:
        clique_id, node = split_key(key)
        clique = self.cliques[clique_id]
        if row.claim_state == "left":
            del clique.left[node], self.left[key]
            return
        del self.homes[f"{_domain(key)}/{node}"]
        if row.claim_state == "waits":
            del clique.queue[node]
            return
        del clique.holders[row.last]
        clique.used &= ~(1 << row.last)

    def _add_address(self, key: str, row: CliqueMember) -> None:
        """Add the address and readiness, which change more often than the claim state. A node that left has neither."""
        if row.address:
            taken = self.addresses.setdefault(f"{_domain(key)}/{row.address}", key)
            assert taken == key, f"{key}: address {row.address} is that of {taken}"
        self.cliques[split_key(key)[0]].ready += row.ready

    def _remove_address(self, key: str, row: CliqueMember) -> None:
        if row.address:
            del self.addresses[f"{_domain(key)}/{row.address}"]
        self.cliques[split_key(key)[0]].ready -= row.ready


def _domain(key: str) -> str:
    return key.split("/", 1)[0]
