"""Every step runs twice and fails once at each call. No action that began on the device begins again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import NamedTuple, TypeVar

import pytest
from msgspec.structs import replace

from drivers.backends.bmc import Bmc, NeedsOperator, Reading, SessionEnded, Task, TaskFailed, Unreachable
from drivers.backends.simulated_bmc import BmcFaults, SimulatedBmc
from drivers.provisioning.attempts import Attempt, AttemptSuperseded, CallTiming
from drivers.provisioning.device import TOKENS_PER_MS, DeviceExecutor, token_of
from projections.zones.dpus.phases import CONFIG_FIRMWARE, NODE_EFFECT, OS_INSTALLING, REBOOTING, STEPS
from projections.zones.rows import Dpu
from tests.support.virtual_loop import run_virtual

pytestmark = pytest.mark.virtual_clock

FAST = BmcFaults(latency_s=0.0)
BEGAN_MS = 1_700_000_000_000
T = TypeVar("T")


class Cut(NamedTuple):
    """The number of a call that fails, either before it reaches the device or after."""

    call: int
    after: bool


class CutBmc:
    """A BMC on whose connection one call fails."""

    def __init__(self, bmc: Bmc, cut: Cut) -> None:
        self._bmc = bmc
        self._cut = cut
        self.calls = 0

    async def open(self, token: int) -> Reading:
        self._pass()
        return self._back(await self._bmc.open(token))

    async def read(self, token: int) -> Reading:
        self._pass()
        return self._back(await self._bmc.read(token))

    async def start(self, token: int, action: str, image: str, url: str = "") -> Task:
        self._pass()
        return self._back(await self._bmc.start(token, action, image))

    async def cancel(self, token: int, task: str) -> None:
        self._pass()
        await self._bmc.cancel(token, task)
        self._back(None)

    def _pass(self) -> None:
        self.calls += 1
        if self.calls == self._cut.call and not self._cut.after:
            raise Unreachable("cut off before")

    def _back(self, answer: T) -> T:
        if self.calls == self._cut.call and self._cut.after:
            raise Unreachable("cut off after")
        return answer


def device(faults: BmcFaults = FAST, serial: str = "s") -> SimulatedBmc:
    return SimulatedBmc(serial, now_s=asyncio.get_running_loop().time, rng=Random(3), faults=faults)


def dpu_in(phase: str, attempt: int = 11) -> Dpu:
    return Dpu(
        "z1",
        0,
        "n",
        "s",
        "b",
        phase,
        attempt,
        10,
        9,
        BEGAN_MS,
        step_state="running",
        image="i",
        disowned=10,
        deadline_ms=BEGAN_MS + attempt + STEPS[phase].deadline_ms,
        began_ms=BEGAN_MS + attempt,
        facts={"boot_id": "boot-1"},
    )


async def run_step(
    bmc: Bmc,
    dpu: Dpu,
    check: Callable[[], None],
    thawed: Callable[[], Awaitable[None]],
    progressed: Callable[[str, int], Awaitable[None]],
    *,
    calls: asyncio.Semaphore,
) -> dict[str, str]:
    context = Attempt("d", dpu, STEPS[dpu.phase], check, thawed, progressed, calls, CallTiming())
    return await DeviceExecutor(lambda _address: bmc).run(context)


async def attempt(
    bmc: Bmc, dpu: Dpu, *, stop_after: int = 1_000, progress: list[tuple[str, int]] | None = None
) -> dict[str, str]:
    """Run a step. After `stop_after` checks another actor owns it."""
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls > stop_after:
            raise AttemptSuperseded("not any more")

    async def thawed() -> None:
        """No zone is frozen."""

    async def progressed(task: str, percent: int) -> None:
        if progress is not None:
            progress.append((task, percent))

    return await run_step(bmc, dpu, check, thawed, progressed, calls=asyncio.BoundedSemaphore(1))


def begun(bmc: SimulatedBmc, phase: str) -> int:
    return sum(task.action == STEPS[phase].name for task in bmc.begun)


@pytest.mark.parametrize("phase", STEPS)
async def test_a_step_run_twice_is_done_once(phase: str) -> None:
    """The success of the first attempt was not recorded. The second attempt finds the action done."""
    bmc = device()
    facts = await attempt(bmc, dpu_in(phase, 11))
    assert await attempt(bmc, dpu_in(phase, 12)) == facts
    assert [task.action for task in bmc.begun] == [STEPS[phase].name]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("phase", STEPS)
def test_a_step_that_fails_at_any_call_is_finished_by_the_next_attempt(phase: str, after: bool) -> None:
    async def scenario() -> int:
        for call in range(1, 100):
            bmc = device()
            line = CutBmc(bmc, Cut(call, after))
            try:
                await attempt(line, dpu_in(phase, 11))
            except Unreachable:
                await attempt(bmc, dpu_in(phase, 12))
                assert begun(bmc, phase) == len(bmc.begun) == 1
            else:
                return call
        raise AssertionError("the step failed at each of 100 calls")

    assert run_virtual(scenario()) > 4


@pytest.mark.parametrize("phase", [NODE_EFFECT, OS_INSTALLING, REBOOTING])
async def test_a_superseded_attempt_makes_no_call(phase: str) -> None:
    for allowed in range(4):
        bmc = device()
        with pytest.raises(AttemptSuperseded):
            await attempt(bmc, dpu_in(phase, 11), stop_after=allowed)
        await attempt(bmc, dpu_in(phase, 12))
        assert begun(bmc, phase) == 1


async def test_a_successor_ends_the_session_of_a_zombie_and_adopts_its_task() -> None:
    bmc = device()
    progress: list[tuple[str, int]] = []
    zombie = asyncio.create_task(attempt(bmc, dpu_in(OS_INSTALLING, 11)))
    await asyncio.sleep(1.0)
    assert (await attempt(bmc, dpu_in(OS_INSTALLING, 12), progress=progress))["image"] == "i"
    with pytest.raises(SessionEnded):
        await zombie
    assert len(bmc.begun) == 1 and progress[0][1] >= 25


@pytest.mark.parametrize("number", [9, 11], ids=["disowned", "of this request"])
@pytest.mark.parametrize(("action", "image"), [("install", "old"), ("firmware", "i")])
async def test_a_task_of_another_step_or_image_is_cancelled_first(number: int, action: str, image: str) -> None:
    bmc, token = device(), token_of(dpu_in(OS_INSTALLING, number))
    await bmc.open(token)
    await bmc.start(token, action, image)
    with pytest.raises(Unreachable, match="in progress"):
        await bmc.start(token, "install", "i")
    await attempt(bmc, dpu_in(OS_INSTALLING, 12))
    assert bmc.image == "i"
    device_now = await bmc.read(token_of(dpu_in(OS_INSTALLING, 12)))
    assert [(task.action, task.image, task.state) for task in device_now.tasks] == [
        (action, image, "cancelled"),
        ("install", "i", "done"),
    ]


async def test_a_failed_task_is_started_again_by_the_next_attempt() -> None:
    bmc = device(FAST._replace(fail=1.0))
    with pytest.raises(TaskFailed, match="ended as failed"):
        await attempt(bmc, dpu_in(OS_INSTALLING, 11))
    bmc.faults = FAST
    assert (await attempt(bmc, dpu_in(OS_INSTALLING, 12)))["image"] == "i"
    assert begun(bmc, OS_INSTALLING) == 2


async def test_an_attempt_that_waited_for_a_slot_checks_its_ownership_before_the_call() -> None:
    bmc, is_ours, calls = device(), True, asyncio.Semaphore(1)

    def check() -> None:
        if not is_ours:
            raise AttemptSuperseded("not any more")

    async def thawed() -> None:
        """No zone is frozen."""

    async def progressed(task: str, percent: int) -> None:
        """Ignore the progress."""

    await calls.acquire()
    step = run_step(bmc, dpu_in(OS_INSTALLING), check, thawed, progressed, calls=calls)
    waiting = asyncio.ensure_future(step)
    await asyncio.sleep(1.0)
    is_ours = False
    calls.release()
    with pytest.raises(AttemptSuperseded):
        await waiting
    await bmc.open(1)  # the attempt opened no session, which would have a higher token
    assert not bmc.begun


async def test_an_attempt_that_waits_for_a_thaw_takes_no_slot() -> None:
    bmc, calls, thaw = device(), asyncio.Semaphore(1), asyncio.Event()

    async def thawed() -> None:
        await thaw.wait()

    async def progressed(task: str, percent: int) -> None:
        """Ignore the progress."""

    frozen = run_step(bmc, dpu_in(OS_INSTALLING), lambda: None, thawed, progressed, calls=calls)
    waiting = asyncio.ensure_future(frozen)
    await asyncio.sleep(0)
    assert not calls.locked()
    thaw.set()
    assert (await waiting)["image"] == "i"


async def test_a_device_without_a_serial_is_accepted() -> None:
    assert "serial" not in await attempt(device(serial=""), dpu_in(NODE_EFFECT))


async def test_a_disowned_action_is_done_again() -> None:
    """A retry requested by a person starts the action again, whatever the device has done before."""
    bmc = device()
    await attempt(bmc, dpu_in(OS_INSTALLING, 11))
    await attempt(bmc, replace(dpu_in(OS_INSTALLING, 12), disowned=11))
    assert begun(bmc, OS_INSTALLING) == 2


async def test_an_action_of_an_earlier_registration_is_done_again() -> None:
    """Attempts of the earlier registration may have had the same numbers."""
    bmc = device()
    former = replace(dpu_in(OS_INSTALLING), since_ms=0, began_ms=BEGAN_MS - 1)
    await attempt(bmc, former)
    await attempt(bmc, dpu_in(OS_INSTALLING))
    assert begun(bmc, OS_INSTALLING) == 2


def test_a_token_is_higher_than_all_earlier_ones_across_zones_and_logs() -> None:
    attempts = [(0, 11), (0, 12), (5, 13), (5, TOKENS_PER_MS), (5, TOKENS_PER_MS + 1), (5_000, 3), (5_001, 1)]
    tokens = [token_of(replace(dpu_in(NODE_EFFECT, number), began_ms=BEGAN_MS + ms)) for ms, number in attempts]
    assert tokens == sorted(set(tokens))
    assert tokens[-1] < 1 << 63, "a token must fit a signed 64-bit integer"


@pytest.mark.parametrize(("phase", "word"), [(OS_INSTALLING, "image"), (REBOOTING, "boot_id")])
async def test_a_false_success_of_a_device_is_detected(phase: str, word: str) -> None:
    bmc = device(FAST._replace(lie=1.0))
    bmc.image = "old"
    with pytest.raises(TaskFailed, match=word):
        await attempt(bmc, dpu_in(phase))


async def test_a_reboot_that_happened_is_not_repeated() -> None:
    bmc = device()
    bmc.boots = 2
    assert (await attempt(bmc, dpu_in(REBOOTING)))["boot_id"] == "boot-2"
    assert not bmc.begun


async def test_faults_have_different_errors() -> None:
    with pytest.raises(TaskFailed, match="ended as failed"):
        await attempt(device(FAST._replace(fail=1.0)), dpu_in(CONFIG_FIRMWARE))
    with pytest.raises(NeedsOperator, match="image: 'i' does not exist on the device"):
        await attempt(device(FAST._replace(no_images=frozenset({"i"}))), dpu_in(OS_INSTALLING))
    with pytest.raises(NeedsOperator, match="serial: the device has 'other'"):
        await attempt(device(serial="other"), dpu_in(NODE_EFFECT))
    with pytest.raises(Unreachable, match="no response within 30 s"):
        await attempt(device(FAST._replace(hang=1.0)), dpu_in(NODE_EFFECT))


async def test_progress_of_a_task_is_recorded_at_its_start_and_at_each_quarter() -> None:
    progress: list[tuple[str, int]] = []
    await attempt(device(FAST._replace(pace=60.0)), dpu_in(OS_INSTALLING), progress=progress)
    assert [percent // 25 for _, percent in progress] == [0, 1, 2, 3]


class OddBmc(CutBmc):
    """A BMC whose readings have a given progress and boot id."""

    def __init__(self, bmc: Bmc, percent: int = 10, boot_id: str = "") -> None:
        super().__init__(bmc, Cut(0, after=False))
        self._percent = percent
        self._boot_id = boot_id

    async def read(self, token: int) -> Reading:
        found = await super().read(token)
        tasks = tuple(task._replace(percent=self._percent) for task in found.tasks)
        return found._replace(tasks=tasks, boot_id=self._boot_id or found.boot_id)


@pytest.mark.parametrize(("percent", "stated"), [(10**30, 100), (-(10**30), 0)])
async def test_progress_out_of_range_is_recorded_as_the_nearest_percentage(percent: int, stated: int) -> None:
    """A number of more than 64 bits cannot be encoded, and once ended the provisioner."""
    progress: list[tuple[str, int]] = []
    await attempt(OddBmc(device(), percent), dpu_in(OS_INSTALLING), progress=progress)
    assert {share for _, share in progress} == {0, stated}


@pytest.mark.parametrize("boot_id", ["x" * 254, "two\nlines"])
async def test_invalid_facts_are_a_failure_of_the_device(boot_id: str) -> None:
    with pytest.raises(
        TaskFailed, match=r"^boot_id: .* printable characters on one line; the device reported this value"
    ):
        await attempt(OddBmc(device(), boot_id=boot_id), dpu_in(OS_INSTALLING))
