"""A BlueField-4 that can keep its media gets them first, each once, whatever is lost; then it boots them once."""

from __future__ import annotations

import asyncio

import pytest

from drivers.backends.bmc import SessionEnded, TaskFailed, Unreachable
from drivers.redfish.installer import Wanted
from drivers.redfish.media_moves import BootAsked
from drivers.redfish.media_staging_moves import (
    CONFIG,
    ENTRIES,
    FILES,
    IMAGE,
    MediaPart,
    MediaStagingDone,
    MediaStagingFailed,
    MediaStagingMove,
    MediaStagingOrder,
    MediaStagingWait,
    SeenMediaStaging,
    SendUpdate,
    logged_media_staging,
    next_media_staging_move,
)
from drivers.redfish.update_moves import SETTLE_S, Asked, SeenTask, Started, TaskState
from drivers.simulators.redfish.faults import Outcome, RequestFault
from drivers.simulators.redfish.identity import BLUEFIELD_4_MEDIA_STAGING, MEDIA_FILES
from projections.zones.dpus.phases import INITIALIZE_INTERFACE, OS_INSTALLING, PREPARE_IMAGE
from tests.support.redfish_steps import SIMPLE_UPDATE, Nth, Steps, direct_steps

OS = "DOCA_2.9.3_BSP_4.9.0"
INSERT = "VirtualMedia.InsertMedia"


async def prepared(seed: int = 1) -> Steps:
    """A DPU before the installation of its image, whose version is known."""
    dpu = direct_steps(seed, generation=BLUEFIELD_4_MEDIA_STAGING)
    for phase in (INITIALIZE_INTERFACE, PREPARE_IMAGE):
        await dpu.do(phase)
    dpu.wanted = Wanted(versions={"DPU_OS": OS})
    dpu.enter(OS_INSTALLING)
    dpu.bmc.requests.clear()
    return dpu


def is_installed(dpu: Steps) -> bool:
    """Whether the DPU has been installed once, and nothing is left that would install it again."""
    card = dpu.bmc.card
    is_left = any(media.image for media in card.media.values()) or card.boot_target != "None"
    return (card.os, card.media_boots, is_left) == (OS, 1, False)


def test_the_simulated_bmc_has_the_entries_and_files_of_the_plane() -> None:
    assert {ENTRIES[part]: FILES[part] for part in ENTRIES} == MEDIA_FILES


@pytest.mark.virtual_clock
async def test_the_media_are_staged_and_then_booted() -> None:
    dpu = await prepared()
    await dpu.run()
    assert is_installed(dpu)
    posts = [path.rpartition("/")[2] for method, path in dpu.bmc.requests if method == "POST"]
    expected = [SIMPLE_UPDATE] * 2 + [INSERT] * 2 + ["NvidiaChassis.Reset"] + ["VirtualMedia.EjectMedia"] * 2
    assert [each for each in posts if each != "Sessions"] == expected
    percents = [percent for _, percent in dpu.progress]
    assert percents == sorted(percents)
    texts = list(dict.fromkeys(text for text, _ in dpu.progress))
    assert texts[:4] == [
        "image: update asked by attempt 13 after tasks none",
        "image: 0 of attempt 13",
        "config: update asked by attempt 13 after tasks 0",
        "config: 1 of attempt 13",
    ]
    assert [text.rpartition(" after boot ")[0] for text in texts[4:]] == ["boot of media asked by attempt 13"]


@pytest.mark.virtual_clock
@pytest.mark.parametrize("kind", ["cut", "mute"])
async def test_every_request_may_be_lost_and_each_medium_is_staged_once(kind: RequestFault) -> None:
    """The n-th request of an installation gets no answer, for every n until all have been lost once."""
    for number in range(1, 400):
        dpu = await prepared(number)
        faults = dpu.bmc.faults = Nth(dpu.bmc.faults.rng, number=number, kind=kind)
        try:
            await dpu.run()
        except Unreachable:
            await dpu.run()
        assert is_installed(dpu)
        assert len(dpu.bmc.tasks.by_id) == 2, "a lost answer is found in the tasks"
        if faults.number > 0:
            return
    pytest.fail("the installation takes more requests than expected")


@pytest.mark.virtual_clock
async def test_a_bmc_that_restarts_while_it_stages_an_image_gets_it_again() -> None:
    dpu = await prepared()

    def restart(task: str) -> None:
        if not dpu.bmc.restarts and logged_media_staging(task) == MediaPart(IMAGE, Started("0", 13)):
            dpu.bmc.restart()

    with pytest.raises(SessionEnded):  # a restart ends all sessions
        await dpu.run(on_progress=restart)
    assert dpu.bmc.restarts == 1
    await asyncio.sleep(10.0)
    await dpu.run()
    assert is_installed(dpu)
    assert dpu.updates == 3


@pytest.mark.virtual_clock
@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (Outcome("fail"), "^task: 0, which stages the image, failed: .*writing the flash failed"),
        (Outcome("lie"), "^device: bmc/redfish/v1/Managers/BMC_0/VirtualMedia/IMAGE/Actions.* refused the request"),
    ],
)
async def test_a_failed_staging_fails_the_step_before_the_restart_and_is_repeated(
    outcome: Outcome, message: str
) -> None:
    dpu = await prepared()
    dpu.bmc.card.media_staging_outcomes.planned.append(outcome)
    with pytest.raises(TaskFailed, match=message):
        await dpu.run()
    assert dpu.bmc.card.media_boots == 0
    await dpu.run()
    assert is_installed(dpu)


@pytest.mark.virtual_clock
async def test_an_image_without_a_configuration_is_staged_alone() -> None:
    dpu = await prepared()
    dpu.seed_url = ""
    await dpu.run()
    assert is_installed(dpu)
    assert dpu.updates == 1


@pytest.mark.virtual_clock
async def test_a_bmc_that_keeps_no_configuration_streams_both_media() -> None:
    dpu = await prepared()
    del dpu.bmc.card.firmware[ENTRIES[CONFIG]]
    await dpu.run()
    assert is_installed(dpu)
    assert dpu.updates == 0


# -- the moves

ORDER = MediaStagingOrder({IMAGE: "i", CONFIG: "c"}, 12, 10)


def seen(*states: TaskState, quiet_s: float = 0.0, target: str = "") -> SeenMediaStaging:
    """A BMC with tasks in these states, whose ids are their numbers."""
    tasks = [SeenTask(str(number), state, 40, "", target, True) for number, state in enumerate(states)]
    return SeenMediaStaging(tuple(tasks), quiet_s)


def image(update: Asked | Started) -> MediaPart:
    return MediaPart(IMAGE, update)


BUSY = MediaStagingFailed("transient", "device: another update is in progress (task 0, 40 %)")
FORGOTTEN = MediaStagingFailed("device", "task: the BMC no longer knows task 7, which stages the image")


@pytest.mark.parametrize(
    ("logged", "found", "move"),
    [
        (None, seen(), SendUpdate(IMAGE, ())),
        (None, seen("completed"), SendUpdate(IMAGE, ("0",))),
        (None, seen("running"), BUSY),
        (image(Asked(11, ())), seen(), SendUpdate(IMAGE, ())),
        (image(Asked(11, ())), seen("running"), MediaStagingWait(image(Started("0", 11)), 40)),
        (image(Asked(11, ())), seen("running", target="another"), BUSY),
        (image(Asked(11, ("0",))), seen("running"), BUSY),
        (image(Started("0", 11)), seen("completed"), SendUpdate(CONFIG, ("0",))),
        (image(Started("0", 10)), seen("completed"), SendUpdate(IMAGE, ("0",))),
        (image(Started("7", 11)), seen(), SendUpdate(IMAGE, ())),
        (image(Started("7", 12)), seen(), MediaStagingWait(image(Started("7", 12)))),
        (image(Started("7", 12)), seen(quiet_s=SETTLE_S), FORGOTTEN),
        (MediaPart(CONFIG, Started("1", 11)), seen("completed", "completed"), MediaStagingDone()),
        (MediaPart(CONFIG, Started("1", 11)), seen("completed"), SendUpdate(CONFIG, ("0",))),
    ],
)
def test_the_next_move_follows_from_the_log_and_the_tasks(
    logged: MediaPart | None, found: SeenMediaStaging, move: MediaStagingMove
) -> None:
    assert next_media_staging_move(ORDER, logged, found) == move


@pytest.mark.parametrize("update", [Asked(3, ("1", "2")), Asked(3, ()), Started("5", 3)])
@pytest.mark.parametrize("part", [IMAGE, CONFIG])
def test_the_text_of_an_event_is_read_back(part: str, update: Asked | Started) -> None:
    assert logged_media_staging(MediaPart(part, update).text()) == MediaPart(part, update)


@pytest.mark.parametrize("text", ["", BootAsked(3, "x").text(), Started("5", 3).text(), "firmware: 5 of attempt 3"])
def test_the_text_of_another_event_is_none_of_a_staging(text: str) -> None:
    assert logged_media_staging(text) is None
