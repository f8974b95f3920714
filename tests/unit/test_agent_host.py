"""Steps of several DPUs of one host edit its tasks at the same moment."""

from __future__ import annotations

import asyncio

import pytest

from drivers.backends.bmc import TaskFailed, Unreachable
from drivers.hosts.agent_host import EDITS_MAX, AgentHost
from drivers.hosts.host import DeviceRequest, Progress, RebootRequest
from drivers.hosts.task_box import BoxContent
from projections.resources.host_tasks import INSTALL, REBOOT, HostTask, HostTasks, TaskState, host_object
from projections.resources.step_facts import HOST_AGENT, HostReboot, HostRef
from tests.support.rshim_steps import MemoryTasks

DPUS = ("d1@3", "d2@3", "d3@3")


class SlowTasks(MemoryTasks):
    """Tasks whose content another step may edit between the read and the edit of a step."""

    async def read(self) -> BoxContent | None:
        content = await super().read()
        await asyncio.sleep(0)
        return content


class ContestedTasks(MemoryTasks):
    """Tasks that another step edits before each edit."""

    async def write(self, read: BoxContent, tasks: HostTasks) -> None:
        self._note()
        await super().write(read, tasks)


def install(own: str) -> DeviceRequest:
    return DeviceRequest(INSTALL, own, "z", f"0000:0{own[1]}:00.0", "https://images/installations/d")


def reboot(own: str) -> RebootRequest:
    ref = HostRef(host_object("dpf", "host-1"), "dpf", is_external=False)
    return RebootRequest(ref, HostReboot(HOST_AGENT, ""), own, frozenset({own}), "SystemLevelReset", {}, "z")


async def given(box: MemoryTasks, host: AgentHost) -> list[str]:
    """The ids of the installations of all DPUs, which the agent has not begun."""
    for own in DPUS:
        assert not (await host.do_on_device(install(own))).is_done
    return [each.id for each in box.tasks.tasks]


async def test_installations_that_fail_in_one_moment_are_all_told_once() -> None:
    box = SlowTasks()
    host = AgentHost(box, "host-1")
    for task in await given(box, host):
        box.state(TaskState(task, "failed", 0, "the DPU reports: ERR"))
    told = await asyncio.gather(*(host.do_on_device(install(own)) for own in DPUS), return_exceptions=True)
    assert [type(each) for each in told] == [TaskFailed] * 3
    assert box.tasks == HostTasks()
    again = await asyncio.gather(*(host.do_on_device(install(own)) for own in DPUS))
    assert all(isinstance(each, Progress) and not each.is_done for each in again), "the next attempts begin anew"


async def test_a_reboot_that_failed_for_several_dpus_is_told_to_each_that_follows_it() -> None:
    box = SlowTasks()
    host = AgentHost(box, "host-1")
    box.tasks = HostTasks((HostTask("reboot-1", REBOOT, "z", boot_id="boot-1", ids=DPUS),))
    box.state(TaskState("reboot-1", "failed", 0, "no command"))
    told = await asyncio.gather(*(host.reboot(reboot(own)) for own in DPUS), return_exceptions=True)
    assert [type(each) for each in told] == [TaskFailed] * 3
    assert box.tasks == HostTasks()


async def test_dpus_that_withdraw_a_reboot_in_one_moment_are_all_taken_from_it() -> None:
    box = SlowTasks()
    host = AgentHost(box, "host-1")
    box.tasks = HostTasks((HostTask("reboot-1", REBOOT, "z", boot_id="boot-1", ids=DPUS),))
    await asyncio.gather(*(host.forget_reboot(reboot(own)) for own in DPUS[:2]))
    assert [each.ids for each in box.tasks.tasks] == [DPUS[2:]]
    await host.forget_reboot(reboot(DPUS[2]))
    assert box.tasks == HostTasks()


async def test_an_edit_that_never_holds_is_given_up() -> None:
    box = ContestedTasks()
    host = AgentHost(box, "host-1")
    box.tasks = HostTasks((HostTask("install-1", INSTALL, "z", ids=DPUS[:1]),))
    box.state(TaskState("install-1", "failed", 0, "no"))
    with pytest.raises(Unreachable, match=f"host host-1: its tasks were edited {EDITS_MAX} times by other steps"):
        await host.do_on_device(install(DPUS[0]))
