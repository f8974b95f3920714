"""Writes under random faults: the real server commits at most 1.1 times the writes that are needed.

A committed write is needed if it changed the content of its object. The proxy sees what the server committed, also when
the plane does not get the answer.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drivers.kubernetes.client import connect
from drivers.kubernetes.clique_targets import INTERVAL_S
from drivers.kubernetes.status import EVERY_S
from drivers.kubernetes.writer import ATTEMPTS
from schemas.resources.dpu_rack import DPU_RACK
from schemas.resources.rule_policy import RULE_POLICY
from tests.contract.clique_scenarios import address
from tests.integration.test_clique_scenarios import cliques_of
from tests.integration.test_kubernetes_nodes import Nodes, node
from tests.integration.test_kubernetes_objects import PLANE, edge, edge_rules, policies, until
from tests.support.kubernetes.answer_faults import AnswerFault, Refusal
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.faulting_proxy import WRITES, FaultingProxy, faulting, repeated
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.people import People, condition, person_and_plane
from tests.support.kubernetes.requests import get

FAULTS = (
    Refusal(status=409),
    Refusal(status=429, retry_after_s=1),
    Refusal(status=500),
    Refusal(status=500, is_committed=True),
    Refusal(status=503),
    Refusal(status=504, is_committed=True),
    Refusal(status=504, is_committed=True),
    AnswerFault(cut_after=0.0),
    AnswerFault(cut_after=0.5),
    AnswerFault(delay_s=0.5),
)
AMPLIFICATION_MAX = 1.1


def disturb(proxy: FaultingProxy, share: float, seed: int) -> None:
    """Let this share of the plane's writes fail, and a third of this share of its reads.

    An object has fewer faults in a row than the attempts after which its next write waits for minutes.
    """
    draws = random.Random(seed)
    in_a_row: Counter[str] = Counter()

    def choose(method: str, target: str) -> AnswerFault | None:
        chance = share if method in WRITES else share / 3
        fault = draws.choice(FAULTS)
        is_possible = method != "WATCH" or (isinstance(fault, Refusal) and not fault.is_committed)
        name = target.partition("?")[0].removesuffix("/status")
        if is_possible and draws.random() < chance and in_a_row[name] < ATTEMPTS - 2:
            in_a_row[name] += 1
            return fault
        if method in WRITES:
            del in_a_row[name]
        return None

    proxy.random_fault = choose


def needed_writes(proxy: FaultingProxy) -> int:
    """Number of committed writes that changed something."""
    return len(proxy.committed) - len(repeated(proxy.committed))


def is_large(proxy: FaultingProxy) -> bool:
    """Whether a run has enough writes and faults to say something. The speed of the machine decides how many changes
    share a write."""
    unknown = proxy.injected["504 after commit"] + proxy.injected["cut answer"]
    return needed_writes(proxy) > 40 and proxy.injected.total() > 20 and unknown > 3


def assert_few(proxy: FaultingProxy, what: str) -> None:
    """Print the figures of a run, and check its write amplification."""
    committed, needed = len(proxy.committed), needed_writes(proxy)
    sent = sum(seen.method in WRITES for seen in proxy.requests)
    print(
        f"\n{what}: {needed} writes needed, {committed} committed, amplification {committed / needed:.3f}; "
        f"{sent} sent, {proxy.injected.total()} faults: {dict(proxy.injected)}"
    )
    assert is_large(proxy), "the run is too small"
    assert committed <= AMPLIFICATION_MAX * needed, [(each.method, each.path) for each in repeated(proxy.committed)]


@pytest.fixture
async def people(own_control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[People]:
    async with person_and_plane(own_control_plane, PLANE, edge_rules(tmp_path)) as found:
        yield found


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_statuses_under_random_faults(tmp_path: Path, people: People) -> None:
    cluster, racks, rounds = people.cluster, 8, 4
    async with faulting(cluster) as proxy, cluster.session() as session:
        nodes = Nodes(cluster, session)
        kubeconfig = str(cluster.kubeconfig(PLANE, server=proxy.url))
        async with edge(tmp_path / "plane", people, kubeconfig=kubeconfig) as plane:
            disturb(proxy, 0.4, seed=5)
            for number in range(rounds):
                made = [node(f"r{i}-n{number}", f"rack-{i}", f"10.4.{number}.{i + 1}") for i in range(racks)]
                await nodes.create(*made)
                for name in ("p", "q", "r"):
                    spec = {"action": "drop", "priority": number + 1, "sources": {"tier": "old"}}
                    await people.apply("ann", RULE_POLICY, name, spec)
                await asyncio.sleep(EVERY_S + 2.0)
            await until(lambda: policies(plane) == dict.fromkeys(("p", "q", "r"), "drop"))
            for number in range(racks):
                await people.until(DPU_RACK, f"rack-{number}", lambda status: status.get("nodes") == rounds)
            for name in ("p", "q", "r"):
                await people.until(RULE_POLICY, name, lambda status: _is_ready(status, generation=rounds))
            proxy.clear()
            await asyncio.sleep(EVERY_S + 2.0)
            rows = plane.states.fleet.policies.rows
            assert {rows[name].priority for name in ("p", "q", "r")} == {rounds}
            for number in range(racks):
                found = (await get(people.api, DPU_RACK.path(name=f"rack-{number}")))["status"]
                assert found["members"] == [f"east/r{number}-n[0-{rounds - 1}]"]
    assert_few(proxy, "statuses")


def _is_ready(status: dict[str, object], generation: int) -> bool:
    found = condition(status, "Ready")
    return found is not None and found["status"] == "True" and status.get("observedGeneration") == generation


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.slow)])
async def test_cliques_under_random_faults(cluster: Cluster, seed: int) -> None:
    draws = random.Random(seed)
    async with (
        faulting(cluster.plane) as proxy,
        connect(str(cluster.plane.kubeconfig(server=proxy.url))) as proxied,
        cliques_of(cluster.api, cluster.namespace) as east,
    ):
        domains = [await east.create_domain(f"cd{number}", num_nodes=12) for number in range(3)]
        east.api = proxied
        east.start_edge()
        east.api = cluster.api
        disturb(proxy, 0.4, seed)
        pods = [(f"d{place}-n{number}", domain) for place, domain in enumerate(domains) for number in range(12)]
        draws.shuffle(pods)
        for place, (name, domain) in enumerate(pods):
            await east.create_pod(name, domain, address(place))
            await asyncio.sleep(draws.uniform(0.0, 0.3))
        for name, _ in pods:
            await east.set_status(name, is_ready=True)
            await asyncio.sleep(draws.uniform(0.0, 0.2))
        while not is_large(proxy):
            name, _ = draws.choice(pods)
            for is_ready in (False, True):
                await east.set_status(name, is_ready=is_ready)
                await asyncio.sleep(2 * INTERVAL_S)
        for domain in domains:
            wanted = {name for name, each in pods if each == domain}

            async def is_right(domain: str = domain, wanted: set[str] = wanted) -> bool:
                rows = await east.rows(domain)
                shown = {name: row["index"] for name, row in rows.items()}
                return (
                    shown == east.folded(domain)
                    and shown.keys() == wanted
                    and sorted(shown.values()) == list(range(12))
                    and all(row["status"] == "Ready" for row in rows.values())
                )

            await east.until(is_right, timeout_s=120.0)
    assert_few(proxy, f"cliques, seed {seed}")
