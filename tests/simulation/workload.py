"""The requests of clients: every statement that a user can make about nodes, cliques, policies, DPUs and devices.

There are few names, addresses and labels, so that commands conflict: a node joins while it leaves another zone, two
nodes have one address, a policy is deleted while its sources join. Each request is drawn from the client's own
generator and from a replica's state, as an operator would look before acting.
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
"""Nodes that join and leave everywhere, in few incarnations."""
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


KINDS = {
    "join": 24,
    "leave": 10,
    "change": 8,
    "infer": 4,
    "roam": 10,
    "part": 7,
    "claim": 16,
    "release": 8,
    "ready": 3,
    "session": 3,
    "resize": 2,
    "policy": 6,
    "unpolicy": 3,
    "describe": 4,
    "budget": 1,
    "approve": 6,
    "reject": 1,
    "freeze": 1,
    "thaw": 3,
    "lifecycle": 12,
    "register": 1,
}
"""Kinds of requests, by the methods of `Workload`, and how often one is drawn among the others."""


class Request(NamedTuple):
    """A command and its partition."""

    partition: Partition
    key: bytes
    event: e.Event


class Workload:
    """Draws the requests of one client."""

    def __init__(self, name: str, zones: Sequence[str], now_ms: Callable[[], int]) -> None:
        self.name = name
        self._zones = zones
        self._rng = random.Random(0)
        self._now_ms = now_ms

    def request(self, kind: str, rng: random.Random, replica: Replica) -> Request | None:
        """A request of a kind; None if it has no possible object."""
        self._rng = rng
        found: Request | None = getattr(self, f"_{kind}")(replica)
        return found

    # --- nodes

    def _join(self, replica: Replica) -> Request:
        zone, rng = self._rng.choice(self._zones), self._rng
        names = rng.sample(NODES, rng.choice((1, 1, 2, 5)))
        fours, sixes, sets, index = self._columns(len(names))
        said = self._said(zone)
        created, uids = self._incarnations(names)
        return self._zoned(replica, zone, e.NodesJoined(said, zone, names, created, uids, fours, sixes, sets, index))

    def _change(self, replica: Replica) -> Request:
        zone, rng = self._rng.choice(self._zones), self._rng
        names = self._there(replica, zone) or [rng.choice(NODES)]
        fours, sixes, sets, index = self._columns(len(names))
        said = self._said(zone)
        return self._zoned(replica, zone, e.NodesChanged(said, zone, names, [], [], fours, sixes, sets, index))

    def _leave(self, replica: Replica) -> Request:
        zone, rng = self._rng.choice(self._zones), self._rng
        names = self._there(replica, zone) if rng.random() < 0.8 else [rng.choice(NODES)]
        names = names or [rng.choice(NODES)]
        return self._zoned(replica, zone, e.NodesLeft(self._said(zone), zone, names, [], [], False, b""))

    def _infer(self, replica: Replica) -> Request:
        """A complete list, or a leave that quotes the replica's latest one."""
        zone, rng = self._rng.choice(self._zones), self._rng
        last = self._zone_state(replica, zone).snapshots.rows.get(f"{zone}/")
        names = self._there(replica, zone)
        if last is None or not names or rng.random() < 0.4:
            listed = e.SnapshotCompleted(self._said(zone), zone, "", rng.randint(1, 20), rng.randbytes(8))
            return self._zoned(replica, zone, listed)
        return self._zoned(replica, zone, e.NodesLeft(self._said(zone), zone, names, [], [], True, last.list_hash))

    def _roam(self, replica: Replica) -> Request:
        zone, rng = self._rng.choice(self._zones), self._rng
        number = rng.randrange(len(ROAMERS))
        created = rng.choice(INCARNATIONS)
        uid = f"{created}-{rng.choice('uv')}"
        said, four = self._said(zone), bytes((10, 0, 1, 1 + number))
        joined = e.NodesJoined(said, zone, [ROAMERS[number]], [created], [uid], four, b"", [], [])
        return self._zoned(replica, zone, joined)

    def _part(self, replica: Replica) -> Request:
        """A leave of a node that moves between zones, from a zone where it is or was, of any incarnation or of the
        present one.
        """
        rng, name = self._rng, self._rng.choice(ROAMERS)
        homes = [zone for zone in self._zones if self._has(replica, zone, name)]
        zone = rng.choice(homes or self._zones)
        row = self._zone_state(replica, zone).nodes.rows.get(name) if rng.random() < 0.3 else None
        incarnation = ([], []) if row is None else ([row.created_ms], [row.uid])
        return self._zoned(replica, zone, e.NodesLeft(self._said(zone), zone, [name], *incarnation, False, b""))

    def _has(self, replica: Replica, zone: str, name: str) -> bool:
        row = self._zone_state(replica, zone).nodes.rows.get(name)
        return row is not None and row.zone == zone

    def _incarnations(self, names: Sequence[str]) -> tuple[list[int], list[str]]:
        """No creation times, exact ones, or whole seconds as in Kubernetes."""
        kind, now_ms = self._rng.randrange(3), self._now_ms()
        if kind == 0:
            return [], []
        created = now_ms if kind == 1 else now_ms - now_ms % 1000
        return [created], [f"{self.name}-{self._rng.getrandbits(32):08x}" for _ in names]

    def _columns(self, count: int) -> tuple[bytes, bytes, list[dict[str, str]], list[int]]:
        rng = self._rng
        fours = b"".join(bytes((10, 0, 0, 1 + n)) for n in rng.sample(range(40), count))
        sixes = b"".join(bytes((0xFD, *([0] * 14), 1 + n)) for n in rng.sample(range(40), count))
        pick = [rng.randrange(len(LABELS)) for _ in range(count)]
        with6 = rng.random() < 0.3
        return fours if rng.random() < 0.95 else b"", sixes if with6 else b"", [dict(found) for found in LABELS], pick

    def _there(self, replica: Replica, zone: str) -> list[str]:
        names = sorted(n for n, node in self._zone_state(replica, zone).nodes.rows.items() if node.zone == zone)
        return self._rng.sample(names, min(len(names), self._rng.choice((1, 1, 3))))

    # --- cliques

    def _claim(self, replica: Replica) -> Request:
        rng, (domain, clique, _) = self._rng, self._spot()
        nodes, said = self._claimants(), self._said(f"{domain}/{clique}")
        hosts = rng.sample(range(1, 13), len(nodes))
        addresses = [f"10.1.0.{host}" if rng.random() < 0.5 else "" for host in hosts]
        has_pod = [rng.random() < 0.7 for _ in nodes]
        uids = [f"pod-{rng.randrange(6)}" if named else "" for named in has_pod]
        created_ms = [self._now_ms() if named else 0 for named in has_pod]
        requested = [rng.choice((-1, -1, -1, 0, 2)) for _ in nodes]
        columns = addresses, created_ms, uids, requested
        return self._of_domain(replica, domain, e.IndicesClaimed(said, domain, clique, nodes, *columns))

    def _claimants(self) -> list[str]:
        """The nodes of one record."""
        return self._rng.sample(NODES[:8], self._rng.choice((1, 1, 2, 4)))

    def _release(self, replica: Replica) -> Request:
        domain, clique, _ = self._spot()
        said = self._said(f"{domain}/{clique}")
        return self._of_domain(replica, domain, e.IndicesReleased(said, domain, clique, self._claimants(), []))

    def _ready(self, replica: Replica) -> Request:
        domain, clique, node = self._spot()
        ready, said = self._rng.random() < 0.8, self._said(f"{domain}/{clique}")
        return self._of_domain(replica, domain, e.DaemonReadinessReported(said, domain, clique, node, "", ready))

    def _session(self, replica: Replica) -> Request:
        domain, clique, node = self._spot()
        session, said = f"s{self._rng.randrange(4)}", self._said(f"{domain}/{clique}")
        if self._rng.random() < 0.5:
            opened = e.SessionOpened(said, domain, clique, node, "", session, self.name)
            return self._of_domain(replica, domain, opened)
        return self._of_domain(replica, domain, e.SessionExpired(said, domain, clique, node, session))

    def _resize(self, replica: Replica) -> Request:
        domain, clique, _ = self._spot()
        capacity, said = self._rng.choice(CAPACITY), self._said(f"{domain}/{clique}")
        return self._of_domain(replica, domain, e.CliqueCapacitySet(said, domain, clique, capacity))

    def _spot(self) -> tuple[str, str, str]:
        return self._rng.choice(DOMAINS), self._rng.choice(CLIQUES_OF), self._rng.choice(NODES[:8])

    # --- fleet

    def _policy(self, replica: Replica) -> Request:
        rng, name = self._rng, self._rng.choice(POLICIES)
        protocol = rng.choice(("any", "any", "tcp"))
        ports = [] if protocol == "any" else [rng.randint(1, 99), 200]
        sources, zones = dict(rng.choice(LABELS)), dict(rng.choice(ZONE_LABELS))
        priority, action = rng.choice((0, 10, 10, 20)), rng.choice(("allow", "allow", "drop"))
        return self._fleet(e.PolicySet(self._said(name), name, priority, action, protocol, ports, sources, zones))

    def _unpolicy(self, replica: Replica) -> Request:
        name = self._rng.choice(POLICIES)
        return self._fleet(e.PolicyDeleted(self._said(name), name))

    def _describe(self, replica: Replica) -> Request:
        rng, zone = self._rng, self._rng.choice(self._zones)
        labels = dict(rng.choice(ZONE_LABELS))
        limits = (rng.choice((-1, 0, 1, 2)), rng.choice((-1, 0, 1, 2)))
        return self._fleet(e.ZoneUpdated(self._said(zone), zone, rng.random() < 0.6, labels, *limits))

    def _budget(self, replica: Replica) -> Request:
        kind = self._rng.choice(BUDGETS)
        return self._fleet(
            e.BudgetSet(self._said(kind), kind, self._rng.choice((0, 100)), self._rng.choice((2, 5, 100)))
        )

    def _approve(self, replica: Replica) -> Request | None:
        holds = self._fleet_state(replica).holds.rows
        if not holds:
            return None
        hold = holds[self._rng.choice(sorted(holds))]
        return self._fleet(e.HoldApproved(self._said("hold"), hold.id, hold.hash))

    def _reject(self, replica: Replica) -> Request | None:
        holds = self._fleet_state(replica).holds.rows
        return self._fleet(e.HoldRejected(self._said("hold"), holds[min(holds)].id)) if holds else None

    def _freeze(self, replica: Replica) -> Request:
        zone = self._rng.choice(("", *self._zones))
        return self._fleet(e.WritesFrozen(self._said(zone), zone))

    def _thaw(self, replica: Replica) -> Request | None:
        frozen = sorted(self._fleet_state(replica).freezes.rows)
        return self._fleet(e.WritesThawed(self._said(""), self._rng.choice(frozen))) if frozen else None

    # --- DPUs

    def _lifecycle(self, replica: Replica) -> Request | None:
        zone, rng = self._rng.choice(self._zones), self._rng
        dpus = sorted(n for n, dpu in self._zone_state(replica, zone).dpus.rows.items() if dpu.zone == zone)
        if not dpus:
            return None
        request = rng.choice(("provision",) * 6 + ("pause", "resume", "resume", "retry", "skip", "abort", "delete"))
        image = rng.choice(IMAGES) if request == "provision" else ""
        dpu = rng.choice(dpus)
        return self._zoned(replica, zone, e.LifecycleRequested(self._said(dpu), zone, dpu, request, image))

    def _register(self, replica: Replica) -> Request:
        """Register a present DPU, or a deleted one."""
        zone = self._rng.choice(self._zones)
        dpu, node, serial, bmc = (text.format(zone=zone, number=0) for text in NAMING)
        return self._zoned(replica, zone, e.DpuRegistered(self._said(dpu), zone, dpu, node, serial, bmc))

    # --- where things go

    def _said(self, subject: str) -> e.Envelope:
        return envelope(subject, self.name, uuid7(self._now_ms(), self._rng))

    def _zoned(self, replica: Replica, zone: str, event: e.Event) -> Request:
        return Request(_keyed(replica, ZONES, zone), zone.encode(), event)

    def _of_domain(self, replica: Replica, domain: str, event: e.Event) -> Request:
        return Request(_keyed(replica, CLIQUES, domain), domain.encode(), event)

    def _fleet(self, event: e.Event) -> Request:
        return Request(Partition(FLEET, 0), event.envelope.subject.encode(), event)

    def _zone_state(self, replica: Replica, zone: str) -> ZonesState:
        state: ZonesState = replica.state(_keyed(replica, ZONES, zone))
        return state

    def _fleet_state(self, replica: Replica) -> FleetState:
        state: FleetState = replica.state(Partition(FLEET, 0))
        return state


def _keyed(replica: Replica, topic: str, key: str) -> Partition:
    return Partition(topic, partition_of(key.encode(), len(replica.partitions(topic))))
