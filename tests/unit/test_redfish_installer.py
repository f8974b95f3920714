"""The installer on a BMC on a virtual clock: every request may be lost, attempts end anywhere, and BMCs lie."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from drivers.backends.bmc import NeedsOperator, SessionEnded, TaskFailed, Unreachable
from drivers.provisioning.attempts import AttemptSuperseded
from drivers.redfish.client import Answer
from drivers.redfish.installer import Wanted
from drivers.redfish.settings import Wants
from drivers.simulators.redfish.accounts import FACTORY_PASSWORD, Account
from drivers.simulators.redfish.faults import Outcome, RequestFault
from drivers.simulators.redfish.messages import Request
from projections.zones.dpus.phases import (
    CONFIG_FIRMWARE,
    DPU_CONFIG,
    INITIALIZE_INTERFACE,
    NODE_EFFECT,
    OS_INSTALLING,
    PREPARE_IMAGE,
    REBOOTING,
)
from tests.support.redfish_steps import PASSWORD, SERIAL, SIMPLE_UPDATE, DirectClient, Nth, Steps, direct_steps
from tests.support.virtual_loop import run_virtual

pytestmark = pytest.mark.virtual_clock

OS = "DOCA_2.9.3_BSP_4.9.0"
VERSIONS = {"DPU_BSP": "4.9.0"}


async def prepared(seed: int = 1) -> Steps:
    """A DPU before the installation of its image, whose versions are known."""
    dpu = direct_steps(seed)
    for phase in (INITIALIZE_INTERFACE, CONFIG_FIRMWARE, PREPARE_IMAGE):
        await dpu.do(phase)
    dpu.wanted = Wanted(versions=VERSIONS)
    dpu.enter(OS_INSTALLING)
    dpu.bmc.requests.clear()
    return dpu


def started(dpu: Steps) -> int:
    """The number of updates that the BMC has begun."""
    return sum(line.text == "DPU OS installation started" for line in dpu.bmc.card.log)


async def test_the_preparation_of_an_image_asks_nothing_of_the_bmc() -> None:
    dpu = direct_steps()
    facts = {**await dpu.do(INITIALIZE_INTERFACE)}
    asked = len(dpu.bmc.requests)
    dpu.bmc.faults.plan("cut")
    assert await dpu.do(PREPARE_IMAGE) == {}
    assert len(dpu.bmc.requests) == asked
    assert dpu.dpu.facts.items() >= facts.items()
    dpu.url = ""
    with pytest.raises(NeedsOperator, match=r"^image: there is no file for"):
        await dpu.do(PREPARE_IMAGE)


async def test_the_service_root_is_asked_for_by_the_path_that_no_bmc_redirects() -> None:
    dpu = direct_steps()
    await dpu.do(INITIALIZE_INTERFACE)
    assert dpu.bmc.requests[0] == ("GET", "/redfish/v1/")


async def test_a_dpu_is_installed_from_its_factory_state() -> None:
    dpu = direct_steps()
    dpu.wanted = Wanted(Wants(secure_boot=False, is_zero_trust=True), VERSIONS)
    dpu.bmc.card.bmc_rshim = False
    for phase in (INITIALIZE_INTERFACE, CONFIG_FIRMWARE, PREPARE_IMAGE, OS_INSTALLING):
        facts = await dpu.do(phase)
    requests = len(dpu.bmc.requests)
    assert await dpu.do(DPU_CONFIG) == {}
    assert len(dpu.bmc.requests) == requests  # the image brought its configuration with it
    card = dpu.bmc.card
    assert dpu.bmc.accounts.users["root"].password == PASSWORD != FACTORY_PASSWORD
    assert (card.secure_boot, card.bmc_rshim, card.host_rshim) == (False, True, False)
    assert card.bios["InternalCPUModel"] == "Privileged"
    assert (facts["serial"], facts["bsp_version"], facts["os_version"]) == (SERIAL, "4.9.0", OS)
    assert dpu.dpu.facts["image"] == dpu.dpu.image
    assert started(dpu) == dpu.updates == 1
    assert dpu.bmc.accounts.sessions == {}


@pytest.mark.parametrize("kind", ["cut", "mute", "in-progress"])
async def test_every_request_may_be_lost_and_no_update_begins_twice(kind: RequestFault) -> None:
    """The n-th request of an installation gets no answer, for every n until all have been lost once."""
    for number in range(1, 400):
        dpu = await prepared(number)
        faults = dpu.bmc.faults = Nth(dpu.bmc.faults.rng, number=number, kind=kind)
        try:
            await dpu.run()
        except Unreachable:
            await dpu.run()
        assert dpu.bmc.card.os == OS
        assert started(dpu) == 1
        if faults.number > 0:
            return
    pytest.fail("the installation takes more requests than expected")


class _Taskless(DirectClient):
    """A client of a BMC that neither names nor lists the tasks of updates."""

    async def request(self, method: str, path: str, body: object = None) -> Answer:
        answer = await super().request(method, path, body)
        if SIMPLE_UPDATE in path:
            return Answer(answer.status, b"")
        return answer._replace(content=b"") if path.endswith("/TaskService/Tasks") else answer


async def test_an_update_without_a_task_is_sent_once_and_proved_by_the_versions_of_the_image() -> None:
    dpu = await prepared()
    dpu.connect = lambda address: _Taskless(dpu.bmc)
    facts = await dpu.run()
    assert (facts["bsp_version"], dpu.bmc.card.os) == ("4.9.0", OS)
    assert started(dpu) == dpu.updates == 1


async def test_an_attempt_may_be_superseded_at_every_call() -> None:
    for calls in range(1, 400):
        dpu = await prepared(calls)
        try:
            await dpu.run(stop_after=calls)
            return
        except AttemptSuperseded:
            await dpu.run()
        assert (dpu.bmc.card.os, started(dpu)) == (OS, 1)
    pytest.fail("the installation takes more calls than expected")


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.lists(st.sampled_from(["cut", "mute", "busy", "restart", "power", "fail", "lie"]), max_size=6),
)
def test_an_installation_ends_whatever_happens_and_as_the_device_has_it(seed: int, troubles: list[str]) -> None:
    async def scenario() -> None:
        dpu = await prepared(seed)
        bmc, left = dpu.bmc, list(troubles)

        def trouble(task: str) -> None:
            match left.pop() if left else "":
                case "restart":
                    bmc.restart()
                case "power":
                    bmc.lose_power()
                case "fail" | "lie" as kind:
                    bmc.card.outcomes.planned.append(Outcome(kind))
                case "cut" | "mute" | "busy" as kind:
                    bmc.faults.plan(kind)

        for _ in range(12):
            trouble("")
            try:
                await dpu.run(on_progress=trouble)
                break
            except (Unreachable, SessionEnded, TaskFailed):
                await asyncio.sleep(60)
        assert bmc.card.os == OS
        assert bmc.card.boot_progress()[1] == "OsIsRunning"

    run_virtual(scenario())


async def test_an_attempt_that_was_thought_lost_cannot_touch_the_device() -> None:
    """The next attempt begins while the earlier one still runs. It ends the session of that, and adopts its task."""
    dpu = await prepared()
    late = Steps(dpu.bmc, dpu.connect, dpu.dpu.bmc_address, dpu.url)
    late.dpu = dpu.dpu
    next_attempt: list[asyncio.Task[object]] = []

    def overtake(task: str) -> None:
        if not next_attempt:
            dpu.dpu = late.dpu
            next_attempt.append(asyncio.ensure_future(dpu.run()))

    with pytest.raises(SessionEnded, match="does not accept it"):
        await late.run(on_progress=overtake)
    await next_attempt[0]
    assert (dpu.bmc.card.os, started(dpu)) == (OS, 1)


async def test_a_later_attempt_keeps_its_session() -> None:
    dpu = await prepared()
    later = dpu.bmc.accounts.open("root", PASSWORD, context=f"dpuplane/{10**20}", origin="")
    with pytest.raises(SessionEnded, match="later attempt"):
        await dpu.run()
    assert list(dpu.bmc.accounts.sessions.values()) == [later]
    assert dpu.updates == 0


async def test_the_sessions_of_people_stay() -> None:
    dpu = await prepared()
    person = dpu.bmc.accounts.open("root", PASSWORD, context="", origin="")
    await dpu.run()
    assert list(dpu.bmc.accounts.sessions.values()) == [person]


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (Outcome("lie"), "completed, but the DPU has not booted since"),
        (Outcome("fail", text="writing the flash failed"), "task: .* failed: .*writing the flash failed"),
    ],
)
async def test_a_failed_installation_is_told_with_its_cause_and_repeated(outcome: Outcome, message: str) -> None:
    dpu = await prepared()
    dpu.bmc.card.outcomes.planned.append(outcome)
    dpu.bmc.card.log_line("12V_ATX: Lower Critical going low", "Critical")
    with pytest.raises(TaskFailed, match=f"{message}.*the event log of the BMC says: .*12V_ATX"):
        await dpu.run()
    await dpu.run()
    assert dpu.bmc.card.os == OS


async def test_a_fault_that_the_event_log_repeats_is_quoted_once() -> None:
    dpu = await prepared()
    dpu.bmc.card.outcomes.planned.append(Outcome("lie"))
    for text in ("12V_ATX: Lower Critical going low", "the fan stands still", "the fan stands still"):
        dpu.bmc.card.log_line(text, "Critical")
    with pytest.raises(TaskFailed, match=r"says: the fan stands still, 12V_ATX: Lower Critical going low$"):
        await dpu.run()


async def test_a_wrong_password_needs_a_person() -> None:
    dpu = direct_steps()
    dpu.bmc.accounts.users["root"].password = "another one"
    dpu.bmc.accounts.users["root"].must_change = False
    with pytest.raises(NeedsOperator, match=r"^password: bmc refuses the password of user 'root'"):
        await dpu.do(INITIALIZE_INTERFACE)


async def test_a_bmc_that_refuses_the_new_password_needs_a_person() -> None:
    dpu = direct_steps()
    dpu.credentials = dpu.credentials._replace(password="short")
    with pytest.raises(NeedsOperator, match=r"^password: bmc does not accept the new password of user 'root'"):
        await dpu.do(INITIALIZE_INTERFACE)


async def test_another_card_is_not_touched() -> None:
    dpu = direct_steps()
    dpu.dpu = replace(dpu.dpu, serial="MT0")
    with pytest.raises(NeedsOperator, match=r"^serial: the device has 'MT2310XZ03LR', but 'MT0' is registered"):
        await dpu.do(OS_INSTALLING)
    assert dpu.updates == 0


async def test_nic_mode_needs_a_power_cycle_of_the_host() -> None:
    dpu = direct_steps()
    dpu.bmc.card.mode = "NicMode"
    with pytest.raises(NeedsOperator, match=r"^mode: the DPU is in NicMode, and DpuMode takes effect when its host"):
        await dpu.do(INITIALIZE_INTERFACE)
    dpu.bmc.card.power_cycle_host()
    await dpu.do(INITIALIZE_INTERFACE)


async def test_secure_boot_is_set_with_the_restarts_that_it_takes() -> None:
    dpu = direct_steps()
    dpu.wanted = Wanted(Wants(secure_boot=False))
    await dpu.do(INITIALIZE_INTERFACE)
    assert not dpu.bmc.card.secure_boot


async def test_a_reboot_happens_once_whatever_is_lost() -> None:
    for number in range(1, 100):
        dpu = await prepared(number)
        await dpu.run()
        dpu.enter(REBOOTING)
        boots = dpu.bmc.card.boots
        faults = dpu.bmc.faults = Nth(dpu.bmc.faults.rng, number=number, kind="mute")
        try:
            await dpu.run()
        except Unreachable:
            await dpu.run()
        assert dpu.bmc.card.boots == boots + 1
        if faults.number > 0:
            return
    pytest.fail("the reboot takes more requests than expected")


async def test_an_update_of_somebody_else_is_not_disturbed() -> None:
    dpu = await prepared()
    body = b'{"ImageURI": "http://other/b.bfb", "TransferProtocol": "HTTP"}'
    path = f"/redfish/v1/UpdateService/Actions/{SIMPLE_UPDATE}"
    person = dpu.bmc.accounts.open("root", PASSWORD, context="", origin="")
    assert dpu.bmc.handle(Request("POST", path, {"x-auth-token": person.token}, body)).status == 202
    with pytest.raises(Unreachable, match="another update is in progress"):
        await dpu.run()


async def test_a_dpu_that_no_object_wants_has_no_image() -> None:
    dpu = direct_steps()
    dpu.url = ""
    with pytest.raises(
        NeedsOperator,
        match=r"^image: there is no file for 'image/1': no object wants this DPU, and no BFB",
    ):
        await dpu.do(PREPARE_IMAGE)
    assert await dpu.do(NODE_EFFECT) == {}  # a step that has no part on the device


class OldClient(DirectClient):
    """A BMC with an earlier version of the schema: it refuses the context of a session."""

    async def request(self, method: str, path: str, body: object = None) -> Answer:
        if isinstance(body, dict) and "Context" in body:
            raise TaskFailed("device: Context is unknown")
        return await super().request(method, path, body)


async def test_a_bmc_that_keeps_no_context_is_fenced_by_its_user() -> None:
    dpu = await prepared()
    dpu.connect = lambda address: OldClient(dpu.bmc)
    accounts = dpu.bmc.accounts
    accounts.users["person"] = Account("person", "a password of a person", must_change=False)
    earlier = accounts.open("root", PASSWORD, context="", origin="")
    person = accounts.open("person", "a password of a person", context="", origin="")
    await dpu.run()
    assert list(accounts.sessions.values()) == [person] != [earlier]
    assert dpu.bmc.card.os == OS
