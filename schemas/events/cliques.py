"""Events about cliques: claims of indices, and the sessions and readiness of daemons."""

from __future__ import annotations

import msgspec

from schemas.envelope import Envelope


class IndexClaimed(msgspec.Struct, frozen=True, gc=False):
    """A node claims an index of a clique.

    `created_ms` and `uid` are the claiming pod's incarnation; an empty uid means (issued_at_ms, command_id).
    `requested_index` is the index that an external system already shows for the node, or -1.
    """

    envelope: Envelope
    domain: str
    clique: str
    node: str
    address: str
    created_ms: int
    uid: str
    requested_index: int


class IndexReleased(msgspec.Struct, frozen=True, gc=False):
    """A node releases its index, or its place in the queue. An empty uid means any incarnation."""

    envelope: Envelope
    domain: str
    clique: str
    node: str
    created_ms: int
    uid: str


class CliqueCapacitySet(msgspec.Struct, frozen=True, gc=False):
    """Sets the number of indices of a clique."""

    envelope: Envelope
    domain: str
    clique: str
    capacity: int


class DaemonReadinessReported(msgspec.Struct, frozen=True, gc=False):
    """The daemon of a member reports whether it is ready. It applies to one incarnation."""

    envelope: Envelope
    domain: str
    clique: str
    node: str
    uid: str
    ready: bool


class SessionOpened(msgspec.Struct, frozen=True, gc=False):
    """A member's daemon has a session through this edge; a newer session replaces an older one."""

    envelope: Envelope
    domain: str
    clique: str
    node: str
    uid: str
    session: str
    edge: str


class SessionExpired(msgspec.Struct, frozen=True, gc=False):
    """The session of a daemon expired: its edge received nothing for the grace period. Ignored if a newer session
    exists."""

    envelope: Envelope
    domain: str
    clique: str
    node: str
    session: str
