"""Simulated clusters report wanted objects as applied and ready, once for each content, and no other objects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drivers.simulators.clusters import SimulatedClusters
from projections.resources.conditions.causes import blocked_by
from projections.resources.kinds import (
    APPLICATION,
    DPU_CLUSTER,
    DPU_SERVICE,
    DPU_SERVICE_INTERFACE,
    DPU_SERVICE_IPAM,
    DPU_SERVICE_NAD,
)
from schemas.events import ResourcesObserved
from tests.support.memory_plane import Plane, plane
from tests.support.resource_planes import SOURCE, ResourcePlane, key

pytestmark = pytest.mark.virtual_clock

SUBNET = {"subnet": "10.0.0.0/24", "gateway": "10.0.0.1", "perNodeIPCount": 8}
UPLINK = {"template": {"spec": {"interfaceType": "physical", "physical": {"interfaceName": "p0"}}}}
CLUSTER = {"type": "static", "kubeconfig": "c-admin-kubeconfig"}


def service(version: str) -> dict[str, Any]:
    source = {"repoURL": "https://charts.example.org", "chart": "telemetry", "version": version}
    return {"helmChart": {"source": source}}


class Clusters(ResourcePlane):
    """A plane with simulated clusters, with an object of each kind that they report."""

    def __init__(self, made: Plane) -> None:
        super().__init__(made)
        self.waiting = (
            (DPU_SERVICE, "s"),
            (DPU_SERVICE_IPAM, "pool"),
            (DPU_SERVICE_INTERFACE, "p0"),
            (DPU_SERVICE_NAD, "n"),
        )

    async def begin(self, name: str) -> None:
        replica = await self.start(name)
        found = SimulatedClusters(replica, self.made.ranks(name), SOURCE, now_ms=self.made.now_ms, rng=self.made.rng())
        self.made.spawn(name, found.run())

    async def fill(self) -> None:
        await self.apply(DPU_SERVICE, "s", service("1.0.0"))
        await self.apply(DPU_SERVICE_IPAM, "pool", {"ipv4Subnet": SUBNET})
        await self.apply(DPU_SERVICE_INTERFACE, "p0", {"template": {"spec": UPLINK}})
        await self.apply(DPU_SERVICE_NAD, "n", {"resourceType": "sf", "bridge": "br-sfc"})

    def all_ready(self) -> bool:
        return all(self.is_ready(*each) for each in (*self.waiting, (DPU_CLUSTER, "c")))

    def records(self) -> int:
        return self.made.count(self.partition, ResourcesObserved)


async def test_objects_become_ready_after_their_cluster_in_any_order() -> None:
    async with plane() as made:
        clusters = Clusters(made)
        await clusters.begin("r1")
        await clusters.fill()
        await asyncio.sleep(5)
        assert not any(clusters.is_ready(*each) for each in clusters.waiting)
        assert any(
            "no DPUCluster exists" in cause.message
            for cause in blocked_by(key(DPU_SERVICE_IPAM, "pool"), clusters.world())
        )
        await clusters.apply(DPU_CLUSTER, "c", CLUSTER)
        await made.until(clusters.all_ready)
        assert clusters.seen(DPU_CLUSTER, "c")["version"].startswith("v1.")


async def test_a_changed_object_is_not_ready_at_first_and_nothing_is_stated_twice() -> None:
    async with plane() as made:
        clusters = Clusters(made)
        await clusters.begin("r1")
        await clusters.apply(DPU_CLUSTER, "c", CLUSTER)
        await clusters.fill()
        await made.until(clusters.all_ready)
        records = clusters.records()
        await asyncio.sleep(60)
        assert clusters.records() == records
        await clusters.apply(DPU_SERVICE, "s", service("1.0.1"))
        await made.until(lambda: not clusters.is_ready(DPU_SERVICE, "s"))
        (ready, *_) = clusters.conditions(DPU_SERVICE, "s")
        assert "is Progressing: its pods are starting" in ready.message
        assert clusters.is_ready(DPU_SERVICE_IPAM, "pool")
        await made.until(clusters.all_ready)
        assert clusters.records() == records + 2


async def test_deleted_objects_are_observed_no_more_also_after_a_restart() -> None:
    async with plane() as made:
        clusters = Clusters(made)
        await clusters.begin("r1")
        await clusters.apply(DPU_CLUSTER, "c", CLUSTER)
        await clusters.fill()
        await made.until(clusters.all_ready)
        made.kill("r1")
        await clusters.begin("r2")
        records = clusters.records()
        await asyncio.sleep(10)
        assert clusters.records() == records and clusters.all_ready()
        made.kill("r2")
        replica = await clusters.start("r3")
        await clusters.delete(DPU_SERVICE, "s")
        assert replica is clusters.replica
        assert any(f"/{APPLICATION}/" in each for each in clusters.state.seen)
        made.kill("r3")
        await clusters.begin("r4")
        await made.until(lambda: not any(f"/{APPLICATION}/" in each for each in clusters.state.seen))
        for kind, name in (*clusters.waiting[1:], (DPU_CLUSTER, "c")):
            await clusters.delete(kind, name)
        await made.until(lambda: not clusters.state.seen)
