"""The agent of a host reboots it once for each step, whenever the agent or its host dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deploy.composition.host_connections import HostConnections
from drivers.backends.bmc import NeedsOperator, TaskFailed
from drivers.hosts.host import DONE, RebootRequest
from drivers.kubernetes.hosts.host import KubernetesHost
from projections.resources.kinds import DPU_NODE
from projections.resources.state import ObjectId
from projections.resources.step_facts import HostRef
from projections.zones.dpus.phases import REBOOTING
from schemas.api import dpuplane_pb2 as pb
from tests.support.host_agents import HOST, NAMESPACE, AgentPlane, agent_plane, eventually
from tests.support.host_trees import host_tree

UNUSED_API: Any = object()
"""An API server that no call may reach."""


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[AgentPlane]:
    tree = host_tree(tmp_path / "host")
    tree.card("0000:03:00", "MT1")
    async with agent_plane(tmp_path, tree) as found:
        yield found


async def until_rebooted(made: AgentPlane, request: RebootRequest) -> None:
    async def is_done() -> bool:
        return await made.host.reboot(request) == DONE

    await eventually(is_done)


async def test_one_reboot_serves_all_dpus_that_need_it(made: AgentPlane) -> None:
    for name in ("d1", "d2"):
        await made.step_until(name, REBOOTING)
    async with made.agent():
        await made.until_reported()
        first, second = made.reboot_request("d1", "d2"), made.reboot_request("d2", "d1")
        assert not (await made.host.reboot(first)).is_done
        assert not (await made.host.reboot(second)).is_done
        made.go.touch()
        await until_rebooted(made, first)
        await until_rebooted(made, second)
        assert (made.boot_id, made.commands) == ("boot-2", [f"boot-1 {HOST} PowerCycle"])


async def test_a_dpu_that_needs_a_reboot_after_one_has_begun_gets_another_one(made: AgentPlane) -> None:
    for name in ("d1", "d2"):
        await made.step_until(name, REBOOTING)
    async with made.agent():
        await made.until_reported()
        first, second = made.reboot_request("d1"), made.reboot_request("d2", method="SystemReboot")
        await made.host.reboot(first)
        await eventually(lambda: has_begun(made, 1))
        waiting = await made.host.reboot(second)
        assert waiting.message == f"waits for the end of an earlier reboot of host {HOST}"
        made.go.touch()
        await until_rebooted(made, second)
        await until_rebooted(made, first)
        assert made.boot_id == "boot-3"
        assert made.commands == [f"boot-1 {HOST} PowerCycle", f"boot-2 {HOST} SystemReboot"]


async def has_begun(made: AgentPlane, count: int) -> bool:
    return len(made.commands) >= count


@pytest.mark.parametrize("moment", ["before the task", "during the command", "after the reboot", "twice"])
async def test_an_agent_that_is_killed_at_any_moment_reboots_the_host_once(made: AgentPlane, moment: str) -> None:
    await made.step_until("d1", REBOOTING)
    async with made.agent() as agent:
        await made.until_reported()
        request = made.reboot_request("d1")
        if moment == "before the task":
            agent.kill()
            await agent.ended()
            await made.host.reboot(request)
        else:
            await made.host.reboot(request)
            await eventually(lambda: has_begun(made, 1))
            agent.kill()
            await agent.ended()
    if moment == "twice":
        async with made.agent() as agent:
            await eventually(lambda: has_begun(made, 2))
    if moment == "after the reboot":
        made.tree.boot("boot-2")
    made.go.touch()
    async with made.agent():
        await until_rebooted(made, request)
        for _ in range(20):  # the agent asks for tasks meanwhile, and has none
            assert await made.host.reboot(request) == DONE
            await asyncio.sleep(0.05)
    assert made.boot_id == "boot-2", "the host went down once"
    assert {line.split()[0] for line in made.commands} <= {"boot-1"}, "no command ran in the boot after it"


async def test_an_aborted_step_reboots_nothing(made: AgentPlane) -> None:
    await made.step_until("d1", REBOOTING)
    async with made.agent() as agent:
        await made.until_reported()
        agent.kill()
    await made.host.reboot(made.reboot_request("d1"))
    asked = pb.GetHostTasksRequest(node=HOST, namespace=NAMESPACE)
    assert [task.action for task in (await made.plane.queries.GetHostTasks(asked)).tasks] == ["reboot"]
    await made.request("d1", "abort")
    assert not (await made.plane.queries.GetHostTasks(asked)).tasks


async def test_a_frozen_zone_delays_the_reboot(made: AgentPlane) -> None:
    await made.step_until("d1", REBOOTING)
    made.go.touch()
    async with made.agent():
        await made.until_reported()
        frozen = await made.plane.calls.FreezeWrites(pb.FreezeWritesRequest(zone="z1"))
        request = made.reboot_request("d1")
        await made.host.reboot(request)
        asked = pb.GetHostTasksRequest(node=HOST, namespace=NAMESPACE, min_position=frozen.position)
        assert [task.frozen for task in (await made.plane.queries.GetHostTasks(asked)).tasks] == [True]
        await asyncio.sleep(1.0)
        assert made.commands == []
        await made.plane.calls.ThawWrites(pb.ThawWritesRequest(zone="z1"))
        await until_rebooted(made, request)


async def test_a_command_that_fails_fails_the_step_with_its_output_and_the_next_attempt_runs_it_again(
    made: AgentPlane,
) -> None:
    await made.step_until("d1", REBOOTING)
    broken = "PowerCycle=sh -c 'echo no BMC answers; exit 7'"
    async with made.agent("--reboot-command", broken):
        await made.until_reported()
        request = made.reboot_request("d1")
        for _ in range(2):
            with pytest.raises(TaskFailed, match=f"^host {HOST}: command: sh ended with status 7: no BMC answers$"):
                await until_rebooted(made, request)
    made.go.touch()
    async with made.agent():
        await until_rebooted(made, request)
    assert made.boot_id == "boot-2"


async def test_a_reboot_is_taken_back_for_one_dpu_and_stays_for_another(made: AgentPlane) -> None:
    for name in ("d1", "d2"):
        await made.step_until(name, REBOOTING)
    async with made.agent() as agent:
        await made.until_reported()
        agent.kill()
    first, second = made.reboot_request("d1", "d2"), made.reboot_request("d2")
    await made.host.reboot(first)
    asked = pb.GetHostTasksRequest(node=HOST, namespace=NAMESPACE)
    await made.host.forget_reboot(first)
    assert len((await made.plane.queries.GetHostTasks(asked)).tasks) == 1
    await made.host.forget_reboot(second)
    assert not (await made.plane.queries.GetHostTasks(asked)).tasks


async def test_a_node_of_a_cluster_is_rebooted_by_its_agent(made: AgentPlane) -> None:
    """The agent's tasks are in the plane's log, also for a host whose objects are in a cluster."""
    await made.step_until("d1", REBOOTING)
    connections = HostConnections(lambda source: UNUSED_API, box=lambda namespace, host: made.box)
    ref = HostRef(ObjectId("east", DPU_NODE, NAMESPACE, HOST), NAMESPACE, is_external=True)
    host = connections.host(ref, "redfish://bmc:443")
    assert isinstance(host, KubernetesHost)
    made.go.touch()
    async with made.agent():
        await made.until_reported()
        request = made.reboot_request("d1")._replace(host=ref)

        async def is_done() -> bool:
            return await host.reboot(request) == DONE

        await eventually(is_done)
    assert made.boot_id == "boot-2"


async def test_a_host_without_an_agent_needs_an_operator(made: AgentPlane) -> None:
    await made.step_until("d1", REBOOTING)
    with pytest.raises(NeedsOperator, match="from which no `dpuplane host-agent` has reported; run one, or use"):
        await made.host.reboot(made.reboot_request("d1"))
    assert await made.host.configure_network(made.network_request("d1")) == DONE
