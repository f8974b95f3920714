"""A BlueField-4 is installed from virtual media once, whatever is lost, and its media are removed at the end."""

from __future__ import annotations

import asyncio

import pytest

from drivers.backends.bmc import NeedsOperator, TaskFailed, Unreachable
from drivers.redfish.installer import Wanted
from drivers.redfish.media_moves import (
    INSTALL_S,
    RESTART_SHOWN_S,
    Boot,
    BootAsked,
    Eject,
    Insert,
    Installed,
    MediaFailed,
    MediaMove,
    MediaOrder,
    MediaWait,
    Override,
    SeenMedia,
    Slot,
    logged_boot,
    next_media_move,
)
from drivers.redfish.settings import Wants
from drivers.redfish.update_moves import SETTLE_S, mark_of
from drivers.simulators.redfish.accounts import FACTORY_PASSWORD
from drivers.simulators.redfish.faults import Outcome, RequestFault
from drivers.simulators.redfish.identity import BLUEFIELD_4
from projections.zones.dpus.phases import (
    CONFIG_FIRMWARE,
    DPU_CONFIG,
    INITIALIZE_INTERFACE,
    OS_INSTALLING,
    PREPARE_IMAGE,
)
from tests.support.redfish_steps import PASSWORD, SERIAL, Nth, Steps, direct_steps

OS = "DOCA_2.9.3_BSP_4.9.0"
VERSIONS = {"DPU_OS": OS}
URL = "http://images/os.iso"
INSERT = "VirtualMedia.InsertMedia"


async def prepared(seed: int = 1) -> Steps:
    """A DPU before the installation of its image, whose version is known."""
    dpu = direct_steps(seed, generation=BLUEFIELD_4)
    for phase in (INITIALIZE_INTERFACE, PREPARE_IMAGE):
        await dpu.do(phase)
    dpu.wanted = Wanted(versions=VERSIONS)
    dpu.enter(OS_INSTALLING)
    dpu.bmc.requests.clear()
    return dpu


def is_installed(dpu: Steps) -> bool:
    """Whether the DPU has been installed once, and nothing is left that would install it again."""
    card = dpu.bmc.card
    is_left = any(media.image for media in card.media.values()) or card.boot_target != "None"
    return (card.os, card.media_boots, is_left) == (OS, 1, False)


@pytest.mark.virtual_clock
async def test_a_dpu_is_installed_from_its_factory_state() -> None:
    dpu = direct_steps(generation=BLUEFIELD_4)
    dpu.wanted = Wanted(Wants(secure_boot=False, is_zero_trust=True), VERSIONS)
    for phase in (INITIALIZE_INTERFACE, CONFIG_FIRMWARE, PREPARE_IMAGE, OS_INSTALLING):
        facts = await dpu.do(phase)
    assert await dpu.do(DPU_CONFIG) == {}
    assert dpu.bmc.accounts.users["admin"].password == PASSWORD != FACTORY_PASSWORD
    card = dpu.bmc.card
    assert (card.secure_boot, card.pending_privilege, card.host_rshim) == (False, "Restricted", False)
    assert (facts["serial"], facts["os_version"]) == (SERIAL, OS)
    assert facts["bmc_version"] == card.firmware["BlueField_FW_BMC_0"]
    assert is_installed(dpu)
    assert dpu.updates == 0
    assert dpu.bmc.accounts.sessions == {}


@pytest.mark.virtual_clock
@pytest.mark.parametrize("kind", ["cut", "mute"])
async def test_every_request_may_be_lost_and_the_media_are_booted_once(kind: RequestFault) -> None:
    """The n-th request of an installation gets no answer, for every n until all have been lost once."""
    for number in range(1, 400):
        dpu = await prepared(number)
        faults = dpu.bmc.faults = Nth(dpu.bmc.faults.rng, number=number, kind=kind)
        try:
            await dpu.run()
        except Unreachable:
            await dpu.run()
        assert is_installed(dpu)
        if faults.number > 0:
            return
    pytest.fail("the installation takes more requests than expected")


@pytest.mark.virtual_clock
async def test_the_answer_of_an_insertion_may_be_lost() -> None:
    dpu = await prepared()
    dpu.bmc.faults.plan("mute", method="POST", within=INSERT)
    with pytest.raises(Unreachable):
        await dpu.run()
    assert dpu.bmc.card.media["IMAGE"].image
    await dpu.run()
    assert is_installed(dpu)


@pytest.mark.virtual_clock
async def test_media_of_a_former_attempt_are_replaced() -> None:
    dpu = await prepared()
    dpu.bmc.card.media["IMAGE"].image = "http://images/expired.iso"
    dpu.bmc.card.media["CONFIG"].image = "http://images/expired-seed.iso"
    await dpu.run()
    assert is_installed(dpu)
    actions = [
        path.rpartition("/Managers/BMC_0/VirtualMedia/")[2] for method, path in dpu.bmc.requests if method == "POST"
    ]
    ejected = [path for path in actions if path.endswith("EjectMedia")]
    assert [path.partition("/")[0] for path in ejected] == ["IMAGE", "CONFIG", "IMAGE", "CONFIG"]


@pytest.mark.virtual_clock
async def test_a_bmc_that_ignores_a_medium_fails_the_step_before_the_restart() -> None:
    dpu = await prepared()
    dpu.bmc.faults.plan("ignore", method="POST", within=INSERT)
    with pytest.raises(TaskFailed, match=r"^media: the BMC accepted a medium for image, and it is not inserted"):
        await dpu.run()
    assert dpu.bmc.card.media_boots == 0
    await dpu.run()
    assert is_installed(dpu)


@pytest.mark.virtual_clock
async def test_a_bmc_that_restarts_before_the_boot_has_lost_the_media_and_gets_them_again() -> None:
    dpu = await prepared()

    def restart(task: str) -> None:
        if not dpu.bmc.restarts:
            dpu.bmc.restart()

    with pytest.raises(Unreachable):
        await dpu.run(on_progress=restart)
    assert dpu.bmc.card.media_boots == 0
    await asyncio.sleep(10.0)
    await dpu.run()
    assert is_installed(dpu)


@pytest.mark.virtual_clock
@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (
            Outcome("lie"),
            f"image: after the boot of the media the DPU has DPU_OS factory.*, but the image has DPU_OS {OS}",
        ),
        (Outcome("fail"), "image: the operating system does not run after the boot of the media.*writing the flash"),
    ],
)
async def test_a_failed_installation_removes_its_media_and_is_repeated(outcome: Outcome, message: str) -> None:
    dpu = await prepared()
    dpu.bmc.card.outcomes.planned.append(outcome)
    with pytest.raises(TaskFailed, match=message):
        await dpu.run()
    assert not any(media.image for media in dpu.bmc.card.media.values())
    await dpu.run()
    assert dpu.bmc.card.os == OS


@pytest.mark.virtual_clock
async def test_an_image_of_unknown_version_is_proved_by_a_second_boot() -> None:
    dpu = await prepared()
    dpu.wanted = Wanted()
    await dpu.run()
    assert is_installed(dpu)


@pytest.mark.virtual_clock
async def test_a_bmc_without_a_second_slot_cannot_bring_a_configuration() -> None:
    dpu = await prepared()
    del dpu.bmc.card.media["CONFIG"]
    with pytest.raises(NeedsOperator, match=r"^media: bmc has no slot for the config of the installation"):
        await dpu.run()


# -- the moves

ORDER = MediaOrder({"image": URL}, 12, 10, {"DPU_OS": "2"}, {"DPU_OS": "1"})
EMPTY, FULL = Slot("/slot"), Slot("/slot", is_inserted=True, image=URL)
ASKED = BootAsked(11, "boot-1")


def seen(
    slot: Slot = EMPTY, boot: str = "boot-2", os: str = "2", quiet_s: float = 0.0, boots: int = 0, **more: bool
) -> SeenMedia:
    is_up = more.get("is_up", True)
    versions = {"DPU_OS": os} if is_up else {}
    return SeenMedia({"image": slot}, more.get("is_overridden", False), boot, is_up, versions, quiet_s, boots)


def test_the_moves_before_the_boot_follow_from_what_was_read() -> None:
    insert = Insert("image", URL)
    moves: list[MediaMove] = []
    for slot, is_overridden in ((FULL, False), (EMPTY, False), (FULL, False), (FULL, True)):
        moves.append(next_media_move(ORDER, None, seen(slot, is_overridden=is_overridden), set(moves)))
    boot = BootAsked(12, mark_of("boot-2"))
    assert moves == [Eject("image"), insert, Override(), Boot(boot)]
    assert logged_boot(BootAsked(12, "x").text()) == BootAsked(12, "x")
    assert logged_boot("update asked by attempt 3 after task 1") is None


@pytest.mark.parametrize(
    ("logged", "found", "sent", "message"),
    [
        (None, seen(FULL), {Eject("image")}, "media: the BMC accepted to eject the medium of image"),
        (None, seen(FULL), {Insert("image", URL), Override()}, "media: the BMC accepted a boot from media"),
        (
            None,
            seen(Slot("/s", True, "http://x/y")),
            {Insert("image", URL)},
            "media: the BMC has another medium in image",
        ),
        (BootAsked(12, "boot-1"), seen(boot="boot-1", quiet_s=RESTART_SHOWN_S), set(), "did not restart"),
        (ASKED, seen(is_up=False, quiet_s=INSTALL_S), set(), "the operating system does not run after the boot"),
        (ASKED, seen(is_overridden=True, quiet_s=SETTLE_S), set(), "has restarted without booting its media"),
        (ASKED, seen(os="1", quiet_s=SETTLE_S), set(), "the DPU has DPU_OS 1, but the image has DPU_OS 2"),
    ],
)
def test_what_a_bmc_accepts_and_does_not_do_is_a_failure(
    logged: BootAsked | None, found: SeenMedia, sent: set[MediaMove], message: str
) -> None:
    move = next_media_move(ORDER, logged, found, sent)
    assert isinstance(move, MediaFailed)
    assert message in move.message


def test_a_restart_that_did_not_arrive_is_asked_for_again_by_a_later_attempt_only() -> None:
    waits = next_media_move(ORDER, ASKED, seen(boot="boot-1"), set())
    assert waits == MediaWait()
    assert next_media_move(ORDER, ASKED, seen(boot="boot-1", quiet_s=RESTART_SHOWN_S), set()) == Insert("image", URL)


def test_the_installation_of_a_failed_attempt_is_not_adopted() -> None:
    assert next_media_move(ORDER, BootAsked(10, "boot-1"), seen(), set()) == Insert("image", URL)


def test_a_system_that_may_be_the_installer_is_not_the_installed_one() -> None:
    again = ORDER._replace(before={"DPU_OS": "2"})
    assert next_media_move(ORDER, ASKED, seen(), set()) == Installed()
    assert isinstance(next_media_move(again, ASKED, seen(), set()), MediaWait)
    for proof in (seen(boots=2), seen(quiet_s=SETTLE_S)):
        assert next_media_move(again, ASKED, proof, set()) == Installed()


def test_a_bmc_that_reports_no_boots_shows_one_by_the_override() -> None:
    assert isinstance(next_media_move(ORDER, ASKED, seen(boot="", is_overridden=True), set()), MediaWait)
    assert next_media_move(ORDER, ASKED, seen(boot=""), set()) == Installed()
