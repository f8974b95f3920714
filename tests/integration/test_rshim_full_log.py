"""The agent of a host follows an installation whose lines do not fit into the log of the rshim."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from deploy.host_agent import rshim
from deploy.host_agent.install_progress import ENDED, INSTALLING
from deploy.host_agent.rshim import CLEARS, write_misc
from drivers.backends.bmc import TaskFailed
from projections.resources.host_tasks import TaskState
from projections.zones.dpus.phases import OS_INSTALLING
from tests.support.rshim_steps import BFB, FULL, RshimSteps

pytestmark = pytest.mark.timeout(300)
PATIENCE_S = 120.0
BOOT_LINES = """INFO[PSC]: PSC BL1 START
INFO[BL2]: start
INFO[BL2]: boot mode (rshim)
INFO[BL2]: VDD_CPU: 870 mV
INFO[BL2]: VDDQ: 1120 mV
INFO[BL2]: DDR POST passed
INFO[BL2]: UEFI loaded
INFO[BL31]: start
INFO[BL31]: lifecycle GA Secured
INFO[BL31]: VDD: 850 mV
INFO[BL31]: runtime
INFO[BL31]: MB ping success
INFO[UEFI]: eMMC init
INFO[UEFI]: eMMC probed
INFO[UEFI]: UPVS valid
INFO[UEFI]: PMI: updates started
INFO[UEFI]: PMI: total updates: 1
INFO[UEFI]: PMI: updates completed, status 0
INFO[UEFI]: PCIe enum start
INFO[UEFI]: PCIe enum end
INFO[UEFI]: UEFI Secure Boot (disabled)
INFO[UEFI]: PK configured
INFO[UEFI]: Redfish enabled
INFO[UEFI]: DPU-BMC RF credentials not found
INFO[UEFI]: exit Boot Service""".splitlines()
"""What the boot of a BlueField-3 writes, as NVIDIA's documentation shows it."""
INSTALLER_LINES = [f"INFO[MISC]: Updating component {number} of 30 of the firmware" for number in range(1, 31)]


@pytest.fixture
async def steps(tmp_path: Path) -> RshimSteps:
    made = RshimSteps(tmp_path)
    made.enter(OS_INSTALLING)
    made.device.boot_lines, made.device.installer_lines = BOOT_LINES, INSTALLER_LINES
    made.device.room_s = PATIENCE_S
    return made


@pytest.fixture(autouse=True)
def device(steps: RshimSteps) -> Iterator[None]:
    with steps.device.running():
        yield


@pytest.fixture
def cannot_clear(monkeypatch: pytest.MonkeyPatch, steps: RshimSteps) -> None:
    """The driver refuses CLEAR_ON_READ, as one that does not know it."""
    steps.device.room_s = 0.0

    def write(folder: Path, setting: str) -> None:
        if setting.startswith("CLEAR_ON_READ"):
            raise OSError(errno.EINVAL, "Invalid argument")
        write_misc(folder, setting)

    monkeypatch.setattr(rshim, "write_misc", write)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.01)


async def ended(running: Awaitable[object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await running


async def test_the_end_of_an_installer_that_writes_much_is_seen(steps: RshimSteps) -> None:
    async with steps.working():
        await ended(steps.run())
    assert (steps.device.installs, steps.device.image) == (1, BFB)
    assert steps.device.clears >= 2, "30 lines of 7 words need the buffer several times"
    assert steps.device.clears_on_read is None


async def test_an_agent_that_is_killed_after_it_cleared_the_log_sees_the_end_of_the_installer(
    steps: RshimSteps,
) -> None:
    running = asyncio.ensure_future(steps.run())
    async with steps.working():
        await until(lambda: steps.device.clears >= 2)
    write_misc(steps.device.folder, CLEARS)  # it was killed while it cleared the log once more
    await until(lambda: steps.device.clears_on_read is not None)
    async with steps.working():
        await ended(running)
    assert (steps.device.installs, steps.device.image) == (1, BFB)
    assert steps.device.clears_on_read is None


@pytest.mark.usefixtures("cannot_clear")
async def test_a_full_log_that_cannot_be_cleared_fails_no_installation(steps: RshimSteps) -> None:
    seen: list[tuple[int, str]] = []
    record = steps.box.state

    def note(state: TaskState) -> None:
        seen.append((state.percent, state.message))
        record(state)

    steps.box.state = note  # type: ignore[method-assign]
    async with steps.working():
        await ended(steps.run())
    assert (steps.device.installs, steps.device.image, steps.device.clears) == (1, BFB, 0)
    assert (INSTALLING, f"the DPU installs the image; {FULL}") in seen
    assert ENDED not in {percent for percent, _ in seen}, "the last line did not fit"


@pytest.mark.usefixtures("cannot_clear")
async def test_a_full_log_proves_nothing_to_an_agent_that_did_not_follow_it(steps: RshimSteps) -> None:
    running = asyncio.ensure_future(steps.run())
    steps.device.proceeds = lambda event: event != "boot"
    for _ in range(2):
        steps.told.clear()
        async with steps.working():
            await until(lambda: any(FULL in each.message for each in steps.told.values()))
    async with steps.working():
        await until(lambda: steps.begun == 3)
        steps.device.proceeds = lambda event: True
        with pytest.raises(TaskFailed, match="the end of the installer of image/1 was not seen"):
            await ended(running)


async def test_nothing_is_cleared_while_the_plane_records_nothing(steps: RshimSteps) -> None:
    steps.records, steps.device.room_s = False, 0.0
    async with steps.working():
        await ended(steps.run())
    assert (steps.device.installs, steps.device.image, steps.device.clears) == (1, BFB, 0)
