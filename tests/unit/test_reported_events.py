"""The Events that the Kubernetes edge reports: refusals of Nodes and of daemon pods, and the states of holds."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from commands.kubernetes.node_edge import NodeEdge
from eventstore.log import CLIQUES
from projections.kubernetes.object_events import ObjectEvent, Regarding
from schemas.events import IndicesClaimed, NodesJoined
from schemas.resources.hold import HOLD
from tests.contract.clique_scenarios import address, row
from tests.contract.test_clique_scenarios import simulated
from tests.support.kubernetes.clique_cluster import CLIQUE, DaemonPodMade
from tests.support.kubernetes.simulated.api import SimulatedApi
from tests.support.kubernetes.statuses import Statuses
from tests.support.memory_plane import plane
from tests.unit.test_node_edge import RULES, count, list_of, node, zones_of

pytestmark = pytest.mark.virtual_clock


def regarding(pod: DaemonPodMade) -> Regarding:
    about = pod.metadata
    return Regarding("v1", "Pod", about.name, about.uid, about.namespace)


def holds_of(made: Statuses) -> list[ObjectEvent]:
    """The reported Events about objects of holds."""
    return [each for each in made.reported if each.regarding.kind == HOLD.name]


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


async def test_a_node_from_the_future_is_reported_alone_and_the_others_of_its_record_join() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        reported: list[ObjectEvent] = []
        found = NodeEdge(made.replicas["r1"], RULES, now_ms=made.now_ms, rng=made.rng(), report=reported.append)
        made.spawn("r1", found.run())
        in_an_hour_s = made.now_ms() // 1_000 + 3_600
        nodes = [node(f"n{number}", created_s=in_an_hour_s if number == 7 else 1_600_000_000) for number in range(500)]
        list_of(found, *nodes)
        await made.until(lambda: len(zones_of(made)) == 499, timeout_s=5)
        assert set(found.refused) == {"east/n7"}
        assert count(made, NodesJoined) == 2, "the whole record, and the record without the node"
        await asyncio.sleep(1_500)
        assert {each.regarding.name for each in reported} == {"n7"}
        messages = {each.message for each in reported}
        assert len(messages) >= 2 and len({each.name for each in reported}) == 1, "only the text has a time"
        await made.until(lambda: len(zones_of(made)) == 500, timeout_s=4_000)


async def test_a_node_with_another_fault_is_reported_alone_and_the_others_of_its_record_join() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        reported: list[ObjectEvent] = []
        found = NodeEdge(made.replicas["r1"], RULES, now_ms=made.now_ms, rng=made.rng(), report=reported.append)
        made.spawn("r1", found.run())
        list_of(found, *(node(f"n{number}", uid="x" * 300 if number in (3, 90) else "u") for number in range(100)))
        await made.until(lambda: len(zones_of(made)) == 98, timeout_s=5)
        await made.until(lambda: len(reported) == 2, timeout_s=5)
        assert {each.regarding.name for each in reported} == {"n3", "n90"} == {name[5:] for name in found.refused}


async def test_a_refusal_of_the_clock_is_no_refusal_of_a_node_and_is_repeated() -> None:
    async with plane() as made:
        await made.start("r1", "api")
        reported: list[ObjectEvent] = []
        slow_ms = 180_000

        def now_ms() -> int:
            return made.now_ms() - slow_ms

        found = NodeEdge(made.replicas["r1"], RULES, now_ms=now_ms, rng=made.rng(), report=reported.append)
        made.spawn("r1", found.run())
        list_of(found, node("n1"), node("n2"))
        await asyncio.sleep(300)
        assert count(made, NodesJoined) in range(5, 30), "repeated, with a growing pause"
        slow_ms = 0
        await made.until(lambda: len(zones_of(made)) == 2)
        slow_ms = 180_000
        list_of(found, node("n1"))
        await asyncio.sleep(60)
        assert len(zones_of(made)) == 2 and not found.refused and not reported, "a refused list names no node"
        slow_ms = 0
        await made.until(lambda: zones_of(made) == {"east/n1": "z1"})


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
        (opened,) = holds_of(found)
        assert opened.regarding == Regarding("dpuplane.io/v1alpha1", "Hold", name, item["metadata"]["uid"])
        assert (opened.reason, opened.is_warning) == ("WaitsForApproval", True)
        await found.approve(number)
        await asyncio.sleep(60)
        assert [(each.reason, each.is_warning) for each in holds_of(found)[1:]] == [("Approved", False)]


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
        reported = holds_of(found)
        assert len(reported) == 2 and len({each.name for each in reported}) == 1
