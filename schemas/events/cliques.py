"""Events about cliques: claims of indices, and the sessions and readiness of daemons."""

from __future__ import annotations

from schemas.envelope import Event


class IndexClaimed(Event, frozen=True, gc=False):
    """A node claims an index of a clique.

    `created_ms` and `uid` are the claiming pod's incarnation; an empty uid means (issued_at_ms, command_id).
    `requested_index` is the index that an external system already shows for the node, or -1.
    """

    schema_id = 17
    domain: str
    clique: str
    node: str
    address: str
    created_ms: int
    uid: str
    requested_index: int


class IndexReleased(Event, frozen=True, gc=False):
    """A node releases its index, or its place in the queue. An empty uid means any incarnation."""

    schema_id = 18
    domain: str
    clique: str
    node: str
    created_ms: int
    uid: str


class CliqueCapacitySet(Event, frozen=True, gc=False):
    """Sets the number of indices of a clique."""

    schema_id = 19
    domain: str
    clique: str
    capacity: int


class DaemonReadinessReported(Event, frozen=True, gc=False):
    """The daemon of a member reports whether it is ready. It applies to one incarnation."""

    schema_id = 20
    domain: str
    clique: str
    node: str
    uid: str
    ready: bool


class SessionOpened(Event, frozen=True, gc=False):
    """A member's daemon has a session through this edge; a newer session replaces an older one."""

    schema_id = 21
    domain: str
    clique: str
    node: str
    uid: str
    session: str
    edge: str


class SessionExpired(Event, frozen=True, gc=False):
    """The session of a daemon expired: its edge received nothing for the grace period. Ignored if a newer session
    exists."""

    schema_id = 22
    domain: str
    clique: str
    node: str
    session: str
