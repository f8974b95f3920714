"""A simulated BMC that is served over HTTPS, with a password and an image server, for tests of clients."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any

import aiohttp

from drivers.images.bfb import made_bfb
from drivers.simulators.redfish.bmc import RedfishBmc
from drivers.simulators.redfish.card import Durations
from drivers.simulators.redfish.faults import NO_SHARES, Shares
from drivers.simulators.redfish.identity import BLUEFIELD_3, Generation, Identity
from drivers.simulators.redfish.server import BmcServer, served_bmc

PASSWORD = "Correct-Horse-9"
FAST = Durations(flash_s=0.3, boot_s=0.2, bmc_restart_s=0.3)
IMAGE = made_bfb([(1, b"\x5a" * 50_000)], {"BF3_BSP": "4.9.1", "BF3_ATF": "v2.2", "DOCA": "2.9.3008-1"})
INSTALLED = "DOCA_2.9.3_BSP_4.9.1"
"""The version that DPU_OS has once IMAGE is installed."""


def new_bmc(
    *,
    generation: Generation = BLUEFIELD_3,
    durations: Durations = FAST,
    shares: Shares = NO_SHARES,
    password: str = PASSWORD,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> RedfishBmc:
    """A BMC whose user has a password; with an empty one, it still has that of the factory."""
    identity = Identity("MT2334XZ0001", generation=generation)
    bmc = RedfishBmc(identity, now=now, rng=Random(1), durations=durations, shares=shares)
    if password:
        bmc.accounts.set_password(bmc.accounts.users[generation.user], password)
    return bmc


class Client:
    """A client of one BMC: requests with JSON bodies. `token` is that of its session, once it has one."""

    def __init__(self, server: BmcServer, http: aiohttp.ClientSession) -> None:
        self.bmc = server.bmc
        self.url = server.url
        self.token = ""
        self._http = http

    async def send(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any, Any]:
        """The status, body and headers of an answer. `auth` is a user with a password."""
        headers = {**options.pop("headers", {}), **({"X-Auth-Token": self.token} if self.token else {})}
        data = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with self._http.request(method, self.url + path, headers=headers, **data, **options) as answer:
            content = await answer.read()
            is_json = answer.content_type == "application/json"
            return answer.status, await answer.json() if is_json else content.decode(), answer.headers

    async def get(self, path: str) -> Any:
        """A resource that exists."""
        status, body, _ = await self.send("GET", path)
        assert status == 200, (path, status, body)
        return body

    async def login(self, password: str = PASSWORD, context: str = "") -> str:
        """Open a session. Returns its path."""
        self.token = ""
        body = {"UserName": self.bmc.identity.generation.user, "Password": password}
        path = "/redfish/v1/SessionService/Sessions"
        status, _, headers = await self.send("POST", path, body | ({"Context": context} if context else {}))
        assert status == 201
        self.token = headers["X-Auth-Token"]
        return str(headers["Location"])


@asynccontextmanager
async def connected(bmc: RedfishBmc, *, host: str = "127.0.0.1") -> AsyncIterator[Client]:
    """Serve a BMC, with a client that trusts its certificate and no other."""
    context = ssl.create_default_context(cadata=bmc.certificates.pem()[0].decode())
    async with (
        served_bmc(bmc, host=host) as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as http,
    ):
        yield Client(server, http)
