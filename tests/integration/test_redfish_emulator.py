"""The installer on a BMC that others wrote, sushy-emulator: steps, a wrong password, media that it does not boot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from drivers.backends.bmc import NeedsOperator, TaskFailed
from drivers.provisioning.attempts import Attempt, Executor
from drivers.redfish import installer
from drivers.redfish.connection import Context, connected
from drivers.redfish.installer import Wanted
from drivers.redfish.media_installation import MediaInstallation
from drivers.redfish.resources import ROOT, Link, Root, VirtualMedia
from drivers.redfish.sessions import Credentials
from drivers.redfish.settings import SecureBoot, Wants
from projections.zones.dpus.certificates import CERTIFICATE_FACT
from projections.zones.dpus.phases import CONFIG_FIRMWARE, INITIALIZE_INTERFACE, OS_INSTALLING, REBOOTING
from tests.support.foreign_steps import ForeignSteps
from tests.support.redfish_emulator import PASSWORD, USER, Emulator, sushy_emulator
from tests.support.web_server import listening

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class EmulatorSteps(ForeignSteps):
    """The steps of one DPU on the emulator. `media` has the installation from virtual media in place of steps."""

    def __init__(self, emulator: Emulator, session: aiohttp.ClientSession) -> None:
        super().__init__(emulator.address, session, Credentials(USER, PASSWORD))
        self.emulator = emulator
        self.media = ""

    def installer(self) -> Executor:
        return _Media(self.context(), self.media) if self.media else super().installer()


class _Media:
    """Installs from this medium, as the installer does on a BlueField-4."""

    def __init__(self, context: Context, url: str) -> None:
        self._context = context
        self._url = url

    async def run(self, attempt: Attempt) -> dict[str, str]:
        async def url() -> str:
            return self._url

        async def no_seed() -> str:
            return ""

        async with connected(attempt, self._context) as bmc:
            await MediaInstallation(bmc, url, no_seed, {}).run()
        return {}


@pytest.fixture
async def steps(tmp_path: Path) -> AsyncIterator[EmulatorSteps]:
    async with sushy_emulator(tmp_path) as emulator, aiohttp.ClientSession() as session:
        yield EmulatorSteps(emulator, session)


async def test_a_bmc_without_sessions_and_extensions_is_set_up(steps: EmulatorSteps) -> None:
    steps.wanted = Wanted(Wants(secure_boot=True))
    facts = await steps.do(INITIALIZE_INTERFACE)
    assert facts[CERTIFICATE_FACT]
    await steps.do(CONFIG_FIRMWARE)
    root = await steps.client.read(ROOT, Root)
    (system,) = await steps.client.members(root.systems)
    assert (await steps.client.read(f"{system}/SecureBoot", SecureBoot)).secure_boot_enable
    assert steps.emulator.requests("PATCH", "/SecureBoot") == 1, "what is set is not set again"


async def test_a_restart_is_asked_for_once(steps: EmulatorSteps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer, "RESTART_S", 1.0)  # the emulator reports no boots
    await steps.do(REBOOTING)
    assert steps.emulator.requests("POST", "/ComputerSystem.Reset") == 1


async def test_a_wrong_password_needs_a_person_and_changes_nothing(steps: EmulatorSteps) -> None:
    steps.credentials = Credentials(USER, "another one")
    steps.wanted = Wanted(Wants(secure_boot=True))
    with pytest.raises(NeedsOperator, match=r"^password: .* refuses the password of user 'root'"):
        await steps.do(INITIALIZE_INTERFACE)
    assert steps.emulator.requests("PATCH", "") == 0


async def test_media_that_would_not_be_booted_are_removed_again(steps: EmulatorSteps) -> None:
    """The emulator takes the medium and the boot override, and reports every override as a lasting one."""

    async def medium(request: web.Request) -> web.Response:
        return web.Response(body=b"medium", headers={"Content-Disposition": "attachment; filename=a.iso"})

    app = web.Application()
    app.router.add_get("/a.iso", medium)
    async with listening(app) as base:
        steps.media = f"{base}/a.iso"
        with pytest.raises(TaskFailed, match=r"^media: the BMC accepted a boot from media, and does not report it"):
            await steps.do(OS_INSTALLING)
    counted = partial(steps.emulator.requests, "POST")
    assert (counted("/VirtualMedia.InsertMedia"), counted("/VirtualMedia.EjectMedia")) == (1, 1)
    root = await steps.client.read(ROOT, Root)
    (system,) = await steps.client.members(root.systems)
    for path in await steps.client.members(Link(f"{system}/VirtualMedia")):
        assert not (await steps.client.read(path, VirtualMedia)).inserted
