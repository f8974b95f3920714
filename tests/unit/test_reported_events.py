"""The Events that the Kubernetes edge reports: refusals of Nodes and of daemon pods, and the states of holds."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from commands.kubernetes.node_edge import NodeEdge
from eventstore.log import CLIQUES
from projections.kubernetes.object_events import ObjectEvent, Regarding
from schemas.events import IndicesClaimed
from schemas.resources.hold import HOLD
from tests.contract.clique_scenarios import address, row
from tests.contract.test_clique_scenarios import simulated
from tests.support.kubernetes.clique_cluster import CLIQUE, DaemonPodMade
from tests.support.kubernetes.simulated.api import SimulatedApi
from tests.support.kubernetes.statuses import Statuses
from tests.support.memory_plane import plane
from tests.unit.test_node_edge import RULES, list_of, node

pytestmark = pytest.mark.virtual_clock


def regarding(pod: DaemonPodMade) -> Regarding:
    about = pod.metadata
    return Regarding("v1", "Pod", about.name, about.uid, about.namespace)


async def test_a_refused_node_is_reported_with_each_refusal_under_one_name() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        reported: list[ObjectEvent] = []
        found = NodeEdge(made.replicas["r1"], RULES, now_ms=made.now_ms, rng=made.rng(), report=reported.append)
        made.spawn("r1", found.run())
        await made.join("z1", "east/n1", created_ms=made.now_ms())
        list_of(found, node("n1"), node("n2", uid="u2"))
        await made.until(lambda: bool(reported))
        assert reported[0].regarding == Regarding("v1", "Node", "n1", "u1")
        assert found.refused["east/n1"] in reported[0].message
        await asyncio.sleep(900)
        assert {each.regarding.name for each in reported} == {"n1"}, "n2 has joined"
        assert len(reported) == 2 and len({each.name for each in reported}) == 1


async def test_a_daemon_pod_whose_claim_is_refused_is_reported() -> None:
    async with simulated() as east:
        domain = await east.create_domain()
        pod = await east.create_pod("n0", domain, address(0))
        await asyncio.sleep(10)
        command = east.plane.command(f"{domain}/{CLIQUE}")
        newer = IndicesClaimed(
            command, domain, CLIQUE, ["n0"], [address(1)], [east.plane.now_ms()], ["newer"], requested_indices=[]
        )
        await east.submit(domain, newer)
        east.start_edge()
        await east.plane.until(lambda: bool(east.reported))
        (found,) = {each.name: each for each in east.reported}.values()
        assert (found.regarding, found.reason) == (regarding(pod), "ClaimRefused")
        assert "is older than 'newer'" in found.message
        assert east.plane.count(east.replica.partition_for(CLIQUES, domain), IndicesClaimed) >= 2


async def test_a_daemon_pod_that_gets_another_index_than_its_row_shows_is_reported() -> None:
    async with simulated() as east:
        domain = await east.create_domain()
        await east.write_rows(domain, row("n0", 3, address(0)), row("n1", 3, address(1)))
        pods = [await east.create_pod(f"n{number}", domain, address(number)) for number in range(2)]
        east.start_edge()
        await east.plane.until(lambda: len(east.folded(domain)) == 2)
        (found,) = east.reported
        (loser,) = (pod for pod in pods if east.folded(domain)[pod.node] != 3)
        assert (found.regarding, found.reason) == (regarding(loser), "IndexRefused")


async def test_a_hold_is_reported_once_when_it_opens_and_once_when_it_ends() -> None:
    async with plane() as made:
        found = Statuses(made, SimulatedApi(Random(1)))
        await found.install()
        await found.start("r1")
        number = await found.hold()
        await asyncio.sleep(60)
        ((name, item),) = (await found.objects(HOLD)).items()
        (opened,) = found.reported
        assert opened.regarding == Regarding("dpuplane.io/v1alpha1", "Hold", name, item["metadata"]["uid"])
        assert (opened.reason, opened.is_warning) == ("WaitsForApproval", True)
        await found.approve(number)
        await asyncio.sleep(60)
        assert [(each.reason, each.is_warning) for each in found.reported[1:]] == [("Approved", False)]


async def test_a_restarted_process_reports_an_open_hold_under_the_same_name() -> None:
    async with plane() as made:
        found = Statuses(made, SimulatedApi(Random(1)))
        await found.install()
        await found.start("r1")
        await found.hold()
        await asyncio.sleep(5)
        made.kill("r1")
        await found.start("r1")
        await asyncio.sleep(30)
        assert len(found.reported) == 2 and len({each.name for each in found.reported}) == 1
