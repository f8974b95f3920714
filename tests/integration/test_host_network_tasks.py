"""The network of a host as a task of its agent: given once for each step, and followed to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drivers.backends.bmc import TaskFailed
from drivers.hosts.host import DONE
from projections.zones.dpus.phases import HOST_NETWORK, READY
from schemas.api import dpuplane_pb2 as pb
from tests.support.host_agents import HOST, NAMESPACE, AgentPlane, agent_plane
from tests.support.host_trees import host_tree


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[AgentPlane]:
    async with agent_plane(tmp_path, host_tree(tmp_path / "host")) as found:
        await found.step_until("d1", HOST_NETWORK, serial="MT1")
        yield found


async def report(made: AgentPlane, *states: pb.HostTaskState, serial: str = "MT1", boot_id: str = "boot-1") -> None:
    """Report as the agent does."""
    device = pb.HostDevice(pci_address="0000:03:00.0", serial=serial)
    request = pb.ReportHostRequest(
        node=HOST, namespace=NAMESPACE, boot_id=boot_id, run_id="run-1", devices=[device], tasks=states
    )
    await made.plane.calls.ReportHost(request)


async def tasks(made: AgentPlane) -> list[pb.HostTask]:
    asked = pb.GetHostTasksRequest(node=HOST, namespace=NAMESPACE)
    return [*(await made.plane.queries.GetHostTasks(asked)).tasks]


async def test_the_agent_gets_the_task_once_and_its_end_ends_the_step(made: AgentPlane) -> None:
    await report(made)
    request = made.network_request("d1", mtu=9_000)
    for _ in range(2):
        waiting = await made.host.configure_network(request)
        assert not waiting.is_done
    (task,) = await tasks(made)
    assert (task.action, task.pci_address, task.mtu) == ("host-network", "0000:03:00.0", 9_000)
    await report(made, pb.HostTaskState(id=task.id, state="running"))
    moving = await made.host.configure_network(request)
    assert moving.message == f"waits for the agent of host {HOST} to end task host-network"
    await report(made, pb.HostTaskState(id=task.id, state="done"))
    assert await made.host.configure_network(request) == DONE
    assert await tasks(made) == []


async def test_a_failure_has_the_reason_of_the_agent_and_the_next_attempt_gives_another_task(made: AgentPlane) -> None:
    await report(made)
    request = made.network_request("d1")
    await made.host.configure_network(request)
    (first,) = await tasks(made)
    await report(made, pb.HostTaskState(id=first.id, state="failed", message="network: no\nVFs"))
    with pytest.raises(TaskFailed, match=f"^host {HOST}: network: no VFs$"):
        await made.host.configure_network(request)
    await made.host.configure_network(request)
    (second,) = await tasks(made)
    assert second.id != first.id


async def test_a_dpu_that_the_host_does_not_have_is_waited_for_by_its_serial_number(made: AgentPlane) -> None:
    await report(made, serial="MT2")
    waiting = await made.host.configure_network(made.network_request("d1"))
    assert waiting.message == f"waits for the DPU with serial 'MT1' on the PCI bus of {HOST}"
    assert await tasks(made) == []


async def test_after_a_reboot_the_agent_gets_the_task_of_each_dpu_again(made: AgentPlane) -> None:
    await report(made)
    request = made.network_request("d1")
    await made.host.configure_network(request)
    (task,) = await tasks(made)
    await report(made, pb.HostTaskState(id=task.id, state="done"))
    await made.end_until("d1", READY)
    await report(made, boot_id="boot-2")
    assert [each.id for each in await tasks(made)] == [task.id]
    await report(made, pb.HostTaskState(id=task.id, state="running"), boot_id="boot-2")
    assert [each.id for each in await tasks(made)] == [task.id], "an agent that begins it may go on"
    await report(made, pb.HostTaskState(id=task.id, state="done"), boot_id="boot-2")
    assert await tasks(made) == []


async def test_a_task_of_a_skipped_step_is_not_given_after_a_reboot(made: AgentPlane) -> None:
    await report(made)
    await made.host.configure_network(made.network_request("d1"))
    assert len(await tasks(made)) == 1
    await made.end_until("d1", READY)
    await report(made, boot_id="boot-2")
    assert await tasks(made) == []
