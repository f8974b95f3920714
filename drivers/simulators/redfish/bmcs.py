"""The BMCs of many simulated DPUs, each with a port of its own.

With an authority, a BMC has a certificate that the authority issued, so that a plane with this authority also accepts
the BMC after a restart of the simulator. Without one, a BMC signs its certificate itself, as the factory does.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from random import Random
from typing import NamedTuple
from urllib.parse import urlsplit

from drivers.redfish.certificates import BmcAuthority, signing_request
from drivers.redfish.client import SCHEME
from drivers.simulators.redfish.bmc import RedfishBmc
from drivers.simulators.redfish.card import QUICK_DURATIONS, Durations
from drivers.simulators.redfish.faults import NO_SHARES, Shares
from drivers.simulators.redfish.identity import Identity
from drivers.simulators.redfish.server import BmcServer

logger = logging.getLogger(__name__)

PORTS_TRIED_MAX = 1_000
_FIRST_MAC, _MACS_PER_CARD = 0xA088C2_000000, 8


class BmcOptions(NamedTuple):
    """What the BMCs have in common. They listen at `host`, from `first_port` on; 0 takes free ports. They fetch images
    from servers that `trusts` accepts."""

    host: str = "127.0.0.1"
    first_port: int = 0
    authority: BmcAuthority | None = None
    trusts: ssl.SSLContext | None = None
    durations: Durations = QUICK_DURATIONS
    shares: Shares = NO_SHARES


class RedfishBmcs:
    """The BMCs by the names of their DPUs. `serving` yields them; they serve until its block ends."""

    def __init__(
        self, options: BmcOptions, *, now: Callable[[], datetime], rng: Random, tasks: asyncio.TaskGroup
    ) -> None:
        self.bmcs: dict[str, RedfishBmc] = {}
        self._options = options
        self._now = now
        self._rng = rng
        self._tasks = tasks
        self._servers: list[BmcServer] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._next_port = options.first_port

    @classmethod
    @asynccontextmanager
    async def serving(
        cls, options: BmcOptions, *, now: Callable[[], datetime], rng: Random
    ) -> AsyncIterator[RedfishBmcs]:
        async with asyncio.TaskGroup() as tasks:
            found = cls(options, now=now, rng=rng, tasks=tasks)
            try:
                yield found
            finally:
                for task in found._serving:
                    task.cancel()

    @property
    def fetched_bytes(self) -> int:
        """The bytes of images that the BMCs have fetched."""
        return sum(each.fetched_bytes for each in self._servers)

    async def address(self, dpu: str, serial: str, registered: str) -> str:
        """Serve the BMC of a DPU. Returns its address: the one that is registered, unless its port is in use."""
        mac = _FIRST_MAC + _MACS_PER_CARD * len(self.bmcs)
        bmc = self.bmcs[dpu] = RedfishBmc(
            Identity(serial, mac=mac),
            now=self._now,
            rng=Random(self._rng.getrandbits(64)),
            durations=self._options.durations,
            shares=self._options.shares,
            hosts=(self._options.host,),
        )
        if self._options.authority is not None:
            certify(bmc, self._options.host, self._options.authority, self._now())
        for port in self._ports(registered):
            try:
                return await self._listen(bmc, port)
            except OSError as error:
                logger.info("port of a simulated BMC not free: %s", error, extra={"dpu": dpu, "port": port})
        logger.warning("simulated BMC not served: no port is free", extra={"dpu": dpu, "host": self._options.host})
        return registered

    def _ports(self, registered: str) -> list[int]:
        """The ports to try: that of the registered address, then the next ones."""
        known = [port] if (port := port_of(registered, self._options.host)) else []
        if not self._options.first_port:
            return [*known, 0]
        return [*known, *range(self._next_port, min(self._next_port + PORTS_TRIED_MAX, 65_536))]

    async def _listen(self, bmc: RedfishBmc, port: int) -> str:
        """Serve a BMC at a port in a task of its own. Raises OSError."""
        bound: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        server = BmcServer(bmc, trusts=self._options.trusts)
        self._servers.append(server)
        task = self._tasks.create_task(self._serve(server, port, bound))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        url = await bound
        if self._options.first_port:
            self._next_port = max(self._next_port, (urlsplit(url).port or 0) + 1)
        return url.replace("https:", f"{SCHEME}:")

    async def _serve(self, server: BmcServer, port: int, bound: asyncio.Future[str]) -> None:
        try:
            async with server.listening(self._options.host, port) as url:
                bound.set_result(url)
                await asyncio.get_running_loop().create_future()
        except OSError as error:
            if bound.done():
                raise
            bound.set_exception(error)


def port_of(registered: str, host: str) -> int:
    """The port in the registered address of a BMC at this host; 0 if it has another form or another host."""
    try:
        parts = urlsplit(registered)
        return (parts.port or 0) if (parts.scheme, parts.hostname) == (SCHEME, host) else 0
    except ValueError:
        return 0


def certify(bmc: RedfishBmc, host: str, authority: BmcAuthority, now: datetime) -> None:
    """Give a BMC a certificate of an authority for its host, as a provisioner would."""
    collection = f"{bmc.identity.manager}/NetworkProtocol/HTTPS/Certificates"
    body = signing_request(host, collection).body
    assert isinstance(body, dict)
    signed = authority.sign(bmc.certificates.request(body, collection).encode(), host, now)
    bmc.certificates.replace(signed.decode())
