"""Steps of a DPU on a BMC that speaks Redfish, with the log that attempts leave behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

import aiohttp
from aiohttp import web

from drivers.backends.bmc import Unreachable
from drivers.images.bfb import made_bfb
from drivers.images.deliveries import Firmware
from drivers.images.pldm import made_package
from drivers.provisioning.attempts import CallTiming
from drivers.redfish.answers import error_of
from drivers.redfish.certificates import BmcAuthority, PresentedCertificates
from drivers.redfish.client import Answer, Body, ConnectRedfish, RedfishClient, base_url
from drivers.redfish.connection import Context
from drivers.redfish.installer import RedfishInstaller, Wanted
from drivers.redfish.object_wants import FACTORY_PASSWORD
from drivers.redfish.sessions import Credentials
from drivers.simulators.redfish.bmc import RedfishBmc
from drivers.simulators.redfish.card import OS, Durations, Image
from drivers.simulators.redfish.faults import RequestFault, RequestFaults, refusal
from drivers.simulators.redfish.identity import BLUEFIELD_3, Generation, Identity
from drivers.simulators.redfish.messages import Request
from drivers.simulators.redfish.server import image_of, served_bmc
from tests.support.attempted_steps import AttemptedSteps
from tests.support.web_server import listening

SERIAL = "MT2310XZ03LR"
FAST = Durations(flash_s=0.2, boot_s=0.1, bmc_restart_s=0.2)
FAST_TIMING = CallTiming(call_s=30.0, poll_s=0.02, poll_max_s=0.05)
SHORT = Durations(flash_s=6.0, boot_s=3.0, bmc_restart_s=5.0)
PASSWORD = "a password of the plane"
VERSIONS = {"BSP": "4.9.0", "DOCA": "2.9.3"}
BFB = made_bfb([(1, b"image" * 1_000)], VERSIONS)
FIRMWARE = "BF-26.10"
SIMPLE_UPDATE = "UpdateService.SimpleUpdate"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Steps(AttemptedSteps):
    """The steps of one DPU on its BMC."""

    def __init__(self, bmc: RedfishBmc, connect: ConnectRedfish, address: str, url: str) -> None:
        super().__init__(bmc.identity.serial, address, "image/1")
        self.bmc = bmc
        self.wanted = Wanted()
        self.url = url
        self.seed_url = "http://images/seed.iso" if bmc.identity.generation.os_by_media else ""
        self.firmware: Mapping[str, Firmware] = {}
        self.authority: BmcAuthority | None = None
        self.presented: PresentedCertificates | None = None
        """What attempts know of the certificate of the BMC; None if each is the first one of its process."""
        self.handshakes: Callable[[], int] = lambda: 0
        """The number of TLS handshakes with the BMC."""
        self.credentials = Credentials("", PASSWORD, FACTORY_PASSWORD)
        self.connect = connect
        self.now_ms: Callable[[], int] = lambda: int(bmc.now().timestamp() * 1_000)

    def installer(self) -> RedfishInstaller:
        async def credentials(dpu: str) -> Credentials:
            return self.credentials

        async def wanted_of(dpu: str, image: str) -> Wanted:
            return self.wanted

        async def url_of(dpu: str, image: str) -> str:
            return self.url

        async def seed_of(dpu: str, image: str) -> str:
            return self.seed_url

        presented = self.presented or PresentedCertificates()
        pushes = asyncio.Semaphore(4)
        context = Context(self.connect, credentials, self.authority, self.now_ms, pushes, presented)

        async def firmware_of(dpu: str, image: str) -> Mapping[str, Firmware]:
            return self.firmware

        return RedfishInstaller(context, url_of, wanted_of, seed_of=seed_of, firmware_of=firmware_of)

    @property
    def updates(self) -> int:
        """The number of updates that the BMC was asked for."""
        return sum(method == "POST" and SIMPLE_UPDATE in path for method, path in self.bmc.requests)

    @property
    def pushes(self) -> Sequence[str]:
        """Where files were pushed to."""
        ends = ("/UpdateService", "/update-multipart")
        return [path for method, path in self.bmc.requests if method == "POST" and path.endswith(ends)]


def firmware(url: str, *versions: str) -> Firmware:
    """A package for a BMC, whose first component has the first version."""
    content = made_package("bundle", [(1, versions[0])], b"content" * 1_000)

    async def chunks() -> AsyncIterator[bytes]:
        for begin in range(0, len(content), 1_000):
            yield content[begin : begin + 1_000]

    return Firmware("pldmFwBundle", url, frozenset(versions), len(content), chunks)


@dataclass
class Nth(RequestFaults):
    """The fault of one request only: the one with this number."""

    number: int = 0
    kind: RequestFault = "cut"

    def of(self, request: Request) -> RequestFault | None:
        self.number -= 1
        return self.kind if self.number == 0 else None


class DirectClient(RedfishClient):
    """A client without sockets: it calls the BMC itself, on the clock of the loop."""

    def __init__(self, bmc: RedfishBmc) -> None:
        super().__init__(aiohttp.ClientSession.__new__(aiohttp.ClientSession), "http://bmc")
        self._bmc = bmc

    async def request(self, method: str, path: str, body: object = None) -> Answer:
        return await self._handled(method, path, b"" if body is None else json.dumps(body).encode(), {})

    async def push(self, path: str, body: Body, limit_s: float) -> Answer:
        content = b"".join([chunk async for chunk in body.chunks()])
        assert len(content) == body.size
        return await self._handled("POST", path, content, {"content-type": body.content_type})

    async def _handled(self, method: str, path: str, content: bytes, headers: dict[str, str]) -> Answer:
        await asyncio.sleep(0.01)
        if self.token:
            headers["x-auth-token"] = self.token
        asked = Request(method, path, headers, content)
        fault = self._bmc.faults.of(asked)
        if fault == "hang":
            await asyncio.get_running_loop().create_future()
        if fault == "cut" or not self._bmc.is_up:
            raise Unreachable("device: bmc did not respond")
        answer = (refusal(fault) if fault is not None else None) or self._bmc.handle(asked)
        while self._bmc.card.fetches:
            fetch = self._bmc.card.fetches.pop(0)
            image = image_of("0" * 64, {"bsp": "4.9.0", "doca": "2.9.3"}) if fetch.target == OS else Image(FIRMWARE, {})
            self._bmc.card.fetched(fetch.number, image)
        if fault == "mute":
            raise Unreachable("device: bmc did not respond")
        answered = json.dumps(answer.body).encode() if answer.body is not None else b""
        if error := error_of(f"bmc{path}", answer.status, answered):
            raise error
        location, token = answer.headers.get("Location", ""), answer.headers.get("X-Auth-Token", "")
        return Answer(answer.status, answered, location, token)


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
    async with listening(app) as base, served_bmc(bmc, host=host) as server, aiohttp.ClientSession() as session:
        address = server.url.replace("https:", "redfish:")
        found = Steps(bmc, lambda address: RedfishClient(session, base_url(address)), address, f"{base}/a.bfb")
        found.timing = FAST_TIMING
        found.handshakes = lambda: server.handshakes
        yield found
