"""A cliques partition that a test folds record by record. The invariants of its rows are checked after each record."""

from __future__ import annotations

import msgspec

from eventstore.folding.fold import Outcome, RecordMetadata
from eventstore.log import CLIQUES, Partition
from projections.cliques.files import slot_addresses
from projections.cliques.fold import CliquesFold
from projections.cliques.state import CliquesState, clique_key
from projections.cliques.views import CliqueView, show
from schemas.events import (
    CliqueCapacitySet,
    DaemonReadinessReported,
    Envelope,
    Event,
    IndicesClaimed,
    IndicesReleased,
    SessionExpired,
    SessionOpened,
)
from tests.support.delivered import Delivered

PARTITION = Partition(CLIQUES, 0)
START_MS = 1_700_000_000_000


class CliquesPartition:
    """A cliques fold, its state and its records. Each command gets a new id; `internal=True` omits the id, as internal
    events do.
    """

    def __init__(self, domain: str = "d", clique: str = "c", *, checked: bool = True) -> None:
        self.domain, self.clique = domain, clique
        self.checked = checked
        self.fold = CliquesFold()
        self.state = self.fold.initial_state(PARTITION)
        self.events: list[tuple[Event, RecordMetadata]] = []
        self.now_ms = START_MS

    def append(self, event: Event) -> Outcome:
        self.now_ms += 1
        at = RecordMetadata(PARTITION, len(self.events), self.now_ms, self.now_ms)
        self.events.append((event, at))
        decision = self.fold.decide(self.state, event, at)
        if decision.change is not None:
            self.fold.evolve(self.state, decision.change, at)
        if self.checked:
            check_invariants(self.state)
        return decision.outcome

    def claim(
        self,
        node: str,
        uid: str = "",
        *,
        address: str = "",
        created_ms: int = 0,
        requested_index: int = -1,
        clique: str = "",
        domain: str = "",
        issued_ms: int | None = None,
        internal: bool = False,
    ) -> Outcome:
        envelope = self._envelope(issued_ms, internal=internal)
        created_ms = created_ms or envelope.issued_at_ms
        domain, clique = domain or self.domain, clique or self.clique
        columns = [node], [address], [created_ms], [uid], [requested_index]
        return self.append(IndicesClaimed(envelope, domain, clique, *columns))

    def claim_all(
        self,
        *claims: tuple[str, str, str, int, int],
        clique: str = "",
        issued_ms: int | None = None,
        internal: bool = False,
    ) -> Outcome:
        """Claims of several nodes in one record: node, uid, address, creation time and requested index of each."""
        columns = [list(column) for column in zip(*claims, strict=True)]
        nodes, uids, addresses, created_ms, requested_indices = columns
        envelope, clique = self._envelope(issued_ms, internal=internal), clique or self.clique
        event = IndicesClaimed(envelope, self.domain, clique, nodes, addresses, created_ms, uids, requested_indices)
        return self.append(event)

    def release_all(
        self, *releases: tuple[str, str], clique: str = "", issued_ms: int | None = None, internal: bool = False
    ) -> Outcome:
        """Releases of several nodes in one record: node and uid of each."""
        nodes, uids = zip(*releases, strict=True)
        envelope = self._envelope(issued_ms, internal=internal)
        return self.append(IndicesReleased(envelope, self.domain, clique or self.clique, [*nodes], [*uids]))

    def release(
        self, node: str, uid: str = "", *, clique: str = "", issued_ms: int | None = None, internal: bool = False
    ) -> Outcome:
        envelope = self._envelope(issued_ms, internal=internal)
        return self.append(IndicesReleased(envelope, self.domain, clique or self.clique, [node], [uid]))

    def resize(self, capacity: int, clique: str = "") -> Outcome:
        envelope = self._envelope(None, internal=False)
        return self.append(CliqueCapacitySet(envelope, self.domain, clique or self.clique, capacity))

    def ready(self, node: str, ready: bool = True, uid: str = "", issued_ms: int | None = None) -> Outcome:
        envelope = self._envelope(issued_ms, internal=True)
        return self.append(DaemonReadinessReported(envelope, self.domain, self.clique, node, uid, ready))

    def open_session(self, node: str, session: str, uid: str = "", issued_ms: int | None = None) -> Outcome:
        envelope = self._envelope(issued_ms, internal=True)
        return self.append(SessionOpened(envelope, self.domain, self.clique, node, uid, session, "edge-1"))

    def expire_session(self, node: str, session: str) -> Outcome:
        envelope = self._envelope(None, internal=True)
        return self.append(SessionExpired(envelope, self.domain, self.clique, node, session))

    def view(self, clique: str = "", domain: str = "") -> CliqueView:
        found = show(self.state, domain or self.domain, clique or self.clique)
        assert found is not None
        return found

    def indices(self, clique: str = "", domain: str = "") -> dict[str, int]:
        """Clique index by node."""
        return {member.node: member.index for member in self.view(clique, domain).members}

    def waiting_nodes(self, clique: str = "") -> list[str]:
        return [waiter.node for waiter in self.view(clique).waiting]

    def slot_addresses(self, clique: str = "") -> tuple[str, ...]:
        return slot_addresses(self.state, self.domain, clique or self.clique)

    def fill(self, count: int = 18) -> None:
        for number in range(count):
            assert self.claim(f"n{number}", f"u{number}", address=f"10.0.0.{number + 1}").result["index"] == number

    def _envelope(self, issued_ms: int | None, *, internal: bool) -> Envelope:
        command_id = "" if internal else f"id-{len(self.events)}"
        return Envelope(command_id, clique_key(self.domain, self.clique), "test", issued_ms or self.now_ms + 1)


class DeliveredCliques(CliquesPartition):
    """A cliques partition over `Delivered`, which can repeat commands and crash the replica that folds it."""

    def __init__(self) -> None:
        super().__init__()
        self.delivered = Delivered(PARTITION, CliquesFold(), START_MS)

    def append(self, event: Event) -> Outcome:
        self.now_ms += 1
        event, at, outcome = self.delivered.issue(event, self.now_ms)
        self.events.append((event, at))
        self.state = self.delivered.folded.state
        if self.checked:
            check_invariants(self.state)
        return outcome


def rows_of(state: CliquesState) -> bytes:
    """All saved rows, in one canonical encoding."""
    return msgspec.msgpack.encode([sorted(table.rows.items()) for table in state.tables])


def reloaded(state: CliquesState) -> CliquesState:
    """The state after a restart: rows encoded and decoded, derived indexes rebuilt."""
    copy = CliquesState()
    for table, source in zip(copy.tables, state.tables, strict=True):
        for key, row in source.rows.items():
            table.load([(key, msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=table.row_type))])
    copy.rederive()
    return copy


def check_invariants(state: CliquesState) -> None:
    """Check the rows: one node per index, one index per node, no free index while a node waits."""
    held: dict[tuple[str, int], str] = {}
    homes: dict[tuple[str, str], str] = {}
    addresses: set[tuple[str, str]] = set()
    waiting: dict[str, int] = {}
    for key, row in state.members.rows.items():
        domain, clique, node = key.split("/", 2)
        if row.claim_state == "left":
            assert not row.address and not row.ready
            continue
        assert homes.setdefault((domain, node), clique) == clique
        if row.address:
            assert (domain, row.address) not in addresses
            addresses.add((domain, row.address))
        if row.claim_state == "waits":
            assert not row.ready
            waiting[f"{domain}/{clique}"] = waiting.get(f"{domain}/{clique}", 0) + 1
        else:
            assert held.setdefault((f"{domain}/{clique}", row.last), node) == node
            capacity = state.capacities.rows.get(f"{domain}/{clique}")
            assert 0 <= row.last < (capacity.capacity if capacity else 18)
    for key in waiting:
        found = state.capacities.rows.get(key)
        assert sum(1 for clique, _ in held if clique == key) == (found.capacity if found else 18)
