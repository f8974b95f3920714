"""Steps of a DPU on a BMC that speaks Redfish, with the log that attempts leave behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random

import aiohttp
from aiohttp import web
from msgspec.structs import replace

from drivers.backends.bmc import TaskFailed, Unreachable
from drivers.images.bfb import made_bfb
from drivers.provisioning.attempts import Attempt, AttemptSuperseded, CallTiming
from drivers.redfish.answers import error_of
from drivers.redfish.certificates import BmcAuthority
from drivers.redfish.client import Answer, ConnectRedfish, RedfishClient, base_url
from drivers.redfish.connection import Context
from drivers.redfish.installer import RedfishInstaller, Wanted
from drivers.redfish.object_wants import FACTORY_PASSWORD
from drivers.redfish.sessions import Credentials
from projections.zones.dpus.phases import STEPS
from projections.zones.rows import Dpu
from tests.support.bmc.bmc import RedfishBmc
from tests.support.bmc.card import Durations
from tests.support.bmc.faults import refusal
from tests.support.bmc.identity import BLUEFIELD_3, Generation, Identity
from tests.support.bmc.messages import Request
from tests.support.bmc.server import image_of, served_bmc

SERIAL = "MT2310XZ03LR"
FAST = Durations(flash_s=0.2, boot_s=0.1, bmc_restart_s=0.2)
FAST_TIMING = CallTiming(call_s=3.0, poll_s=0.02, poll_max_s=0.05)
SHORT = Durations(flash_s=6.0, boot_s=3.0, bmc_restart_s=5.0)
PASSWORD = "a password of the plane"
VERSIONS = {"BSP": "4.9.0", "DOCA": "2.9.3"}
BFB = made_bfb([(1, b"image" * 1_000)], VERSIONS)
SIMPLE_UPDATE = "UpdateService.SimpleUpdate"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Steps:
    """The steps of one DPU. `dpu` is its row, as the log has it; `progress` are the tasks and percentages appended."""

    def __init__(self, bmc: RedfishBmc, connect: ConnectRedfish, address: str, url: str) -> None:
        self.bmc = bmc
        self.wanted = Wanted()
        self.url = url
        self.authority: BmcAuthority | None = None
        self.credentials = Credentials("", PASSWORD, FACTORY_PASSWORD)
        self.progress: list[tuple[str, int]] = []
        self.timing = CallTiming()
        serial = bmc.identity.serial
        self.dpu = Dpu("z", 0, "", serial, address, "Pending", 10, 10, 9, 1, image="image/1", disowned=10, began_ms=1)
        self.connect = connect
        self.now_ms: Callable[[], int] = lambda: int(bmc.now().timestamp() * 1_000)

    def enter(self, phase: str) -> None:
        """Begin a phase, as the fold does."""
        dpu = self.dpu
        self.dpu = replace(dpu, phase=phase, entered=dpu.attempt, disowned=dpu.attempt, task="", percent=0)

    async def run(
        self, *, stop_after: int = 1_000_000, on_progress: Callable[[str], None] = lambda task: None
    ) -> Mapping[str, str]:
        """Run the next attempt at the present phase. After `stop_after` checks another actor owns the step."""
        self.dpu = replace(self.dpu, attempt=self.dpu.attempt + 1, began_ms=self.dpu.began_ms + 1)
        checks = 0

        def check() -> None:
            nonlocal checks
            checks += 1
            if checks > stop_after:
                raise AttemptSuperseded("not any more")

        async def thawed() -> None:
            check()

        async def report(task: str, percent: int) -> None:
            check()
            assert len(task) <= 253
            self.progress.append((task, percent))
            self.dpu = replace(self.dpu, task=task, percent=percent)
            on_progress(task)

        async def credentials(dpu: str) -> Credentials:
            return self.credentials

        async def wanted_of(dpu: str, image: str) -> Wanted:
            return self.wanted

        async def url_of(dpu: str, image: str) -> str:
            return self.url

        context = Context(self.connect, credentials, self.authority, self.now_ms)
        step, calls = STEPS[self.dpu.phase], asyncio.Semaphore(8)
        attempt = Attempt("d", self.dpu, step, check, thawed, report, calls, self.timing)
        try:
            facts = await RedfishInstaller(context, url_of, wanted_of).run(attempt)
        except TaskFailed:
            self.dpu = replace(self.dpu, disowned=self.dpu.attempt)
            raise
        self.dpu = replace(self.dpu, facts={**self.dpu.facts, **facts})
        return facts

    async def do(self, phase: str) -> Mapping[str, str]:
        """Enter a phase and run one attempt at it."""
        self.enter(phase)
        return await self.run()

    @property
    def updates(self) -> int:
        """The number of updates that the BMC was asked for."""
        return sum(method == "POST" and SIMPLE_UPDATE in path for method, path in self.bmc.requests)


class DirectClient(RedfishClient):
    """A client without sockets: it calls the BMC itself, on the clock of the loop."""

    def __init__(self, bmc: RedfishBmc) -> None:
        super().__init__(aiohttp.ClientSession.__new__(aiohttp.ClientSession), "http://bmc")
        self._bmc = bmc

    async def request(self, method: str, path: str, body: object = None) -> Answer:
        await asyncio.sleep(0.01)
        headers = {"x-auth-token": self.token} if self.token else {}
        asked = Request(method, path, headers, b"" if body is None else json.dumps(body).encode())
        fault = self._bmc.faults.of(asked)
        if fault == "hang":
            await asyncio.get_running_loop().create_future()
        if fault == "cut" or not self._bmc.is_up:
            raise Unreachable("device: bmc did not respond")
        answer = (refusal(fault) if fault is not None else None) or self._bmc.handle(asked)
        while self._bmc.card.fetches:
            fetch = self._bmc.card.fetches.pop(0)
            self._bmc.card.fetched(fetch.number, image_of("0" * 64, {"bsp": "4.9.0", "doca": "2.9.3"}))
        if fault == "mute":
            raise Unreachable("device: bmc did not respond")
        content = json.dumps(answer.body).encode() if answer.body is not None else b""
        if error := error_of(f"bmc{path}", answer.status, content):
            raise error
        location, token = answer.headers.get("Location", ""), answer.headers.get("X-Auth-Token", "")
        return Answer(answer.status, content, location, token)


def direct_steps(seed: int = 1, *, generation: Generation = BLUEFIELD_3) -> Steps:
    """A DPU whose BMC is called without sockets, on the clock of the running loop."""
    clock = asyncio.get_running_loop().time
    bmc = RedfishBmc(
        Identity(SERIAL, generation=generation),
        now=lambda: EPOCH + timedelta(seconds=clock()),
        rng=Random(seed),
        durations=SHORT,
    )
    return Steps(bmc, lambda address: DirectClient(bmc), "redfish://bmc", "http://images/a.bfb")


@asynccontextmanager
async def served_steps(bmc: RedfishBmc, *, host: str = "127.0.0.1") -> AsyncIterator[Steps]:
    """A DPU with this BMC over HTTPS, and an image for it."""

    async def image(request: web.Request) -> web.Response:
        return web.Response(body=BFB)

    app = web.Application()
    app.router.add_get("/a.bfb", image)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/a.bfb"
        async with served_bmc(bmc, host=host) as server, aiohttp.ClientSession() as session:
            address = server.url.replace("https:", "redfish:")
            found = Steps(bmc, lambda address: RedfishClient(session, base_url(address)), address, url)
            found.timing = FAST_TIMING
            yield found
    finally:
        await runner.cleanup()
