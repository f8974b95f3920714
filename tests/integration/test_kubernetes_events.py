"""Events about objects at a real API server, as kubectl shows them, written with the rights of the Helm chart."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from deploy.process.plane import Plane
from drivers.kubernetes.client import connect
from eventstore.log import ZONES
from projections.kubernetes.event_queue import BURST
from schemas.events import NodesJoined
from schemas.resources.dpu_rack import DPU_RACK
from schemas.resources.hold import HOLD
from schemas.resources.rule_policy import RULE_POLICY
from tests.integration.test_kubernetes_nodes import Nodes, node, zones_of
from tests.integration.test_kubernetes_objects import PLANE, command, edge, edge_rules, many_nodes, open_hold, until
from tests.support.kubernetes.api_server import ADMIN, CommandFailed
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.people import PATIENCE_S, People
from tests.support.kubernetes.requests import advance, get
from tests.support.served import now_ms

EVENTS = "/api/v1/namespaces/default/events"
LOGINS = ("ann", "bob@example.org", "cid@example.org")
REFUSALS = 1_000


@pytest.fixture
async def people(own_control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[People]:
    await People.add(own_control_plane, (*LOGINS, PLANE))
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(connect(str(own_control_plane.kubeconfig())))
        found = People(own_control_plane, api, LOGINS)
        await found.grant(PLANE, edge_rules(tmp_path), PLANE)
        await found.prepare()
        yield found


async def events(people: People, kind: str) -> list[dict[str, Any]]:
    """The Events about objects of a kind."""
    found = await get(people.api, EVENTS, {"fieldSelector": f"involvedObject.kind={kind}"})
    items: list[dict[str, Any]] = found["items"]
    return items


async def until_shown(people: People, *arguments: str, text: str) -> str:
    """The output of kubectl once it contains a text."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(CommandFailed):  # a restarted API server does not serve every kind at once
                if text in (shown := await people.cluster.kubectl(*arguments)):
                    return shown
            await asyncio.sleep(0.2)


async def take_name(plane: Plane, name: str) -> None:
    """Join a node under this name, with an incarnation that is newer than the cluster's own Node will be."""
    event = NodesJoined(command("?ann", "z1"), "z1", [name], [now_ms() + 50_000], ["newer"], b"", b"", [], [])
    partition = plane.replica.partition_for(ZONES, "z1")
    assert (await plane.replica.submit(partition, b"z1", event, timeout_s=30.0)).outcome.code == "done"


async def test_a_node_that_is_refused_1_000_times_has_one_event_with_a_count(tmp_path: Path, people: People) -> None:
    async with people.cluster.session() as session, edge(tmp_path / "plane", people, node_labels="tier") as plane:
        await take_name(plane, "east/n1")
        (kubernetes,) = plane.parts.kubernetes
        counts = kubernetes.events.counts
        await Nodes(people.cluster, session).create(node("n1", "z1", "10.0.0.1"))
        await until_shown(people, "describe", "node", "n1", text="NodeRefused")

        def writes() -> int:
            assert kubernetes.event_writer is not None
            return kubernetes.event_writer.counts.created + kubernetes.event_writer.counts.updated

        for number in range(1, REFUSALS):
            seen = writes() + counts.merged + counts.limited
            body = {"metadata": {"labels": {"tier": f"t{number}"}}}
            await people.api.patch("/api/v1/nodes/n1", body, "merge")
            await until(lambda seen=seen: writes() + counts.merged + counts.limited > seen)
        assert (writes(), counts.dropped) == (BURST, 0)
        shown = await people.cluster.kubectl("describe", "node", "n1")
        (line,) = [line for line in shown.splitlines() if "NodeRefused" in line]
        assert re.search(
            rf"Warning +NodeRefused +\S+ \(x{BURST} over \S+\) +dpuplane +the plane refused this Node", line
        )
        (found,) = await events(people, "Node")
    async with edge(tmp_path / "plane", people, node_labels="tier") as plane:
        (kubernetes,) = plane.parts.kubernetes
        await until(lambda: kubernetes.event_writer is not None and kubernetes.event_writer.counts.found == 1)
        assert await events(people, "Node") == [found], "a restart repeats nothing"


async def test_a_hold_shows_that_it_waits_and_how_it_ended(tmp_path: Path, people: People) -> None:
    async with edge(tmp_path / "plane", people) as plane:
        await many_nodes(plane)
        await people.apply("bob@example.org", RULE_POLICY, "p", {"action": "drop", "priority": 1})
        name = f"hold-{await open_hold(plane)}"
        await people.until(HOLD, name, bool)
        await until_shown(people, "describe", "hold", name, text="a change of policy exceeds the budget")
        for user in ("ann", "cid@example.org"):
            await people.judge(user, int(name.removeprefix("hold-")))
        async with asyncio.timeout(PATIENCE_S):
            while len(await events(people, HOLD.name)) < 2:
                await asyncio.sleep(0.2)
        found = {(each["reason"], each["type"], each["count"]) for each in await events(people, HOLD.name)}
        assert found == {("WaitsForApproval", "Warning", 1), ("Approved", "Normal", 1)}
        shown = (await people.cluster.kubectl("describe", "hold", name)).rpartition("Events:")[2]
        assert re.search(r"Normal +Approved .* two people approved the change, and it was applied", shown)


async def test_a_rack_shows_that_a_list_shrank_and_that_the_api_server_was_restored(
    tmp_path: Path, people: People
) -> None:
    cluster = people.cluster
    async with cluster.session() as session:
        nodes = Nodes(cluster, session)
        await nodes.create(*(node(f"n{number}", "z1", f"10.0.1.{number + 1}") for number in range(240)))
        await nodes.create(node("other", "z2", "10.0.2.1"))
        async with edge(tmp_path / "plane", people) as plane:
            await until(lambda: len(zones_of(plane)) == 241)
            await people.until(DPU_RACK, "z1", lambda status: status.get("nodes") == 240)
        await nodes.delete(*(f"n{number}" for number in range(200)))
        async with edge(tmp_path / "plane", people) as plane:
            shown = await until_shown(people, "describe", "rack", "z1", text="WaitsForApproval")
            assert "hold-1: a change of members exceeds the budget denied-by-change" in shown
            saved = cluster.save_etcd()
            await cluster.start()
            await advance(people.api, "/api/v1/nodes/other")
            await nodes.create(node("later", "z2", "10.0.2.2"))
            await until(lambda: "east/later" in zones_of(plane))
            for name in ("kube-apiserver", "etcd"):
                cluster.kill(name)
            cluster.restore_etcd(saved)
            await cluster.start()
            shown = await until_shown(people, "describe", "rack", "z2", text="RestoredFromBackup")
            assert "1 node of source east stay, but the API server lists them no more" in shown
            assert "WaitsForApproval" not in shown, "no node of this zone is held"
            assert "east/later" in zones_of(plane)


async def test_a_spec_that_does_not_count_has_an_event_unless_events_are_off(tmp_path: Path, people: People) -> None:
    async with edge(tmp_path / "plane", people) as plane:
        await people.apply(ADMIN, RULE_POLICY, "p", {"action": "drop", "priority": 1})
        shown = await until_shown(people, "describe", "rulepolicy", "p", text="Warning  AuthorUnknown")
        assert "'admin' must match a pattern" in shown
        (found,) = await events(people, RULE_POLICY.name)
    async with edge(tmp_path / "plane", people, kubernetes_events=False) as plane:
        await people.apply(ADMIN, RULE_POLICY, "q", {"action": "drop", "priority": 2})
        await people.accepted(RULE_POLICY, "q", "False", "AuthorUnknown")
        await asyncio.sleep(3)
        assert await events(people, RULE_POLICY.name) == [found]
        assert plane.parts.kubernetes[0].event_writer is None
