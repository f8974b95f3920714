"""Events about objects at a real API server, as kubectl shows them, written with the rights of the Helm chart."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.process.plane import Plane
from drivers.kubernetes.client import connect
from eventstore.log import ZONES
from projections.kubernetes.event_queue import BURST
from schemas.events import NodesJoined
from schemas.resources.hold import HOLD
from schemas.resources.rule_policy import RULE_POLICY
from tests.integration.test_kubernetes_nodes import Nodes, node
from tests.integration.test_kubernetes_objects import PLANE, command, edge, edge_rules, many_nodes, open_hold, until
from tests.support.kubernetes.cluster import ControlPlane
from tests.support.kubernetes.people import PATIENCE_S, People
from tests.support.kubernetes.requests import get
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
        while text not in (shown := await people.cluster.kubectl(*arguments)):
            await asyncio.sleep(0.2)
    return shown


async def take_name(plane: Plane, name: str) -> None:
    """Join a node under this name, with an incarnation that is newer than the cluster's own Node will be."""
    event = NodesJoined(command("?ann", "z1"), "z1", [name], [now_ms() + 50_000], ["newer"], b"", b"", [], [])
    partition = plane.replica.partition_for(ZONES, "z1")
    assert (await plane.replica.submit(partition, b"z1", event, timeout_s=10.0)).outcome.code == "done"


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
