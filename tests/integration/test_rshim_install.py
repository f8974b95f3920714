"""The agent of a host writes an image to a rshim: what it does when it is killed, and when a part fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from deploy.host_agent.actions import ActionFailed
from deploy.host_agent.install_progress import ENDED, INSTALLING, WRITTEN
from drivers.backends.bmc import NeedsOperator, TaskFailed, Unreachable
from drivers.provisioning.rshim import RshimInstaller, host_at, no_host_url
from projections.resources.host_tasks import FoundDevice, HostReport
from projections.zones.dpus.phases import DPU_CONFIG, HOST_NETWORK, INITIALIZE_INTERFACE, OS_INSTALLING, PREPARE_IMAGE
from tests.support.rshim_steps import BFB, SERIAL, SLOT, RshimSteps

pytestmark = pytest.mark.timeout(300)
PATIENCE_S = 120.0


@pytest.fixture
async def steps(tmp_path: Path) -> RshimSteps:
    made = RshimSteps(tmp_path)
    made.enter(OS_INSTALLING)
    return made


@pytest.fixture(autouse=True)
def device(steps: RshimSteps) -> Iterator[None]:
    with steps.device.running():
        yield


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.01)


async def ended(running: Awaitable[object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await running


async def test_an_agent_that_is_killed_while_it_writes_writes_all_of_it_again(steps: RshimSteps) -> None:
    reached = asyncio.Event()
    steps.on_chunk = lambda number: reached.set() if number == 3 else None
    running = asyncio.ensure_future(steps.run())
    async with steps.working():
        await asyncio.wait_for(reached.wait(), PATIENCE_S)
    steps.on_chunk = lambda number: None
    async with steps.working():
        await ended(running)
    assert (steps.device.installs, steps.device.image) == (1, BFB)


async def test_an_agent_that_is_killed_while_the_dpu_installs_writes_nothing_again(steps: RshimSteps) -> None:
    steps.device.holds.clear()
    running = asyncio.ensure_future(steps.run())
    async with steps.working():
        await until(lambda: steps.device.installs == 1)
    for begun in range(2, 4):
        async with steps.working():
            await until(lambda begun=begun: steps.begun >= begun)  # type: ignore[misc]
    steps.device.holds.set()
    async with steps.working():
        await ended(running)
    assert (steps.device.installs, steps.device.image) == (1, BFB)


async def reach(steps: RshimSteps, percent: int) -> asyncio.Future[object]:
    """Run the step until its task is so far; then its agent is killed. The device proceeds no further."""
    running: asyncio.Future[object] = asyncio.ensure_future(steps.run())
    if percent <= WRITTEN:
        steps.device.holds.clear()
    async with steps.working():
        await until(lambda: any(state.percent >= percent for state in steps.box.report.tasks))
    return running


async def test_an_agent_that_saw_the_end_of_the_installer_need_not_see_the_boot(steps: RshimSteps) -> None:
    running = await reach(steps, ENDED)
    steps.proceeds_unseen = True
    await until(lambda: "DPU is ready" in (steps.device.folder / "misc").read_text())
    async with steps.working():
        await ended(running)
    assert (steps.device.installs, steps.device.image) == (1, BFB)


@pytest.mark.parametrize("reached", [WRITTEN, INSTALLING])
async def test_a_dpu_that_loses_its_power_while_no_agent_runs_is_installed_again(
    steps: RshimSteps, reached: int
) -> None:
    running = await reach(steps, reached)
    steps.device.holds.clear()
    steps.device.lose_power()
    await until(lambda: "DPU is ready" in (steps.device.folder / "misc").read_text())
    assert steps.device.image == b""
    async with steps.working():
        with pytest.raises(TaskFailed, match="DPU is ready, but the end of the installer of image/1 was not seen"):
            await ended(running)
        steps.device.holds.set()
        await ended(steps.run())
    assert (steps.device.installs, steps.device.image) == (2, BFB)


async def test_a_dpu_that_loses_its_power_while_it_installs_is_not_taken_as_installed(steps: RshimSteps) -> None:
    running = asyncio.ensure_future(steps.run())
    steps.device.holds.clear()
    async with steps.working():
        await until(lambda: any(state.percent >= INSTALLING for state in steps.box.report.tasks))
        steps.device.lose_power()
        with pytest.raises(TaskFailed, match="the end of the installer of image/1 was not seen"):
            await ended(running)
        steps.device.holds.set()
        await ended(steps.run())
    assert (steps.device.installs, steps.device.image) == (2, BFB)


async def test_an_installation_whose_end_no_agent_saw_is_not_taken_for_one(steps: RshimSteps) -> None:
    running = await reach(steps, WRITTEN)
    steps.proceeds_unseen = True
    steps.device.holds.set()
    await until(lambda: steps.device.image == BFB)
    await until(lambda: "DPU is ready" in (steps.device.folder / "misc").read_text())
    async with steps.working():
        with pytest.raises(TaskFailed, match="the end of the installer of image/1 was not seen"):
            await ended(running)
        await ended(steps.run())
    assert (steps.device.installs, steps.device.image) == (2, BFB)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("broken off", "image: the transfer broke off"),
        ("wrong bytes", "do not have the size and digest that were stated"),
        ("too short", "do not have the size and digest that were stated"),
        ("device", "rshim: the device could not take the image: Broken pipe"),
    ],
)
async def test_a_transfer_that_fails_fails_the_step_and_the_dpu_boots_nothing(
    steps: RshimSteps, fault: str, reason: str
) -> None:
    def break_off(number: int) -> None:
        if number == 3:
            raise ActionFailed("image: the transfer broke off after 3000 of 5028 bytes: ClientPayloadError")

    match fault:
        case "broken off":
            steps.on_chunk = break_off
        case "wrong bytes":
            steps.content = BFB[:-1] + b"?"
        case "too short":
            steps.content = BFB[:-1_000]
        case "device":
            steps.device.takes_max = 1_500
            steps.on_chunk = lambda number: wait_for_refusal(steps) if number == 4 else None
    async with steps.working():
        with pytest.raises(TaskFailed, match=reason):
            await steps.run()
        assert (steps.device.installs, steps.device.image) == (0, b"")
        steps.device.accepts.set()
        steps.content, steps.on_chunk = BFB, lambda number: None
        await ended(steps.run())
    assert (steps.device.installs, steps.device.image) == (1, BFB)


def wait_for_refusal(steps: RshimSteps) -> None:
    """Give the device time to end the stream: a FIFO takes a stream as small as this one before anybody reads it."""
    ends_s = time.monotonic() + PATIENCE_S
    while not steps.device.cut and time.monotonic() < ends_s:
        time.sleep(0.01)
    assert steps.device.cut


async def test_an_image_whose_installer_writes_nothing_to_the_log_is_named(steps: RshimSteps) -> None:
    steps.device.planned.append("lie")
    async with steps.working():
        with pytest.raises(TaskFailed, match="image: the DPU is ready, but the installer of image/1 wrote nothing to"):
            await ended(steps.run())


async def test_an_installation_by_another_program_is_not_disturbed(steps: RshimSteps) -> None:
    steps.device.holds.clear()
    with (steps.device.folder / "boot").open("wb") as boot:
        boot.write(BFB)
    await until(lambda: steps.device.installs == 1)
    async with steps.working():
        with pytest.raises(TaskFailed, match="rshim: another program installs an image on the DPU"):
            await steps.run()
        assert steps.device.installs == 1
        steps.device.holds.set()
        await until(lambda: steps.device.image == BFB)
        await until(lambda: "DPU is ready" in (steps.device.folder / "misc").read_text())
        await ended(steps.run())
    assert steps.device.installs == 2


async def test_a_rshim_that_is_missing_is_named(steps: RshimSteps) -> None:
    (device,) = steps.box.report.devices
    without = FoundDevice(device.pci_address, serial=SERIAL)
    steps.box.report = HostReport("run-1", "boot-1", 1, (without,))
    with pytest.raises(Unreachable, match=f"rshim: host host-1 has no rshim of the DPU at {SLOT}.0"):
        await steps.do(INITIALIZE_INTERFACE)
    steps.box.report = HostReport("run-1", "boot-1", 1, (device,))
    steps.enter(OS_INSTALLING)
    (steps.device.folder).rename(steps.device.folder.with_name("gone"))
    try:
        async with steps.working():
            with pytest.raises(TaskFailed, match=f"rshim: the host has no rshim of the DPU at {SLOT}; is its driver"):
                await steps.run()
    finally:
        steps.device.folder.with_name("gone").rename(steps.device.folder)


async def test_a_host_without_the_dpu_or_without_an_agent_is_named(steps: RshimSteps) -> None:
    steps.box.report = HostReport("run-1", "boot-1", 1, ())
    with pytest.raises(Unreachable, match="device: host host-1 has no DPU on its PCI bus now"):
        await steps.do(PREPARE_IMAGE)
    found = tuple(FoundDevice(f"0000:0{number}:00.0", serial=f"S{number}") for number in (3, 4))
    steps.box.report = HostReport("run-1", "boot-1", 1, found)
    with pytest.raises(NeedsOperator, match=r"^serial: the device has 'S3' and 'S4', but 'MT1' is registered"):
        await steps.do(PREPARE_IMAGE)
    for address in ("rshim:host", "rshim:/host", "rshim:a/b/c", "rshim:a/"):
        with pytest.raises(NeedsOperator, match="must be rshim:NAMESPACE/HOST"):
            host_at(address)


async def test_steps_without_a_part_on_the_device_give_no_task(steps: RshimSteps) -> None:
    for phase in (INITIALIZE_INTERFACE, PREPARE_IMAGE, DPU_CONFIG):
        assert (await steps.do(phase))["serial"] == SERIAL
    assert await steps.do(HOST_NETWORK) == {}
    assert steps.box.tasks.tasks == ()


async def test_a_plane_without_certificates_says_what_it_needs(steps: RshimSteps) -> None:
    with pytest.raises(NeedsOperator, match="image: the agent of a host fetches images with its certificate"):
        await no_host_url("d", "image/1")
    assert isinstance(steps.installer(), RshimInstaller)
