"""Firmware of a BMC is sent once, never when the BMC has it, and its restart is waited for, whatever is lost."""

from __future__ import annotations

import asyncio

import pytest

from drivers.backends.bmc import NeedsOperator, SessionEnded, TaskFailed, Unreachable
from drivers.redfish.firmware_moves import (
    Activate,
    Current,
    FirmwareFailed,
    FirmwareLogged,
    FirmwareMove,
    FirmwareOrder,
    FirmwareWait,
    RestartAsked,
    SeenFirmware,
    SubmitFirmware,
    firmware_text,
    logged_firmware,
    next_firmware_move,
)
from drivers.redfish.update_moves import SETTLE_S, Asked, SeenTask, Started
from drivers.simulators.redfish.faults import Outcome, RequestFault
from drivers.simulators.redfish.identity import BLUEFIELD_3, BLUEFIELD_4, Generation
from projections.zones.dpus.phases import CONFIG_FIRMWARE, INITIALIZE_INTERFACE
from tests.support.redfish_steps import FIRMWARE, Nth, Steps, direct_steps, firmware

URL = "http://images/bmc.fwpkg"
PACKAGE = firmware(URL, FIRMWARE, "4.9.0")
GENERATIONS = pytest.mark.parametrize("generation", [BLUEFIELD_3, BLUEFIELD_4], ids=["bluefield-3", "bluefield-4"])


async def prepared(generation: Generation, seed: int = 1) -> Steps:
    """A DPU before the phase in which the firmware of its BMC is updated."""
    dpu = direct_steps(seed, generation=generation)
    await dpu.do(INITIALIZE_INTERFACE)
    dpu.firmware = {"": PACKAGE}
    dpu.enter(CONFIG_FIRMWARE)
    dpu.bmc.requests.clear()
    return dpu


def version(dpu: Steps) -> str:
    return dpu.bmc.card.firmware[dpu.bmc.identity.bmc_firmware]


@pytest.mark.virtual_clock
@GENERATIONS
async def test_firmware_is_updated_once_and_not_sent_to_a_bmc_that_has_it(generation: Generation) -> None:
    dpu = await prepared(generation)
    facts = await dpu.run()
    assert facts["bmc_version"] == version(dpu) == FIRMWARE
    assert (dpu.updates, dpu.bmc.restarts) == (1, 1)
    assert dpu.bmc.is_up
    assert dpu.bmc.accounts.sessions == {}
    dpu.enter(CONFIG_FIRMWARE)
    await dpu.run()
    assert (dpu.updates, dpu.bmc.restarts) == (1, 1)


@pytest.mark.virtual_clock
@GENERATIONS
@pytest.mark.parametrize("kind", ["cut", "mute"])
async def test_every_request_may_be_lost_and_no_update_begins_twice(generation: Generation, kind: RequestFault) -> None:
    for number in range(1, 200):
        dpu = await prepared(generation, number)
        faults = dpu.bmc.faults = Nth(dpu.bmc.faults.rng, number=number, kind=kind)
        for _ in range(3):
            try:
                await dpu.run()
                break
            except Unreachable:
                await asyncio.sleep(10.0)
        assert version(dpu) == FIRMWARE
        assert len([1 for task in dpu.bmc.tasks.by_id.values() if "SimpleUpdate" in task.started_by.path]) <= 1
        assert dpu.bmc.restarts == 1
        if faults.number > 0:
            return
    pytest.fail("the update takes more requests than expected")


@pytest.mark.virtual_clock
@GENERATIONS
async def test_a_bmc_that_restarts_in_its_update_is_updated_by_the_next_attempt(generation: Generation) -> None:
    dpu = await prepared(generation)

    def restart(task: str) -> None:
        if "of attempt" in task and not dpu.bmc.restarts:
            dpu.bmc.restart()

    for _ in range(3):
        try:
            await dpu.run(on_progress=restart)
            break
        except (Unreachable, SessionEnded, TaskFailed):
            await asyncio.sleep(10.0)
    assert (version(dpu), dpu.updates + len(dpu.pushes)) == (FIRMWARE, 2)


@pytest.mark.virtual_clock
@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (Outcome("lie"), rf"^firmware: after its restart the BMC has factory.*, not one of 4\.9\.0, {FIRMWARE}"),
        (Outcome("fail"), r"^firmware: task 0 failed: .*writing the flash failed"),
    ],
)
async def test_a_failed_update_is_told_and_repeated(outcome: Outcome, message: str) -> None:
    dpu = await prepared(BLUEFIELD_3)
    dpu.bmc.card.outcomes.planned.append(outcome)
    with pytest.raises(TaskFailed, match=message):
        await dpu.run()
    await dpu.run()
    assert (version(dpu), dpu.updates + len(dpu.pushes)) == (FIRMWARE, 2)


@pytest.mark.virtual_clock
async def test_a_package_is_that_of_the_card_and_has_versions() -> None:
    dpu = await prepared(BLUEFIELD_4)
    dpu.firmware = {"MT_other": PACKAGE}
    with pytest.raises(
        NeedsOperator, match=r"^pldmFwBundle: it has no firmware for a card with the PSID 'MT_0000000884'"
    ):
        await dpu.run()
    dpu.firmware = {"mt_0000000884": PACKAGE._replace(versions=frozenset())}
    with pytest.raises(NeedsOperator, match=r"^firmware: pldmFwBundle is not a package of PLDM"):
        await dpu.run()
    assert dpu.updates == 0
    dpu.firmware = {"mt_0000000884": PACKAGE}
    await dpu.run()
    assert version(dpu) == FIRMWARE


# -- the moves

ORDER = FirmwareOrder(frozenset({"2"}), "target", 12, 10)
OTHER = SeenTask("7", "running", 40, "", "other", True)


def seen(*tasks: SeenTask, version: str = "1", pending: str = "", quiet_s: float = 0.0) -> SeenFirmware:
    return SeenFirmware(tasks, version, pending, quiet_s)


def own(state: str) -> SeenTask:
    return SeenTask("8", state, 30, "", "target", True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("logged", "found", "move"),
    [
        (None, seen(version="2"), Current()),
        (None, seen(), SubmitFirmware(())),
        (None, seen(pending="2"), Activate()),
        (None, seen(pending="9"), SubmitFirmware(())),
        (Asked(11, ("7",)), seen(OTHER, own("running")), FirmwareWait(30, Started("8", 11))),
        (Asked(11, ()), seen(), SubmitFirmware(())),
        (Asked(12, ()), seen(), FirmwareWait()),
        (Asked(10, ()), seen(own("completed")), SubmitFirmware(("8",))),
        (Started("8", 11), seen(own("completed")), Activate()),
        (Started("8", 11), seen(), FirmwareWait()),
        (RestartAsked(12), seen(pending="2"), FirmwareWait(100)),
        (RestartAsked(11), seen(pending="2", quiet_s=SETTLE_S), Activate()),
    ],
)
def test_the_next_move_follows_from_the_log_and_from_what_was_read(
    logged: FirmwareLogged, found: SeenFirmware, move: FirmwareMove
) -> None:
    assert next_firmware_move(ORDER, logged, found) == move


@pytest.mark.parametrize(
    ("logged", "found", "kind", "message"),
    [
        (None, seen(OTHER), "transient", "another update is in progress (task 7, 40 %)"),
        (Started("8", 11), seen(own("failed")), "device", "task 8 failed: the BMC gave no reason"),
        (Started("8", 11), seen(quiet_s=SETTLE_S), "device", "the BMC no longer knows task 8, and has 1"),
        (Asked(12, ()), seen(quiet_s=SETTLE_S), "device", "the BMC no longer knows the task of the update, and has 1"),
        (
            RestartAsked(12),
            seen(pending="2", quiet_s=SETTLE_S),
            "device",
            "after its restart the BMC has 1, not one of 2",
        ),
    ],
)
def test_what_cannot_continue_is_a_failure(
    logged: FirmwareLogged, found: SeenFirmware, kind: str, message: str
) -> None:
    move = next_firmware_move(ORDER, logged, found)
    assert isinstance(move, FirmwareFailed)
    assert (move.kind, message in move.message) == (kind, True)


def test_what_the_log_says_is_read_again_and_is_not_that_of_an_installation() -> None:
    for logged in (Asked(3, ("a", "b")), Started("8", 3), RestartAsked(3)):
        assert logged_firmware(firmware_text(logged)) == logged
        assert logged_firmware(logged.text()) is None
