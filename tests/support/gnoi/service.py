"""The peer of `peer/`, as a child of a test: where it listens, what happened on it, and what goes wrong next."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec

from deploy.kafka.broker_node import END_WITH_PARENT
from deploy.tls.authority import Authority, Issued
from drivers.redfish.certificates import BmcAuthority
from projections.fleet.withdrawals.principals import PLANE, Principal
from tests.support.kubernetes.build import program

HOST = "127.0.0.1"
SERIAL = "MT2310XZ03LR"
READY_S = 90.0
DAY = timedelta(days=1)


class State(msgspec.Struct, frozen=True, rename="pascal"):
    """What happened on a device. `installs` counts activations, `restarts` the reboots that were asked for, and
    `rotated` the certificates that the device has kept."""

    installs: int
    restarts: int
    running: str
    config: str
    rotated: int


class Identity(NamedTuple):
    """An authority, and the certificate of the service, both in files."""

    authority: Authority
    served: Issued

    @property
    def trust(self) -> BmcAuthority:
        """The authority as a process of the plane has it."""
        folder = self.authority.folder
        return BmcAuthority((folder / "ca.pem").read_bytes(), (folder / "ca.key").read_bytes())

    @property
    def trust_without_key(self) -> BmcAuthority:
        """The authority as a process has it that cannot sign."""
        return BmcAuthority((self.authority.folder / "ca.pem").read_bytes())

    def serve(self, host: str = HOST, *, valid: timedelta = DAY, now: datetime | None = None) -> None:
        """Give the service another certificate."""
        self.authority.issue(Principal(PLANE, "dms"), hosts=[host], now=now or datetime.now(UTC), valid=valid)


class Service:
    """A running peer. `address` is HOST:PORT of gNMI and gNOI."""

    def __init__(self, session: aiohttp.ClientSession, address: str, control: str, identity: Identity) -> None:
        self.address = address
        self.identity = identity
        self._session = session
        self._control = f"http://{control}"

    async def state(self) -> State:
        async with self._session.get(f"{self._control}/state") as answer:
            return msgspec.json.decode(await answer.read(), type=State)

    async def plan(self, outcome: str) -> None:
        """Let the next activation or reboot fail, lie (end without an effect), hang, or be mute (no answer)."""
        async with self._session.post(f"{self._control}/plan/{outcome}") as answer:
            answer.raise_for_status()

    async def plan_rotation(self, outcome: str) -> None:
        """Let the device refuse the next certificate, or keep (accept it, and present the old one). With mute and undo
        it does not answer to the end of the rotation: it has the new certificate, or the old one."""
        async with self._session.post(f"{self._control}/rotation/{outcome}") as answer:
            answer.raise_for_status()

    async def renew(self) -> None:
        """Make the device as it was delivered."""
        async with self._session.post(f"{self._control}/renew") as answer:
            answer.raise_for_status()


def identity_in(folder: Path) -> Identity:
    """A new authority in a folder, and a certificate for the loopback address."""
    now = datetime.now(UTC)
    authority = Authority.make(folder, "test.example", now=now, valid=30 * DAY)
    return Identity(authority, authority.issue(Principal(PLANE, "dms"), hosts=[HOST], now=now, valid=DAY))


@asynccontextmanager
async def served(identity: Identity, *, reboot: str = "200ms", tls12: bool = False) -> AsyncIterator[Service]:
    """The peer with this certificate, and the duration of its reboots. With `tls12` it speaks no later version of TLS.
    It ends with the context."""
    child = await asyncio.create_subprocess_exec(
        str(program("gnoi-peer")),
        f"-cert={identity.served.cert}",
        f"-key={identity.served.key}",
        f"-ca={identity.authority.cert}",
        f"-serial={SERIAL}",
        f"-reboot={reboot}",
        f"-tls12={tls12}",
        env=os.environ | {"GRPC_GO_LOG_SEVERITY_LEVEL": "error"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        preexec_fn=END_WITH_PARENT,
    )
    try:
        assert child.stdout is not None
        async with asyncio.timeout(READY_S):
            ready, address, control = (await child.stdout.readline()).decode().split()
        assert ready == "ready"
        async with aiohttp.ClientSession() as session:
            yield Service(session, address, control, identity)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
