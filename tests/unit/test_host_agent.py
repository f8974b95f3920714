"""The reports of the agent of a host about its tasks: what the plane knows when an agent is killed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from deploy.host_agent.actions import Progress
from deploy.host_agent.agent import HostAgent, HostIdentity
from deploy.host_agent.boot import Boot
from eventstore.errors import PermanentError
from projections.resources.host_tasks import FoundDevice
from schemas.api import dpuplane_pb2 as pb

pytestmark = pytest.mark.virtual_clock

INSTALL = "install"


class ReportedPlane:
    """A plane with one task, which records reports of states. `refuses` says which state it does not accept."""

    def __init__(self, task: pb.HostTask) -> None:
        self.task = task
        self.states: list[tuple[str, int, str]] = []
        self.refuses: Callable[[pb.HostTaskState], bool] = lambda state: False
        self.concurrent = self.concurrent_max = 0

    async def command(self, method: str, request: pb.ReportHostRequest) -> pb.CommandResult:
        self.concurrent += 1
        self.concurrent_max = max(self.concurrent_max, self.concurrent)
        await asyncio.sleep(0.1)
        self.concurrent -= 1
        for state in request.tasks:
            if self.refuses(state):
                raise PermanentError("the plane is away")
            self.states.append((state.state, state.percent, state.message))
        return pb.CommandResult(outcome=pb.OUTCOME_DONE, position="resources/0@1")

    async def query(self, method: str, request: pb.GetHostTasksRequest) -> pb.HostTasks:
        is_ended = bool(self.states) and self.states[-1][0] != "running"
        return pb.HostTasks(tasks=[] if is_ended else [self.task])


class TwoReports:
    """An action that must be known before its second half."""

    def __init__(self) -> None:
        self.halves: list[int] = []

    async def run(self, task: pb.HostTask, progress: Progress) -> None:
        self.halves.append(1)
        await progress(10, "may be lost")
        await progress(45, "must be known", is_required=True)
        self.halves.append(2)
        await asyncio.sleep(30)


async def run_agent(
    made: ReportedPlane, action: TwoReports, seconds: float, devices: Callable[[], Sequence[FoundDevice]] = tuple
) -> None:
    client: Any = made
    agent = HostAgent(
        client,
        HostIdentity("host", "dpf", "run-1"),
        boot=lambda: Boot("boot-1", 1_000),
        devices=devices,
        actions={INSTALL: action},
        interval_s=5.0,
        rng=Random(1),
    )
    try:
        async with asyncio.timeout(seconds):
            await agent.run()
    except TimeoutError:
        pass


async def test_an_agent_that_begins_a_task_again_reports_it_as_far_as_it_was() -> None:
    made = ReportedPlane(pb.HostTask(id="t", action=INSTALL, percent=75, message="the DPU installs the image"))
    await run_agent(made, TwoReports(), 3.0)
    assert made.states[0] == ("running", 75, "the DPU installs the image")


async def test_an_action_does_not_go_on_without_a_required_report() -> None:
    made = ReportedPlane(pb.HostTask(id="t", action=INSTALL))
    made.refuses = lambda state: state.percent >= 10
    action = TwoReports()
    await run_agent(made, action, 60.0)
    assert 2 not in action.halves
    assert len(action.halves) > 1, "the task is begun again"
    made.refuses = lambda state: state.percent == 10
    action = TwoReports()
    await run_agent(made, action, 60.0)
    assert action.halves[:2] == [1, 2], "other progress may be lost"


async def test_reports_of_a_host_are_made_one_after_another() -> None:
    made = ReportedPlane(pb.HostTask(id="t", action=INSTALL))
    await run_agent(made, TwoReports(), 60.0)
    assert made.concurrent_max == 1
    assert made.states[-1][0] == "done"


async def test_the_dpus_of_a_host_are_logged_when_they_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    dpu = FoundDevice(pci_address="0000:03:00", device_id="a2dc", serial="MT1")
    answers = [(), (), (dpu,), (dpu,), (dpu,)]

    def devices() -> Sequence[FoundDevice]:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    made = ReportedPlane(pb.HostTask(id="t", action="none"))
    await run_agent(made, TwoReports(), 120.0, devices)
    told = [each.getMessage() for each in caplog.records if each.getMessage().startswith("host reported")]
    without = "host reported without a DPU: its PCI bus has no device with an id of --device-id"
    assert told == [without, "host reported with its DPUs"]
