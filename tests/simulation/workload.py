"""The random requests of clients: every command of a user about nodes, cliques, policies, DPUs and devices.

There are few names, addresses and labels, so that commands conflict: a node joins while it leaves another zone, two
nodes have one address, a policy is deleted while its sources join. A request depends on the client's random generator
and on the state of a replica, as an operator looks before acting.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from drivers.simulators.simulator import NAMING
from eventstore.ids import envelope, uuid7
from eventstore.log import CLIQUES, FLEET, ZONES, Partition, partition_of
from eventstore.replicas.replica import Replica
from projections.fleet.state import FleetState
from projections.zones.state import ZonesState
from schemas import events as e

NODES = [f"node-{n}" for n in range(24)]
ROAMERS = ["roamer-0", "roamer-1", "roamer-2"]
"""Nodes that join and leave any zone, in few incarnations."""
INCARNATIONS = (1_000, 2_000, 3_000)
LABELS: Sequence[dict[str, str]] = (
    {},
    {"role": "web"},
    {"role": "db"},
    {"role": "web", "tier": "gold"},
    {"tier": "gold"},
)
ZONE_LABELS: Sequence[dict[str, str]] = ({}, {"site": "a"}, {"site": "b"})
BUDGETS = ("denied-by-leave", "denied-by-change", "allowed-by-change", "allowed-by-join")
POLICIES = ["p0", "p1", "p2", "p3", "default"]
DOMAINS = ["dom-0", "dom-1"]
CLIQUES_OF = ["c0", "c1"]
IMAGES = ["bf-1.0", "bf-2.0"]
CAPACITY = (1, 2, 3, 5)


REQUEST_WEIGHTS = {
    "join": 24,
    "leave": 10,
    "change": 8,
    "infer_leave": 4,
    "join_anywhere": 10,
    "leave_anywhere": 7,
    "claim": 16,
    "release": 8,
    "ready": 3,
    "session": 3,
    "set_capacity": 2,
    "set_policy": 6,
    "delete_policy": 3,
    "update_zone": 4,
    "set_budget": 1,
    "approve_hold": 6,
    "reject_hold": 1,
    "freeze": 1,
    "thaw": 3,
    "lifecycle": 12,
    "register": 1,
}
"""The relative frequency of each kind of request. A kind names the method of `Workload` that draws the request."""


class Request(NamedTuple):
    """A command and its partition."""

    partition: Partition
    key: bytes
    event: e.Event


class Workload:
    """Draws the random requests of one client."""

    def __init__(self, name: str, zones: Sequence[str], now_ms: Callable[[], int]) -> None:
        self.name = name
        self._zones = zones
        self._rng = random.Random(0)
        self._now_ms = now_ms

    def request(self, kind: str, rng: random.Random, replica: Replica) -> Request | None:
        """A request of this kind; None if the state has no object for it."""
        self._rng = rng
        found: Request | None = getattr(self, f"_{kind}")(replica)
        return found

    # --- nodes

    def _join(self, replica: Replica) -> Request:
        zone, rng = self._rng.choice(self._zones), self._rng
        names = rng.sample(NODES, rng.choice((1, 1, 2, 5)))
        addresses4, addresses6, sets, index = self._columns(len(names))
        envelope = self._envelope(zone)
        created, uids = self._incarnations(names)
        return self._zone_request(
            replica, zone, e.NodesJoined(envelope, zone, names, created, uids, addresses4, addresses6, sets, index)
        )

    def _change(self, replica: Replica) -> Request:
        zone, rng = self._rng.choice(self._zones), self._rng
        names = self._nodes_in(replica, zone) or [rng.choice(NODES)]
        addresses4, addresses6, sets, index = self._columns(len(names))
        envelope = self._envelope(zone)
        return self._zone_request(
            replica, zone, e.NodesChanged(envelope, zone, names, [], [], addresses4, addresses6, sets, index)
        )

    def _leave(self, replica: Replica) -> Request:
        zone, rng = self._rng.choice(self._zones), self._rng
        names = self._nodes_in(replica, zone) if rng.random() < 0.8 else [rng.choice(NODES)]
        names = names or [rng.choice(NODES)]
        return self._zone_request(replica, zone, e.NodesLeft(self._envelope(zone), zone, names, [], [], False, b""))

    def _infer_leave(self, replica: Replica) -> Request:
        """A SnapshotCompleted, or an inferred leave that quotes the latest SnapshotCompleted of the replica."""
        zone, rng = self._rng.choice(self._zones), self._rng
        last = self._zone_state(replica, zone).snapshots.rows.get(f"{zone}/")
        names = self._nodes_in(replica, zone)
        if last is None or not names or rng.random() < 0.4:
            count, restored = rng.randint(0, 20), rng.random() < 0.1
            facts = (count, rng.randbytes(8), rng.randrange(100), count + rng.randrange(5), restored)
            listed = e.SnapshotCompleted(self._envelope(zone), zone, "", *facts)
            return self._zone_request(replica, zone, listed)
        return self._zone_request(
            replica, zone, e.NodesLeft(self._envelope(zone), zone, names, [], [], True, last.list_hash)
        )

    def _join_anywhere(self, replica: Replica) -> Request:
        zone, rng = self._rng.choice(self._zones), self._rng
        number = rng.randrange(len(ROAMERS))
        created = rng.choice(INCARNATIONS)
        uid = f"{created}-{rng.choice('uv')}"
        envelope, four = self._envelope(zone), bytes((10, 0, 1, 1 + number))
        joined = e.NodesJoined(envelope, zone, [ROAMERS[number]], [created], [uid], four, b"", [], [])
        return self._zone_request(replica, zone, joined)

    def _leave_anywhere(self, replica: Replica) -> Request:
        """A leave of a node that joins any zone: from a zone that has it, else from any zone. It names the current
        incarnation, or none.
        """
        rng, name = self._rng, self._rng.choice(ROAMERS)
        zones_of_node = [zone for zone in self._zones if self._is_in(replica, zone, name)]
        zone = rng.choice(zones_of_node or self._zones)
        row = self._zone_state(replica, zone).nodes.rows.get(name) if rng.random() < 0.3 else None
        incarnation = ([], []) if row is None else ([row.created_ms], [row.uid])
        return self._zone_request(
            replica, zone, e.NodesLeft(self._envelope(zone), zone, [name], *incarnation, False, b"")
        )

    def _is_in(self, replica: Replica, zone: str, name: str) -> bool:
        row = self._zone_state(replica, zone).nodes.rows.get(name)
        return row is not None and row.zone == zone

    def _incarnations(self, names: Sequence[str]) -> tuple[list[int], list[str]]:
        """Creation times and uids: none, exact times, or whole seconds as in Kubernetes."""
        kind, now_ms = self._rng.randrange(3), self._now_ms()
        if kind == 0:
            return [], []
        created = now_ms if kind == 1 else now_ms - now_ms % 1000
        return [created], [f"{self.name}-{self._rng.getrandbits(32):08x}" for _ in names]

    def _columns(self, count: int) -> tuple[bytes, bytes, list[dict[str, str]], list[int]]:
        rng = self._rng
        addresses4 = b"".join(bytes((10, 0, 0, 1 + n)) for n in rng.sample(range(40), count))
        addresses6 = b"".join(bytes((0xFD, *([0] * 14), 1 + n)) for n in rng.sample(range(40), count))
        pick = [rng.randrange(len(LABELS)) for _ in range(count)]
        with6 = rng.random() < 0.3
        return (
            addresses4 if rng.random() < 0.95 else b"",
            addresses6 if with6 else b"",
            [dict(found) for found in LABELS],
            pick,
        )

    def _nodes_in(self, replica: Replica, zone: str) -> list[str]:
        """Some nodes of a zone, without those of a source cluster: their edge alone states them."""
        rows = self._zone_state(replica, zone).nodes.rows
        names = sorted(name for name, node in rows.items() if node.zone == zone and "/" not in name)
        return self._rng.sample(names, min(len(names), self._rng.choice((1, 1, 3))))

    # --- cliques

    def _claim(self, replica: Replica) -> Request:
        rng, (domain, clique, _) = self._rng, self._clique_member()
        nodes, envelope = self._claimants(), self._envelope(f"{domain}/{clique}")
        hosts = rng.sample(range(1, 13), len(nodes))
        addresses = [f"10.1.0.{host}" if rng.random() < 0.5 else "" for host in hosts]
        has_pod = [rng.random() < 0.7 for _ in nodes]
        uids = [f"pod-{rng.randrange(6)}" if named else "" for named in has_pod]
        created_ms = [self._now_ms() if named else 0 for named in has_pod]
        requested = [rng.choice((-1, -1, -1, 0, 2)) for _ in nodes]
        columns = addresses, created_ms, uids, requested
        return self._domain_request(replica, domain, e.IndicesClaimed(envelope, domain, clique, nodes, *columns))

    def _claimants(self) -> list[str]:
        """The nodes of one claim or release record."""
        return self._rng.sample(NODES[:8], self._rng.choice((1, 1, 2, 4)))

    def _release(self, replica: Replica) -> Request:
        domain, clique, _ = self._clique_member()
        envelope = self._envelope(f"{domain}/{clique}")
        return self._domain_request(replica, domain, e.IndicesReleased(envelope, domain, clique, self._claimants(), []))

    def _ready(self, replica: Replica) -> Request:
        domain, clique, node = self._clique_member()
        ready, envelope = self._rng.random() < 0.8, self._envelope(f"{domain}/{clique}")
        return self._domain_request(
            replica, domain, e.DaemonReadinessReported(envelope, domain, clique, node, "", ready)
        )

    def _session(self, replica: Replica) -> Request:
        domain, clique, node = self._clique_member()
        session, envelope = f"s{self._rng.randrange(4)}", self._envelope(f"{domain}/{clique}")
        if self._rng.random() < 0.5:
            opened = e.SessionOpened(envelope, domain, clique, node, "", session, self.name)
            return self._domain_request(replica, domain, opened)
        return self._domain_request(replica, domain, e.SessionExpired(envelope, domain, clique, node, session))

    def _set_capacity(self, replica: Replica) -> Request:
        domain, clique, _ = self._clique_member()
        capacity, envelope = self._rng.choice(CAPACITY), self._envelope(f"{domain}/{clique}")
        return self._domain_request(replica, domain, e.CliqueCapacitySet(envelope, domain, clique, capacity))

    def _clique_member(self) -> tuple[str, str, str]:
        return self._rng.choice(DOMAINS), self._rng.choice(CLIQUES_OF), self._rng.choice(NODES[:8])

    # --- fleet

    def _set_policy(self, replica: Replica) -> Request:
        rng, name = self._rng, self._rng.choice(POLICIES)
        protocol = rng.choice(("any", "any", "tcp"))
        ports = [] if protocol == "any" else [rng.randint(1, 99), 200]
        sources, zones = dict(rng.choice(LABELS)), dict(rng.choice(ZONE_LABELS))
        priority, action = rng.choice((0, 10, 10, 20)), rng.choice(("allow", "allow", "drop"))
        return self._fleet_request(
            e.PolicySet(self._envelope(name), name, priority, action, protocol, ports, sources, zones)
        )

    def _delete_policy(self, replica: Replica) -> Request:
        name = self._rng.choice(POLICIES)
        return self._fleet_request(e.PolicyDeleted(self._envelope(name), name))

    def _update_zone(self, replica: Replica) -> Request:
        rng, zone = self._rng, self._rng.choice(self._zones)
        labels = dict(rng.choice(ZONE_LABELS))
        limits = (rng.choice((-1, 0, 1, 2)), rng.choice((-1, 0, 1, 2)))
        return self._fleet_request(e.ZoneUpdated(self._envelope(zone), zone, rng.random() < 0.6, labels, *limits))

    def _set_budget(self, replica: Replica) -> Request:
        kind = self._rng.choice(BUDGETS)
        return self._fleet_request(
            e.BudgetSet(self._envelope(kind), kind, self._rng.choice((0, 100)), self._rng.choice((2, 5, 100)))
        )

    def _approve_hold(self, replica: Replica) -> Request | None:
        holds = self._fleet_state(replica).holds.rows
        if not holds:
            return None
        hold = holds[self._rng.choice(sorted(holds))]
        return self._fleet_request(e.HoldApproved(self._envelope("hold"), hold.id, hold.hash))

    def _reject_hold(self, replica: Replica) -> Request | None:
        holds = self._fleet_state(replica).holds.rows
        return self._fleet_request(e.HoldRejected(self._envelope("hold"), holds[min(holds)].id)) if holds else None

    def _freeze(self, replica: Replica) -> Request:
        zone = self._rng.choice(("", *self._zones))
        return self._fleet_request(e.WritesFrozen(self._envelope(zone), zone))

    def _thaw(self, replica: Replica) -> Request | None:
        frozen = sorted(self._fleet_state(replica).freezes.rows)
        return self._fleet_request(e.WritesThawed(self._envelope(""), self._rng.choice(frozen))) if frozen else None

    # --- DPUs

    def _lifecycle(self, replica: Replica) -> Request | None:
        zone, rng = self._rng.choice(self._zones), self._rng
        dpus = sorted(n for n, dpu in self._zone_state(replica, zone).dpus.rows.items() if dpu.zone == zone)
        if not dpus:
            return None
        request = rng.choice(("provision",) * 6 + ("pause", "resume", "resume", "retry", "skip", "abort", "delete"))
        image = rng.choice(IMAGES) if request == "provision" else ""
        dpu = rng.choice(dpus)
        return self._zone_request(replica, zone, e.LifecycleRequested(self._envelope(dpu), zone, dpu, request, image))

    def _register(self, replica: Replica) -> Request:
        """Register a DPU that exists, or one that was deleted."""
        zone = self._rng.choice(self._zones)
        dpu, node, serial, bmc = (text.format(zone=zone, number=0) for text in NAMING)
        return self._zone_request(replica, zone, e.DpuRegistered(self._envelope(dpu), zone, dpu, node, serial, bmc))

    # --- partitions

    def _envelope(self, subject: str) -> e.Envelope:
        return envelope(subject, self.name, uuid7(self._now_ms(), self._rng))

    def _zone_request(self, replica: Replica, zone: str, event: e.Event) -> Request:
        return Request(_request_of(replica, ZONES, zone), zone.encode(), event)

    def _domain_request(self, replica: Replica, domain: str, event: e.Event) -> Request:
        return Request(_request_of(replica, CLIQUES, domain), domain.encode(), event)

    def _fleet_request(self, event: e.Event) -> Request:
        return Request(Partition(FLEET, 0), event.envelope.subject.encode(), event)

    def _zone_state(self, replica: Replica, zone: str) -> ZonesState:
        state: ZonesState = replica.state(_request_of(replica, ZONES, zone))
        return state

    def _fleet_state(self, replica: Replica) -> FleetState:
        state: FleetState = replica.state(Partition(FLEET, 0))
        return state


def _request_of(replica: Replica, topic: str, key: str) -> Partition:
    return Partition(topic, partition_of(key.encode(), len(replica.partitions(topic))))
