"""Definitions, rights and objects that change under the plane: it does not loop, and catches up when they are back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from drivers.kubernetes.client import connect
from drivers.kubernetes.status import EVERY_S
from drivers.kubernetes.writer import ATTEMPTS
from eventstore.ids import envelope, uuid7
from schemas.events import IndicesClaimed
from schemas.resources.compute_domain import COMPUTE_DOMAIN_CLIQUE
from schemas.resources.crds import definition
from schemas.resources.dpu_rack import DPU_RACK
from schemas.resources.rule_policy import RULE_POLICY
from tests.contract.clique_scenarios import address
from tests.integration.test_clique_scenarios import cliques_of
from tests.integration.test_kubernetes_objects import PLANE, edge, edge_rules, policies, until
from tests.integration.test_kubernetes_write_faults import is_ready, statuses, writes
from tests.support.kubernetes.answer_faults import AnswerFault
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.faulting_proxy import WRITES, faulting
from tests.support.kubernetes.fixtures import Cluster
from tests.support.kubernetes.people import RBAC, People, person_and_plane
from tests.support.kubernetes.requests import DEFINITIONS, get, install, until_denied
from tests.support.planes import serving


@pytest.fixture
async def people(own_control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[People]:
    async with person_and_plane(own_control_plane, PLANE, edge_rules(tmp_path)) as found:
        yield found


@pytest.mark.parametrize("is_handled", [True, False])
async def test_a_process_killed_around_a_status_write_writes_it_once(
    tmp_path: Path, own_control_plane: ControlPlane, is_handled: bool
) -> None:
    """The kill comes after the server has committed the write, or before the write reaches it."""
    cluster = own_control_plane
    async with faulting(cluster) as proxy, connect(str(cluster.kubeconfig())) as api, cluster.session() as session:
        await install(api, definition(DPU_RACK))
        fault = AnswerFault(delay_s=60.0) if is_handled else AnswerFault(request_delay_s=60.0)
        proxy.inject(fault, "PATCH", within="/rack-1/status")
        body = {"metadata": {"name": "n1", "labels": {"topology.kubernetes.io/rack": "rack-1"}}}
        async with session.post(f"{cluster.url}/api/v1/nodes", json=body) as response:
            assert response.status == 201
        flags = ("--kubeconfig", str(cluster.kubeconfig(server=proxy.url)), "--source", "east", "--kubernetes-status")
        serve = ("--data", str(tmp_path / "plane"), *flags)
        async with serving(*serve) as process:
            await until(lambda: proxy.injected["slow answer"] + proxy.injected["slow request"])
            await until(lambda: writes(proxy.committed, "rack-1")["PATCH"] == is_handled)
            await asyncio.sleep(1.0)  # a write that must not reach the server would have reached it
            process.kill()
            await process.ended()
        assert writes(proxy.committed, "rack-1")["PATCH"] == is_handled
        async with serving(*serve):
            async with asyncio.timeout(150):
                while not (found := (await get(api, DPU_RACK.path(name="rack-1"))).get("status")):
                    await asyncio.sleep(0.1)
            assert found["members"] == ["east/n1"]
            await asyncio.sleep(EVERY_S + 2.0)
            assert writes(proxy.committed, "rack-1")["PATCH"] == 1, [each.object for each in proxy.committed]


async def test_a_definition_that_is_deleted_and_made_again_stops_nothing(
    tmp_path: Path, own_control_plane: ControlPlane
) -> None:
    async with statuses(tmp_path, own_control_plane) as found:
        await found.join("z1", "n1")
        await found.until_shown({"z1": 1})
        path = f"{DEFINITIONS}/{definition(DPU_RACK)['metadata']['name']}"
        await found.api.delete(path, uid=(await get(found.api, path))["metadata"]["uid"])
        (kubernetes,) = found.plane.parts.kubernetes
        watch = kubernetes.watches[DPU_RACK.plural]
        await until(lambda: not watch.is_current and watch.counts.failures > 1)
        await found.join("z2", "n2")
        await until(lambda: len(found.plane.states.fleet.members.rows) == 2)
        assert await is_ready(found.plane)
        before = len(found.proxy.requests)
        await asyncio.sleep(5.0)
        assert sum(seen.method in WRITES for seen in found.proxy.requests[before:]) <= 2 * ATTEMPTS
        await install(found.api, definition(DPU_RACK))
        await found.until_shown({"z1": 1, "z2": 1})
        await until(lambda: watch.is_current)


@pytest.mark.slow
async def test_an_object_that_a_finalizer_keeps_is_written_without_a_loop(
    tmp_path: Path, own_control_plane: ControlPlane
) -> None:
    async with statuses(tmp_path, own_control_plane) as found:
        await found.join("z1", "n1")
        await found.until_shown({"z1": 1})
        path = DPU_RACK.path(name="z1")
        await found.api.patch(path, {"metadata": {"finalizers": ["example.org/never"]}}, "merge")
        await found.api.delete(path, uid=(await get(found.api, path))["metadata"]["uid"])
        await asyncio.sleep(EVERY_S + 2.0)
        before = len(found.proxy.committed)
        await found.join("z1", "n2")
        await found.until_shown({"z1": 2})
        await asyncio.sleep(EVERY_S + 2.0)
        assert writes(found.proxy.committed[before:], "z1") == {"PATCH": 1}
        await found.api.patch(path, {"metadata": {"finalizers": []}}, "merge")
        await found.until_shown({"z1": 2})
        assert "deletionTimestamp" not in (await get(found.api, path))["metadata"], "the object was created again"


@pytest.mark.started_cluster
async def test_a_namespace_that_is_terminating_gets_few_attempts(cluster: Cluster) -> None:
    """No controller runs, so the namespace is never deleted to its end, and no object can be created in it."""
    async with (
        faulting(cluster.plane) as proxy,
        connect(str(cluster.plane.kubeconfig(server=proxy.url))) as proxied,
        cliques_of(cluster.api, cluster.namespace) as east,
    ):
        domain = await east.create_domain()
        east.api = proxied
        east.start_edge()
        await until(lambda: proxy.watches() == 3)
        path = f"/api/v1/namespaces/{cluster.namespace}"
        await cluster.api.delete(path, uid=(await get(cluster.api, path))["metadata"]["uid"])
        said = envelope("s", "agent", uuid7(east.plane.now_ms(), east.rng))
        await east.submit(domain, IndicesClaimed(said, domain, "c.1", ["n0"], [address(0)], [], [], []))
        await until(lambda: any(seen.status == 403 for seen in proxy.requests))
        await asyncio.sleep(10.0)
        sent = [seen for seen in proxy.requests if seen.method in WRITES and COMPUTE_DOMAIN_CLIQUE.plural in seen.path]
        assert 1 <= len(sent) <= 10, "a refused creation is not repeated in a loop"
        assert east.folded(domain, "c.1") == {"n0": 0}


async def test_rights_that_are_taken_away_delay_statuses_and_lose_none(tmp_path: Path, people: People) -> None:
    async with faulting(people.cluster) as proxy:
        kubeconfig = str(people.cluster.kubeconfig(PLANE, server=proxy.url))
        async with edge(tmp_path / "plane", people, kubeconfig=kubeconfig) as plane:
            await people.apply("ann", RULE_POLICY, "p", {"action": "drop", "sources": {"tier": "a"}})
            await people.accepted(RULE_POLICY, "p", "True", "Accepted")
            path = f"{RBAC}clusterrolebindings/{PLANE}"
            binding = await get(people.api, path)
            await people.api.delete(path, uid=binding["metadata"]["uid"])
            watched = {"apiGroups": [RULE_POLICY.group], "resources": [RULE_POLICY.plural], "verbs": ["watch"]}
            await until_denied(people.api, [watched], PLANE)
            proxy.cut_watches()
            await until(lambda: any(seen.status == 403 for seen in proxy.requests))
            await people.apply("ann", RULE_POLICY, "q", {"action": "drop", "sources": {"tier": "b"}})
            await asyncio.sleep(5.0)
            assert policies(plane) == {"p": "drop"}, "an object that cannot be read changes nothing"
            assert await is_ready(plane)
            about = {"metadata": {"name": PLANE}, "roleRef": binding["roleRef"], "subjects": binding["subjects"]}
            await people.api.create(f"{RBAC}clusterrolebindings", about)
            await people.accepted(RULE_POLICY, "q", "True", "Accepted")
            assert policies(plane) == {"p": "drop", "q": "drop"}


@pytest.mark.slow
async def test_a_spec_that_changes_ten_times_a_second_is_written_seldom_and_honestly(
    tmp_path: Path, people: People
) -> None:
    changes = 60
    async with faulting(people.cluster) as proxy, people.cluster.session("ann") as session:
        kubeconfig = str(people.cluster.kubeconfig(PLANE, server=proxy.url))
        async with edge(tmp_path / "plane", people, kubeconfig=kubeconfig) as plane:
            await people.apply("ann", RULE_POLICY, "p", {"action": "drop", "priority": 1, "sources": {"tier": "a"}})
            await people.accepted(RULE_POLICY, "p", "True", "Accepted")
            url = f"{people.cluster.url}{RULE_POLICY.path(name='p')}"
            for priority in range(2, changes + 1):
                body = json.dumps({"spec": {"priority": priority}})
                headers = {"Content-Type": "application/merge-patch+json"}
                async with session.patch(url, data=body, headers=headers) as response:
                    assert response.status == 200, await response.text()
                await asyncio.sleep(0.1)
            await people.until(RULE_POLICY, "p", lambda status: status.get("observedGeneration") == changes)
            assert plane.states.fleet.policies.rows["p"].priority == changes
        written: list[Any] = [each.object for each in proxy.committed if each.path.endswith("/p/status")]
        observed = [each["status"].get("observedGeneration", 0) for each in written]
        assert observed == sorted(observed) and observed[-1] == changes
        assert all(each["status"]["observedGeneration"] <= each["metadata"]["generation"] for each in written)
        assert len(written) <= changes / 2
