"""The random requests of clients. There are few zones, nodes and labels, so that commands conflict. Each request
depends only on the client's random generator.
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


class Call(NamedTuple):
    """A request without its command id, its API method, and the partition that decides it."""

    method: str
    request: Any
    partition: Partition


class Workload:
    """Draws the random requests of one client."""

    def __init__(self, rng: random.Random, partition_count: int) -> None:
        self._rng = rng
        self._partition_count = partition_count
        self._weights: dict[Callable[[], Call], int] = {
            self._join: 30,
            self._leave: 10,
            self._change: 10,
            self._claim: 20,
            self._release: 8,
            self._ready: 4,
            self._set_policy: 5,
            self._delete_policy: 2,
            self._update_zone: 3,
            self._freeze: 1,
            self._thaw: 3,
            self._provision: 3,
        }

    def draw(self) -> Call:
        """The next request."""
        return self._rng.choices(list(self._weights), list(self._weights.values()))[0]()

    def _join(self) -> Call:
        zone, rng = self._rng.choice(ZONE_NAMES), self._rng
        names = rng.sample(NODES, rng.choice((1, 1, 2, 4)))
        hosts = rng.sample(range(1, 80), len(names))
        nodes = [self._node(name, host) for name, host in zip(names, hosts, strict=True)]
        return self._zone_call("JoinNodes", zone, pb.JoinNodesRequest(zone=zone, nodes=nodes))

    def _change(self) -> Call:
        zone = self._rng.choice(ZONE_NAMES)
        nodes = [self._node(self._rng.choice(NODES), self._rng.randrange(1, 80))]
        return self._zone_call("ChangeNodes", zone, pb.ChangeNodesRequest(zone=zone, nodes=nodes))

    def _leave(self) -> Call:
        zone = self._rng.choice(ZONE_NAMES)
        names = self._rng.sample(NODES, self._rng.choice((1, 1, 3)))
        return self._zone_call("LeaveNodes", zone, pb.LeaveNodesRequest(zone=zone, names=names))

    def _node(self, name: str, host: int) -> pb.NodeSpec:
        addresses = [f"10.0.0.{host}"]
        if self._rng.random() < 0.3:
            addresses.append(f"fd00::{host:x}")
        return pb.NodeSpec(name=name, addresses=addresses, labels=self._rng.choice(LABELS))

    def _claim(self) -> Call:
        domain, clique, _ = self._clique_member()
        claims = [pb.ClaimSpec(node=node, uid="pod") for node in self._claimants()]
        return self._domain_call(
            "ClaimIndices", domain, pb.ClaimIndicesRequest(domain=domain, clique=clique, claims=claims)
        )

    def _claimants(self) -> list[str]:
        return self._rng.sample(NODES[:12], self._rng.choice((1, 1, 3)))

    def _release(self) -> Call:
        domain, clique, _ = self._clique_member()
        releases = [pb.ReleaseSpec(node=node) for node in self._claimants()]
        request = pb.ReleaseIndicesRequest(domain=domain, clique=clique, releases=releases)
        return self._domain_call("ReleaseIndices", domain, request)

    def _ready(self) -> Call:
        domain, clique, node = self._clique_member()
        request = pb.ReportDaemonReadinessRequest(domain=domain, clique=clique, node=node, ready=True)
        return self._domain_call("ReportDaemonReadiness", domain, request)

    def _clique_member(self) -> tuple[str, str, str]:
        return self._rng.choice(DOMAINS), self._rng.choice(("c0", "c1")), self._rng.choice(NODES[:12])

    def _set_policy(self) -> Call:
        rng = self._rng
        policy = pb.PolicySpec(
            name=rng.choice(("p0", "p1", "p2")),
            priority=rng.choice((0, 10, 20)),
            action=rng.choice(("allow", "allow", "drop")),
            sources=rng.choice(LABELS),
        )
        return self._fleet_call("SetPolicy", pb.SetPolicyRequest(policy=policy))

    def _delete_policy(self) -> Call:
        return self._fleet_call("DeletePolicy", pb.DeletePolicyRequest(name=self._rng.choice(("p0", "p1", "p2"))))

    def _update_zone(self) -> Call:
        labels = self._rng.choice(LABELS)
        request = pb.UpdateZoneRequest(zone=self._rng.choice(ZONE_NAMES), set_labels=True, labels=labels)
        return self._fleet_call("UpdateZone", request)

    def _freeze(self) -> Call:
        return self._fleet_call("FreezeWrites", pb.FreezeWritesRequest(zone=self._rng.choice(ZONE_NAMES)))

    def _thaw(self) -> Call:
        return self._fleet_call("ThawWrites", pb.ThawWritesRequest(zone=self._rng.choice(ZONE_NAMES)))

    def _provision(self) -> Call:
        zone = self._rng.choice(ZONE_NAMES)
        request = pb.RequestLifecycleRequest(
            zone=zone,
            dpu=f"{zone}-dpu-0000",
            verb=pb.RequestLifecycleRequest.VERB_PROVISION,
            image=self._rng.choice(("bf-1", "bf-2")),
        )
        return self._zone_call("RequestLifecycle", zone, request)

    def _zone_call(self, method: str, zone: str, request: object) -> Call:
        return self._call(method, ZONES, zone, request)

    def _domain_call(self, method: str, domain: str, request: object) -> Call:
        return self._call(method, CLIQUES, domain, request)

    def _fleet_call(self, method: str, request: object) -> Call:
        return Call(method, request, Partition(FLEET, 0))

    def _call(self, method: str, topic: str, key: str, request: object) -> Call:
        return Call(method, request, Partition(topic, partition_of(key.encode(), self._partition_count)))
