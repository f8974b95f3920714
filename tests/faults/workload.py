"""The requests of clients: few zones, nodes and labels, so that commands conflict. Drawn from the client's generator
alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from eventstore.log import CLIQUES, FLEET, ZONES, Partition, partition_of
from schemas.api import dpuplane_pb2 as pb

ZONE_NAMES = ("a", "b", "c", "d")
NODES = [f"node-{number}" for number in range(40)]
LABELS: Sequence[dict[str, str]] = ({}, {"role": "web"}, {"role": "db"}, {"role": "web", "tier": "gold"})
DOMAINS = ("dom-0", "dom-1")


class Asked(NamedTuple):
    """A request without its id, the method that takes it, and the partition that decides it."""

    method: str
    request: Any
    partition: Partition


class Workload:
    """Draws the requests of one client."""

    def __init__(self, rng: random.Random, partition_count: int) -> None:
        self._rng = rng
        self._partition_count = partition_count
        self._draws: dict[Callable[[], Asked], int] = {
            self._join: 30,
            self._leave: 10,
            self._change: 10,
            self._claim: 20,
            self._release: 8,
            self._ready: 4,
            self._policy: 5,
            self._unpolicy: 2,
            self._describe: 3,
            self._freeze: 1,
            self._thaw: 3,
            self._provision: 3,
        }

    def draw(self) -> Asked:
        """The next request."""
        return self._rng.choices(list(self._draws), list(self._draws.values()))[0]()

    def _join(self) -> Asked:
        zone, rng = self._rng.choice(ZONE_NAMES), self._rng
        names = rng.sample(NODES, rng.choice((1, 1, 2, 4)))
        hosts = rng.sample(range(1, 80), len(names))
        nodes = [self._node(name, host) for name, host in zip(names, hosts, strict=True)]
        return self._zoned("JoinNodes", zone, pb.JoinNodesRequest(zone=zone, nodes=nodes))

    def _change(self) -> Asked:
        zone = self._rng.choice(ZONE_NAMES)
        nodes = [self._node(self._rng.choice(NODES), self._rng.randrange(1, 80))]
        return self._zoned("ChangeNodes", zone, pb.ChangeNodesRequest(zone=zone, nodes=nodes))

    def _leave(self) -> Asked:
        zone = self._rng.choice(ZONE_NAMES)
        names = self._rng.sample(NODES, self._rng.choice((1, 1, 3)))
        return self._zoned("LeaveNodes", zone, pb.LeaveNodesRequest(zone=zone, names=names))

    def _node(self, name: str, host: int) -> pb.NodeSpec:
        addresses = [f"10.0.0.{host}"]
        if self._rng.random() < 0.3:
            addresses.append(f"fd00::{host:x}")
        return pb.NodeSpec(name=name, addresses=addresses, labels=self._rng.choice(LABELS))

    def _claim(self) -> Asked:
        domain, clique, _ = self._spot()
        claims = [pb.ClaimSpec(node=node, uid="pod") for node in self._claimants()]
        return self._of_domain(
            "ClaimIndices", domain, pb.ClaimIndicesRequest(domain=domain, clique=clique, claims=claims)
        )

    def _claimants(self) -> list[str]:
        return self._rng.sample(NODES[:12], self._rng.choice((1, 1, 3)))

    def _release(self) -> Asked:
        domain, clique, _ = self._spot()
        releases = [pb.ReleaseSpec(node=node) for node in self._claimants()]
        request = pb.ReleaseIndicesRequest(domain=domain, clique=clique, releases=releases)
        return self._of_domain("ReleaseIndices", domain, request)

    def _ready(self) -> Asked:
        domain, clique, node = self._spot()
        request = pb.ReportDaemonReadinessRequest(domain=domain, clique=clique, node=node, ready=True)
        return self._of_domain("ReportDaemonReadiness", domain, request)

    def _spot(self) -> tuple[str, str, str]:
        return self._rng.choice(DOMAINS), self._rng.choice(("c0", "c1")), self._rng.choice(NODES[:12])

    def _policy(self) -> Asked:
        rng = self._rng
        policy = pb.PolicySpec(
            name=rng.choice(("p0", "p1", "p2")),
            priority=rng.choice((0, 10, 20)),
            action=rng.choice(("allow", "allow", "drop")),
            sources=rng.choice(LABELS),
        )
        return self._of_fleet("SetPolicy", pb.SetPolicyRequest(policy=policy))

    def _unpolicy(self) -> Asked:
        return self._of_fleet("DeletePolicy", pb.DeletePolicyRequest(name=self._rng.choice(("p0", "p1", "p2"))))

    def _describe(self) -> Asked:
        labels = self._rng.choice(LABELS)
        request = pb.UpdateZoneRequest(zone=self._rng.choice(ZONE_NAMES), set_labels=True, labels=labels)
        return self._of_fleet("UpdateZone", request)

    def _freeze(self) -> Asked:
        return self._of_fleet("FreezeWrites", pb.FreezeWritesRequest(zone=self._rng.choice(ZONE_NAMES)))

    def _thaw(self) -> Asked:
        return self._of_fleet("ThawWrites", pb.ThawWritesRequest(zone=self._rng.choice(ZONE_NAMES)))

    def _provision(self) -> Asked:
        zone = self._rng.choice(ZONE_NAMES)
        request = pb.RequestLifecycleRequest(
            zone=zone,
            dpu=f"{zone}-dpu-0000",
            verb=pb.RequestLifecycleRequest.VERB_PROVISION,
            image=self._rng.choice(("bf-1", "bf-2")),
        )
        return self._zoned("RequestLifecycle", zone, request)

    def _zoned(self, method: str, zone: str, request: object) -> Asked:
        return self._asked(method, ZONES, zone, request)

    def _of_domain(self, method: str, domain: str, request: object) -> Asked:
        return self._asked(method, CLIQUES, domain, request)

    def _of_fleet(self, method: str, request: object) -> Asked:
        return Asked(method, request, Partition(FLEET, 0))

    def _asked(self, method: str, topic: str, key: str, request: object) -> Asked:
        return Asked(method, request, Partition(topic, partition_of(key.encode(), self._partition_count)))
