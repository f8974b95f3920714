"""Provisioners over a real log and simulated BMCs: DPUs get Ready after any fault, and no action runs twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from drivers.backends.bmc import Reading, Task
from drivers.backends.simulated_bmc import BmcFaults, SimulatedBmc, SimulatedBmcs
from drivers.images.tokens import Claims, Tokens
from drivers.provisioning.attempts import Attempt
from drivers.provisioning.provisioner import Provisioner, ProvisionerSettings
from drivers.timers import Timers
from projections.zones.dpus.phases import (
    ERROR,
    INITIALIZING,
    NODE_EFFECT,
    OS_INSTALLING,
    PENDING,
    PROVISIONING,
    READY,
    STEPS,
)
from schemas.events import DeadlinePassed, StepFailed, StepStarted
from tests.support.memory_plane import Plane, device_executors, plane

pytestmark = pytest.mark.virtual_clock

HOUR_S = 3_600.0
HOUR_MS = 3_600_000
QUIET = BmcFaults(latency_s=0.001)


def devices(made: Plane, faults: BmcFaults = QUIET) -> SimulatedBmcs:
    return SimulatedBmcs(now_s=asyncio.get_running_loop().time, rng=made.rng(), faults=faults)


def provisioner(
    made: Plane,
    name: str,
    bmcs: SimulatedBmcs,
    settings: ProvisionerSettings | None = None,
    now_ms: Callable[[], int] | None = None,
) -> Provisioner:
    found = Provisioner(
        made.replicas[name],
        made.ranks(name),
        device_executors(bmcs.connect),
        now_ms=now_ms or made.now_ms,
        rng=made.rng(),
        settings=settings or ProvisionerSettings(),
    )
    made.spawn(name, found.run())
    return found


def timers(made: Plane, name: str) -> Timers:
    found = Timers(made.replicas[name], made.ranks(name), now_ms=made.now_ms, rng=made.rng())
    made.spawn(name, found.run())
    return found


async def test_a_fleet_of_sound_devices_gets_ready_with_each_action_done_once() -> None:
    async with plane() as made:
        await made.add("p1")
        bmcs = devices(made)
        found = provisioner(made, "p1", bmcs)
        for i in range(60):
            await made.register(f"d{i}")
        answers = [(await made.request(f"d{i}", "provision", "image-1")).outcome for i in range(60)]
        assert Counter(outcome.code for outcome in answers) == {"done": 50, "waiting": 10}
        await made.until(lambda: all(d.phase == READY for d in made.zone("z1").dpus.rows.values()))
        for device in bmcs.devices.values():
            assert device.image == "image-1" and not device.drained
            assert len(device.begun) == len({task.action for task in device.begun}) == len(PROVISIONING)
        assert {how for _, how in found.ended} == {"done"} and found.under_way == 0
        assert found.ended.total() == 60 * len(PROVISIONING)
        assert not found._started_s, "ended steps are still in memory"


async def test_faulty_devices_get_ready_or_end_in_error_and_get_ready_after_a_retry() -> None:
    faults = BmcFaults(latency_s=0.05, unreachable=0.02, mute=0.02, hang=0.005, fail=0.02, lie=0.02)
    async with plane() as made:
        await made.add("p1")
        bmcs = devices(made, faults)
        provisioner(made, "p1", bmcs)
        timers(made, "p1")
        names = [f"d{i}" for i in range(20)]
        for name in names:
            await made.register(name)
            await made.request(name, "provision", "image-1")
        for _ in range(20):
            await made.until(
                lambda: all(made.dpu(name).phase in (READY, ERROR) for name in names), timeout_s=6 * HOUR_S
            )
            stuck = [name for name in names if made.dpu(name).phase == ERROR]
            for name in stuck:
                assert made.dpu(name).message
                await made.request(name, "retry")
            if not stuck:
                break
        assert all(made.dpu(name).phase == READY for name in names)
        assert all(bmcs.devices[name].image == "image-1" for name in names)


async def test_another_provisioner_takes_over_and_adopts_the_install_when_the_beacon_is_gone() -> None:
    async with plane() as made:
        await made.add("p1")
        await made.add("p2")
        bmcs = devices(made, QUIET._replace(pace=10.0))
        provisioner(made, "p1", bmcs)
        second = provisioner(made, "p2", bmcs)
        await made.register("d")
        await made.request("d", "provision", "image-1")
        await made.until(lambda: made.dpu("d").phase == OS_INSTALLING and made.dpu("d").percent > 0)
        assert made.dpu("d").provisioner.startswith("p1#") and not second.ended
        made.kill("p1")
        await made.until(lambda: made.dpu("d").phase == READY, timeout_s=300)
        assert second.ended[OS_INSTALLING, "lost"] == 1
        assert Counter(task.action for task in bmcs.devices["d"].begun)["install"] == 1
        assert made.count(made.partition("z1"), StepFailed) == 1


async def test_a_restarted_provisioner_treats_its_former_attempt_as_lost() -> None:
    async with plane() as made:
        await made.add("p1")
        bmcs = devices(made, QUIET._replace(pace=10.0))
        provisioner(made, "p1", bmcs)
        await made.register("d")
        await made.request("d", "provision", "image-1")
        await made.until(lambda: made.dpu("d").phase == OS_INSTALLING and made.dpu("d").task != "")
        before = made.dpu("d").provisioner
        made.kill("p1", beacon=True)
        await made.add("p1")
        found = provisioner(made, "p1", bmcs)
        await made.until(lambda: made.dpu("d").phase == READY, timeout_s=300)
        assert found.ended[OS_INSTALLING, "lost"] == 1 and made.dpu("d").phase == READY
        assert Counter(task.action for task in bmcs.devices["d"].begun)["install"] == 1
        assert before.startswith("p1#")


async def test_no_provisioner_takes_over_from_a_live_actor() -> None:
    async with plane() as made:
        await made.add("p1")
        await made.add("p2")
        bmcs = devices(made, QUIET._replace(pace=100.0))
        provisioner(made, "p1", bmcs)
        second = provisioner(made, "p2", bmcs)
        for i in range(5):
            await made.register(f"d{i}")
            await made.request(f"d{i}", "provision", "image-1")
        await made.until(lambda: made.dpu("d0").phase == READY, timeout_s=HOUR_S)
        assert not second.ended


async def test_an_attempt_at_a_hanging_device_ends_at_the_deadline_and_is_retried() -> None:
    async with plane() as made:
        await made.add("p1")
        bmcs = devices(made)
        provisioner(made, "p1", bmcs)
        found = timers(made, "p1")
        await made.register("d")
        bmcs.device("d").faults = QUIET._replace(pace=1e9)
        await made.request("d", "provision", "image-1")
        await made.until(lambda: made.dpu("d").failures == 1, timeout_s=HOUR_S)
        assert asyncio.get_running_loop().time() >= STEPS[NODE_EFFECT].deadline_ms / 1_000
        assert made.dpu("d").message.endswith(("by the deadline", "deadline passed"))
        bmcs.device("d").faults = QUIET
        await made.until(lambda: made.dpu("d").phase == READY, timeout_s=HOUR_S)
        assert found.appended <= 1 and made.count(made.partition("z1"), DeadlinePassed) <= 1


@pytest.mark.parametrize("ahead_ms", [0, 2 * HOUR_MS], ids=["clocks agree", "the log's clock was hours ahead"])
async def test_a_provisioner_fails_its_own_attempt_at_the_deadline(ahead_ms: int) -> None:
    """After a clock error the deadline in the log may lie hours ahead, and no timer may report it before then."""
    async with plane() as made:
        made.ahead_ms = ahead_ms
        await made.add("p1")
        bmcs = devices(made)
        found = provisioner(made, "p1", bmcs)
        timers(made, "p1")
        await made.register("d")
        bmcs.device("d").faults = QUIET._replace(pace=1e9)
        await made.request("d", "provision", "image-1")
        await made.until(lambda: made.dpu("d").step_state == "running")
        made.ahead_ms = -1_000
        limit_s = STEPS[NODE_EFFECT].deadline_ms / 1_000
        await made.until(lambda: made.dpu("d").failures == 1, timeout_s=limit_s + 60)
        assert made.dpu("d").message == "the step's deadline passed"
        assert found.ended[NODE_EFFECT, "transient"] == 1
        bmcs.device("d").faults = QUIET
        await made.until(lambda: made.dpu("d").phase == READY, timeout_s=HOUR_S)
        assert made.count(made.partition("z1"), DeadlinePassed) == 0


@pytest.mark.parametrize("silent", ["StepStarted", "StepSucceeded"])
async def test_an_append_with_an_unknown_outcome_repeats_no_action(silent: str) -> None:
    async with plane() as made:
        await made.add("p1")
        bmcs = devices(made)
        found = provisioner(made, "p1", bmcs)
        await made.register("d")
        partition = made.partition("z1")
        if silent == "StepStarted":
            made.log.failures.append_latency_s = 0.01
            await made.request("d", "provision", "image-1")
            made.log.failures.late_s[partition] = 4.0
        else:
            await made.request("d", "provision", "image-1")
            await made.until(lambda: made.dpu("d").step_state == "running")
            made.log.failures.late_s[partition] = 4.0
        await made.until(lambda: made.dpu("d").phase == READY, timeout_s=600)
        assert found.internal_events.failures == 1
        assert Counter(Counter(task.action for task in bmcs.devices["d"].begun).values()) == {1: len(PROVISIONING)}


async def test_a_failure_for_the_operator_is_not_retried_before_a_request() -> None:
    async with plane() as made:
        await made.add("p1")
        bmcs = devices(made, QUIET._replace(no_images=frozenset({"image-1"})))
        provisioner(made, "p1", bmcs)
        await made.register("d")
        await made.request("d", "provision", "image-1")
        await made.until(lambda: made.dpu("d").phase == ERROR)
        assert made.dpu("d").message == "image: 'image-1' does not exist on the device"
        bmcs.device("d").faults = QUIET
        await made.request("d", "retry")
        await made.until(lambda: made.dpu("d").phase == READY)


async def test_a_failure_under_a_fast_clock_is_retried_soon_after_the_correction() -> None:
    async with plane() as made:
        made.ahead_ms = 2 * HOUR_MS
        await made.add("p1")
        bmcs = devices(made, QUIET._replace(unreachable=1.0))
        provisioner(made, "p1", bmcs)
        await made.register("d")
        await made.request("d", "provision", "image-1")
        await made.until(lambda: made.dpu("d").failures == 2)
        made.ahead_ms = 0
        bmcs.device("d").faults = QUIET
        await made.until(lambda: made.dpu("d").phase == READY, timeout_s=HOUR_S)


async def test_a_step_that_began_under_a_fast_clock_still_has_its_deadline() -> None:
    async with plane() as made:
        made.ahead_ms = 2 * HOUR_MS
        await made.add("p1")
        bmcs = devices(made, QUIET._replace(pace=10.0))
        provisioner(made, "p1", bmcs)
        await made.register("d")
        await made.request("d", "provision", "image-1")
        await made.until(lambda: made.dpu("d").task != "")
        made.ahead_ms = 0
        bmcs.device("d").faults = QUIET._replace(hang=1.0)
        attempt = made.dpu("d").attempt
        await made.until(lambda: made.dpu("d").attempt > attempt, timeout_s=HOUR_S)


async def test_a_provisioner_with_a_fast_clock_works_as_any_other() -> None:
    async with plane() as made:
        await made.add("p1")
        found = provisioner(made, "p1", devices(made), now_ms=lambda: made.now_ms() + 2 * HOUR_MS)
        await made.register("d")
        await made.request("d", "provision", "image-1")
        await made.until(lambda: made.dpu("d").phase == READY, timeout_s=HOUR_S / 2)
        assert {ended for _, ended in found.ended} == {"done"}
        assert set(found.ended.values()) == {1}, "each phase takes one attempt"


async def test_requests_take_effect_while_a_step_runs() -> None:
    async with plane() as made:
        await made.add("p1")
        bmcs = devices(made, QUIET._replace(pace=10.0))
        provisioner(made, "p1", bmcs)
        for name in ("aborted", "deleted", "paused"):
            await made.register(name)
            await made.request(name, "provision", "image-1")
        await made.until(lambda: made.dpu("paused").phase == OS_INSTALLING and made.dpu("paused").task != "")
        await made.request("aborted", "abort")
        await made.request("deleted", "delete")
        await made.request("paused", "pause")
        await asyncio.sleep(300)
        assert made.dpu("aborted").phase == INITIALIZING and not bmcs.device("aborted").drained
        assert "deleted" not in made.zone("z1").dpus.rows and not bmcs.device("deleted").drained
        assert (made.dpu("paused").phase, made.dpu("paused").step_state) == ("DPU Config", "open")
        await made.request("paused", "resume")
        await made.until(lambda: made.dpu("paused").phase == READY)


async def test_an_address_without_a_backend_ends_in_error() -> None:
    async with plane() as made:
        await made.add("p1")
        bmcs = SimulatedBmcs(now_s=asyncio.get_running_loop().time, rng=made.rng())
        made.spawn(
            "p1",
            Provisioner(
                made.replicas["p1"],
                made.ranks("p1"),
                device_executors(lambda address: bmcs.connect(address.replace("simulated", "redfish"))),
                now_ms=made.now_ms,
                rng=made.rng(),
            ).run(),
        )
        await made.register("d")
        await made.request("d", "provision", "image-1")
        await made.until(lambda: made.dpu("d").phase == ERROR)
        assert "must be simulated:NAME" in made.dpu("d").message


async def test_steps_beyond_the_limit_of_a_process_wait() -> None:
    async with plane() as made:
        await made.add("p1")
        bmcs = devices(made)
        found = provisioner(made, "p1", bmcs, ProvisionerSettings(attempts_at_once=3))
        most = 0
        for i in range(12):
            await made.register(f"d{i}")
            await made.request(f"d{i}", "provision", "image-1")

        def ready() -> bool:
            nonlocal most
            most = max(most, found.under_way)
            return all(d.phase == READY for d in made.zone("z1").dpus.rows.values())

        await made.until(ready, timeout_s=600)
        assert most == 3 and made.count(made.partition("z1"), StepStarted) == 12 * len(PROVISIONING)


async def test_every_dpu_gets_an_install_slot_in_the_end() -> None:
    async with plane() as made:
        await made.add("p1")
        provisioner(made, "p1", devices(made))
        for i in range(120):
            await made.register(f"d{i}")
            await made.request(f"d{i}", "provision", "image-1")
        await made.until(lambda: not any(d.phase == PENDING for d in made.zone("z1").dpus.rows.values()))


async def test_a_failure_with_a_huge_message_of_the_device_is_recorded() -> None:
    class Talkative(SimulatedBmc):
        async def read(self, token: int) -> Reading:
            found = await super().read(token)
            return found._replace(tasks=tuple(task._replace(message="x" * (1 << 20)) for task in found.tasks))

    async with plane() as made:
        await made.add("p1")
        bmcs = devices(made)
        clock, faults = asyncio.get_running_loop().time, QUIET._replace(fail=1.0)
        bmcs.devices["d"] = Talkative("", now_s=clock, rng=made.rng(), faults=faults)
        provisioner(made, "p1", bmcs)
        await made.register("d")
        await made.request("d", "provision", "image-1")
        await made.until(lambda: made.dpu("d").phase == ERROR)
        assert made.dpu("d").message.startswith("task: drain-") and len(made.dpu("d").message) == 253


async def test_no_token_that_a_device_repeats_is_in_a_record_or_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    token = Tokens(b"k" * 32).issue(
        Claims("local/DPU.provisioning.dpu.nvidia.com/dpf/d", "image-1/0123456789", 1 << 40)
    )
    url = f"https://images:8443/images/{token}/bfb/??image.bfb,bfcfg/d?/bfb-to-install"

    class Repeating(SimulatedBmc):
        async def open(self, token: int) -> Reading:
            return self._repeated(await super().open(token))

        async def read(self, token: int) -> Reading:
            return self._repeated(await super().read(token))

        async def start(self, token: int, action: str, image: str, of: str = "") -> Task:
            return (await super().start(token, action, image, of))._replace(id=f"{action} {url}")

        def _repeated(self, found: Reading) -> Reading:
            tasks = (task._replace(id=f"{task.action} {url}", message=f"no image at {url}") for task in found.tasks)
            return found._replace(boot_id=url, tasks=tuple(tasks))

    caplog.set_level("DEBUG")
    async with plane() as made:
        await made.add("p1")
        bmcs = devices(made)
        clock, faults = asyncio.get_running_loop().time, QUIET._replace(fail=1.0)
        bmcs.devices["d"] = Repeating("", now_s=clock, rng=made.rng(), faults=faults)
        provisioner(made, "p1", bmcs)
        await made.register("d")
        await made.request("d", "provision", "image-1")
        await made.until(lambda: made.dpu("d").phase == ERROR)
        row = made.dpu("d")
        assert "no image at https://images:8443/images/[token]/bfb" in row.message
        assert "WyJ" not in f"{row} {caplog.text}"
        assert not any("WyJ" in str(vars(line)) for line in caplog.records)


async def test_hanging_devices_do_not_delay_others() -> None:
    """If a switch of several racks is down, every call to a device behind it takes the maximum time of a call."""
    async with plane() as made:
        await made.add("p1")
        bmcs = devices(made)
        provisioner(made, "p1", bmcs, ProvisionerSettings(calls_at_once=4))
        for i in range(40):
            bmcs.device(f"dead{i}").faults = QUIET._replace(hang=1.0)
            await made.register(f"dead{i}")
            await made.request(f"dead{i}", "provision", "image-1")
        await asyncio.sleep(1)
        await made.register("sound")
        await made.request("sound", "provision", "image-1")
        await made.until(lambda: made.dpu("sound").phase == READY, timeout_s=60)


async def test_no_step_is_started_in_a_halted_partition() -> None:
    async with plane() as made:
        replica = await made.add("p1")
        await made.register("d")
        await made.request("d", "provision", "image-1")
        replica.folded(made.partition("z1")).halted = "a record that this binary cannot fold"
        provisioner(made, "p1", devices(made))
        await asyncio.sleep(600)
        assert made.count(made.partition("z1"), StepStarted) == 0


async def test_a_dpu_that_moves_to_a_zone_of_another_partition_is_provisioned_there() -> None:
    """The device must accept attempts with lower numbers. Attempts count from the offset of the registration, which is
    lower in the new partition.
    """

    async with plane() as made:
        await made.add("p1")
        bmcs = devices(made)
        provisioner(made, "p1", bmcs)
        there = next(zone for zone in map("z{}".format, range(20)) if made.partition(zone) != made.partition("z1"))
        for i in range(50):
            await made.join("z1", f"n{i}")
        await made.register("d")
        await made.request("d", "provision", "image-1")
        await made.until(lambda: made.dpu("d").phase == READY)
        attempts = made.dpu("d").attempt
        await made.request("d", "delete")
        await made.until(lambda: "d" not in made.zone("z1").dpus.rows)
        await made.register("d", zone=there)
        await made.request("d", "provision", "image-1", zone=there)
        await made.until(lambda: made.dpu("d", there).phase == READY)
        assert made.dpu("d", there).attempt < attempts
        assert Counter(task.action for task in bmcs.devices["d"].begun)["install"] == 2


async def test_an_attempt_goes_on_only_once_the_fold_shows_its_progress() -> None:
    """A successor must know what a device was asked, also if an append got lost."""
    shown: list[str] = []

    class Asking:
        async def run(self, attempt: Attempt) -> dict[str, str]:
            made.log.failures.late_s[made.partition("z1")] = 4.0
            await attempt.report_progress(f"asked in {attempt.dpu.phase}", 0)
            shown.append(made.dpu("d").task)
            return {}

    async with plane() as made:
        await made.add("p1")
        executors = dict.fromkeys(device_executors(devices(made).connect), Asking())
        found = Provisioner(made.replicas["p1"], made.ranks("p1"), executors, now_ms=made.now_ms, rng=made.rng())
        made.spawn("p1", found.run())
        await made.register("d")
        await made.request("d", "provision", "image-1")
        await made.until(lambda: made.dpu("d").phase == READY, timeout_s=600)
    assert shown == [f"asked in {phase}" for phase in PROVISIONING] and found.internal_events.failures == len(shown)
