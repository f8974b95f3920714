"""Events about cliques: claims of indices, and the sessions and readiness of daemons."""

from __future__ import annotations

from schemas.envelope import Event


class IndicesClaimed(Event, frozen=True, gc=False):
    """Nodes claim indices of one clique. The claims are decided in order. No node and no address occurs twice.

    `created_ms` and `uids` are the incarnations of the claiming pods. A `created_ms` of 0 stands for `issued_at_ms`,
    and an empty uid for `command_id`. An empty address means none. `requested_indices` are the indices that an external
    system already shows for the nodes, or -1.
    """

    schema_id = 17
    domain: str
    clique: str
    nodes: list[str]
    addresses: list[str]
    created_ms: list[int]
    uids: list[str]
    requested_indices: list[int]


class IndicesReleased(Event, frozen=True, gc=False):
    """Nodes release their indices of one clique, or their places in its queue. An empty uid means any incarnation."""

    schema_id = 18
    domain: str
    clique: str
    nodes: list[str]
    uids: list[str]


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
