"""The installer on a BMC with tasks that others wrote, the mock of ironcore's metal-operator: no update is sent twice.

The system of the mock is no BlueField: its inventory has none of a BlueField's entries, so an update changes no version
that the installer reads, and the system does not boot after it. The test sets the time of its last boot instead.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
import pytest

from drivers.backends.bmc import TaskFailed, Unreachable
from drivers.redfish import update_moves
from drivers.redfish.resources import ROOT, Request
from drivers.redfish.sessions import Credentials
from projections.zones.dpus.certificates import CERTIFICATE_FACT
from projections.zones.dpus.phases import INITIALIZE_INTERFACE, OS_INSTALLING
from tests.support.bmc_mock.front import UPDATE_TASK, Front
from tests.support.bmc_mock.server import SERIAL, served_mock
from tests.support.eventually import EVENTUALLY_S, until
from tests.support.foreign_steps import ForeignSteps

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BOOTED = "2026-11-27T10:00:00+00:00"
SETTLE_S = 1.0


class MockSteps(ForeignSteps):
    """The steps of one DPU on the mock, before the installation of an image."""

    def __init__(self, address: str, session: aiohttp.ClientSession, front: Front) -> None:
        super().__init__(address, session, Credentials("admin", "adminpass"))
        self.front = front
        self.url = "http://images/a.bfb"

    async def installed(self) -> Mapping[str, str]:
        """Run the next attempt, and let the system boot once the log has the end of its task."""
        async with asyncio.timeout(EVENTUALLY_S), asyncio.TaskGroup() as tasks:
            attempt = tasks.create_task(self.run())
            await until(lambda: attempt.done() or any(percent == 100 for _, percent in self.progress))
            assert not attempt.done(), "the DPU has not booted"
            boot = Request("PATCH", f"{ROOT}/Systems/{SERIAL}", {"LastResetTime": BOOTED})
            await self.client.send(boot)
        return attempt.result()

    async def ended(self) -> None:
        """Run the next attempt to its end, which is an error."""
        async with asyncio.timeout(EVENTUALLY_S):
            await self.run()

    @property
    def tasks(self) -> set[str]:
        """The tasks that the log names, each with the attempt that has asked for it."""
        return {task for task, _ in self.progress if re.fullmatch(r"\S+ of attempt \d+", task)}


@pytest.fixture
async def steps(bmc_mock: Path, tmp_path: Path) -> AsyncIterator[MockSteps]:
    async with served_mock(bmc_mock, tmp_path) as mock, aiohttp.ClientSession() as session:
        found = MockSteps(mock.address, session, mock.front)
        await found.do(INITIALIZE_INTERFACE)
        found.enter(OS_INSTALLING)
        yield found


async def test_an_image_is_installed_by_one_update_whose_task_is_followed(steps: MockSteps) -> None:
    before = steps.dpu.facts["boot_id"]
    facts = await steps.installed()
    assert (facts["serial"], facts["image"]) == (SERIAL, "image/1")
    assert facts["boot_id"] == BOOTED != before
    assert facts[CERTIFICATE_FACT]
    assert (steps.front.updates, steps.tasks) == (1, {f"upgrade of attempt {steps.dpu.attempt}"})
    assert steps.front.count("GET", UPDATE_TASK)


async def test_a_task_that_fails_fails_the_step_and_is_sent_again_by_the_next_attempt_only(steps: MockSteps) -> None:
    """The failed task of the mock has no message, and the next update has its id."""
    steps.url = "http://images/fail.bfb"
    with pytest.raises(TaskFailed, match=r"^task: upgrade failed: the BMC gave no reason$"):
        await steps.ended()
    assert steps.front.updates == 1
    steps.url = "http://images/a.bfb"
    facts = await steps.installed()
    assert (facts["boot_id"], steps.front.updates) == (BOOTED, 2)


async def test_the_task_of_a_killed_attempt_is_adopted(steps: MockSteps) -> None:
    """The mock's task ends within 55 ms, so the front holds the first poll of it: the attempt never sees the end."""
    steps.front.may_poll.clear()
    async with asyncio.timeout(EVENTUALLY_S):
        killed = asyncio.create_task(steps.run())
        await steps.front.polled.wait()
        killed.cancel()
        await asyncio.wait([killed])
    assert killed.cancelled()
    steps.front.may_poll.set()
    polls = steps.front.count("GET", UPDATE_TASK)
    facts = await steps.installed()
    assert (facts["image"], steps.front.updates) == ("image/1", 1)
    assert steps.front.count("GET", UPDATE_TASK) > polls
    assert steps.tasks == {f"upgrade of attempt {steps.dpu.attempt - 1}"}


async def test_an_update_whose_answer_was_lost_is_found_among_the_tasks(steps: MockSteps) -> None:
    steps.front.lost_updates = 1
    with pytest.raises(Unreachable, match="did not respond"):
        await steps.ended()
    assert (steps.front.updates, steps.tasks) == (1, set())
    facts = await steps.installed()
    assert (facts["image"], steps.front.updates) == ("image/1", 1)
    assert steps.tasks == {f"upgrade of attempt {steps.dpu.attempt - 1}"}


async def test_a_task_that_no_answer_names_is_found_among_the_tasks(steps: MockSteps) -> None:
    steps.front.names_tasks = False
    facts = await steps.installed()
    assert (facts["image"], steps.front.updates) == ("image/1", 1)
    assert steps.tasks == {f"upgrade of attempt {steps.dpu.attempt}"}


async def test_an_accepted_update_without_a_task_is_not_sent_again(
    steps: MockSteps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update_moves, "SETTLE_S", SETTLE_S)
    steps.front.names_tasks = steps.front.lists_tasks = False
    with pytest.raises(TaskFailed, match=r"^task: the BMC no longer knows the task of the update, and nothing shows"):
        await steps.ended()
    assert steps.front.updates == 1


async def test_a_completed_task_without_a_boot_proves_no_installation(
    steps: MockSteps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update_moves, "SETTLE_S", SETTLE_S)
    with pytest.raises(TaskFailed, match=r"^task: upgrade completed, but the DPU has not booted since$"):
        await steps.ended()
    assert steps.front.updates == 1


async def test_sessions_without_a_token_are_refused_before_anything_is_changed(steps: MockSteps) -> None:
    """The mock has sessions, but its answer to a login has no token."""
    steps.front.has_sessions = True
    with pytest.raises(TaskFailed, match=r"^device: \S+ opened a session without its token and its path$"):
        await steps.ended()
    assert steps.front.updates == 0
