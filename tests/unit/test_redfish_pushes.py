"""Firmware is pushed to a BMC that takes none by URL, or failed to, once, whatever is lost."""

from __future__ import annotations

import asyncio
from random import Random

import msgspec
import pytest

from deploy.clock import utc_now
from drivers.backends.bmc import Unreachable
from drivers.provisioning.attempts import AttemptSuperseded
from drivers.redfish.firmware_moves import firmware_text, has_pull_failed, is_pushed, logged_firmware
from drivers.redfish.pushes import UpdateService, is_to_be_pushed
from drivers.redfish.update_moves import Asked, Started
from drivers.simulators.redfish.bmc import RedfishBmc
from drivers.simulators.redfish.card import BUNDLE
from drivers.simulators.redfish.faults import Outcome, RequestFault
from drivers.simulators.redfish.identity import BLUEFIELD_3, BLUEFIELD_4, Generation, Identity
from projections.zones.dpus.phases import CONFIG_FIRMWARE, INITIALIZE_INTERFACE
from tests.support.redfish_steps import (
    FAST,
    FAST_TIMING,
    FIRMWARE,
    SERIAL,
    Nth,
    Steps,
    direct_steps,
    firmware,
    served_steps,
)

PACKAGE = firmware("http://images/bmc.fwpkg", FIRMWARE)
CALL_S = 60.0
"""Longest time of a call, on a loaded machine."""
CALLS_MAX = 200
"""More calls and chunks than an update has."""
SERVICE = "/redfish/v1/UpdateService"
GENERATIONS = pytest.mark.parametrize("generation", [BLUEFIELD_3, BLUEFIELD_4], ids=["bluefield-3", "bluefield-4"])
PUSHED_TO = {BLUEFIELD_3: SERVICE, BLUEFIELD_4: f"{SERVICE}/update-multipart"}


async def prepared(generation: Generation, seed: int = 1) -> Steps:
    """A DPU before the update of the firmware of its BMC, which takes none by URL."""
    dpu = direct_steps(seed, generation=generation)
    dpu.bmc.card.pulls = False
    await dpu.do(INITIALIZE_INTERFACE)
    dpu.firmware = {"": PACKAGE}
    dpu.enter(CONFIG_FIRMWARE)
    dpu.bmc.requests.clear()
    return dpu


def version(dpu: Steps) -> str:
    return dpu.bmc.card.firmware[dpu.bmc.identity.bmc_firmware]


@pytest.mark.virtual_clock
@GENERATIONS
async def test_firmware_is_pushed_once_to_a_bmc_that_takes_none_by_url(generation: Generation) -> None:
    dpu = await prepared(generation)
    await dpu.run()
    assert (version(dpu), dpu.bmc.restarts) == (FIRMWARE, 1)
    assert (dpu.updates, dpu.pushes) == (0, [PUSHED_TO[generation]])
    assert dpu.progress[0][0] == "pushed firmware: update asked by attempt 12 after tasks none"
    dpu.enter(CONFIG_FIRMWARE)
    await dpu.run()
    assert len(dpu.pushes) == 1


@pytest.mark.virtual_clock
@GENERATIONS
@pytest.mark.parametrize("kind", ["cut", "mute"])
async def test_every_request_may_be_lost_and_no_push_is_repeated_that_has_arrived(
    generation: Generation, kind: RequestFault
) -> None:
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
        assert (len(dpu.pushes), dpu.bmc.restarts) == (1, 1)
        if faults.number > 0:
            return
    pytest.fail("the update takes more requests than expected")


@pytest.mark.virtual_clock
@GENERATIONS
async def test_after_a_failed_update_by_url_firmware_is_pushed_and_after_a_failed_push_fetched(
    generation: Generation,
) -> None:
    dpu = await prepared(generation)
    dpu.bmc.card.pulls = True
    dpu.bmc.card.outcomes.planned += [Outcome("fail"), Outcome("fail")]
    for counts in ((1, 0), (1, 1)):
        with pytest.raises(Exception, match=r"^firmware: task \d failed"):
            await dpu.run()
        assert (dpu.updates, len(dpu.pushes)) == counts
    await dpu.run()
    assert (dpu.updates, len(dpu.pushes), version(dpu)) == (2, 1, FIRMWARE)


@GENERATIONS
async def test_a_package_arrives_whole_over_https(generation: Generation) -> None:
    bmc = RedfishBmc(Identity(SERIAL, generation=generation), now=utc_now, rng=Random(1), durations=FAST)
    bmc.card.pulls = False
    async with served_steps(bmc) as dpu:
        dpu.timing = FAST_TIMING._replace(call_s=CALL_S)
        await dpu.do(INITIALIZE_INTERFACE)
        dpu.firmware = {"": PACKAGE}
        facts = await dpu.do(CONFIG_FIRMWARE)
        assert facts["bmc_version"] == version(dpu) == FIRMWARE
        assert dpu.pushes == [PUSHED_TO[generation]]
        assert BUNDLE not in bmc.card.firmware


async def test_an_attempt_may_end_at_any_chunk_and_the_bmc_gets_the_package_once() -> None:
    identity = Identity(SERIAL, generation=BLUEFIELD_4)
    bmc = RedfishBmc(identity, now=utc_now, rng=Random(1), durations=FAST)
    bmc.card.pulls = False
    async with served_steps(bmc) as dpu:
        dpu.timing = FAST_TIMING._replace(call_s=CALL_S)
        await dpu.do(INITIALIZE_INTERFACE)
        dpu.firmware = {"": PACKAGE}
        dpu.enter(CONFIG_FIRMWARE)
        for calls in range(1, CALLS_MAX):
            try:
                await dpu.run(stop_after=calls)
                break
            except (AttemptSuperseded, Unreachable):  # the BMC may still restart, as an earlier attempt asked
                assert len(dpu.pushes) <= 1
                bmc.accounts.sessions.clear()  # of logins that ended before they could end others
        assert (version(dpu), len(dpu.pushes)) == (FIRMWARE, 1)


# -- the choice


def service(text: str) -> UpdateService:
    return msgspec.json.decode(text, type=UpdateService)


PUSH = '"MultipartHttpPushUri": "/m"'


@pytest.mark.parametrize(
    ("shown", "failed", "pushed"),
    [
        ("{}", False, False),
        ("{}", True, False),
        ('{"Actions": {}}', False, False),
        (f"{{{PUSH}}}", False, False),
        (f"{{{PUSH}}}", True, True),
        (f'{{{PUSH}, "Actions": {{}}}}', False, True),
        (f'{{{PUSH}, "Actions": {{"#UpdateService.SimpleUpdate": {{}}}}}}', False, False),
        (
            f'{{{PUSH}, "Actions": {{"#UpdateService.SimpleUpdate":'
            ' {"TransferProtocol@Redfish.AllowableValues": ["SCP"]}}}',
            False,
            True,
        ),
        ('{"HttpPushUri": "/h", "Actions": {}}', False, True),
    ],
)
def test_what_a_bmc_offers_decides(shown: str, failed: bool, pushed: bool) -> None:
    assert is_to_be_pushed(service(shown), "https", has_pull_failed=failed) is pushed


def test_the_log_says_whether_an_update_was_pushed_and_whether_one_by_url_failed() -> None:
    started = Started("5", 3)
    for pushed in (False, True):
        text = firmware_text(started, is_pushed=pushed)
        assert logged_firmware(text) == started
        assert is_pushed(text) is pushed
        assert has_pull_failed(text, 3) is not pushed
        assert not has_pull_failed(text, 2)
    assert not has_pull_failed(firmware_text(Asked(3, ())), 3)
