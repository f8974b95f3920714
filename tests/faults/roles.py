"""Processes of the plane, each on a lab host with a fixed address. Faults kill, freeze and restart them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import ssl
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path

import aiohttp

from tests.faults.network_lab import LabHost
from tests.support.certs import CertFiles
from tests.support.planes import DPUPLANE

API, HTTP, AGENTS = 7080, 7081, 7082
READY_S = 120.0
RESTART_S = 0.5
ANSWER_S = 5.0
_SAMPLE = re.compile(r"^(\w+)(?:\{[^}]*\})? ([0-9.e+-]+)$", re.MULTILINE)


class Role:
    """One process of the plane, across its restarts."""

    def __init__(self, lab_host: LabHost, arguments: Sequence[str], folder: Path, viewer: CertFiles) -> None:
        self.lab_host = lab_host
        self.name = lab_host.name
        self.log = folder / f"{lab_host.name}.log"
        self.kills = 0
        self.ends = 0
        """The number of exits that no fault caused."""
        self._read_bytes = 0
        self._arguments = arguments
        self._viewer = viewer
        self._child: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._is_killed = False
        self._exits: list[int] = []

    @property
    def api(self) -> str:
        return f"{self.lab_host.address}:{API}"

    @property
    def agents(self) -> str:
        return f"{self.lab_host.address}:{AGENTS}"

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.returncode is None

    def start(self, environment: Mapping[str, str] | None = None, program: Sequence[str] = (DPUPLANE,)) -> None:
        """Start the process, and restart it whenever it ends by itself, as a supervisor does."""
        assert self._supervisor is None or self._supervisor.done()
        self._supervisor = asyncio.create_task(self._supervise({**os.environ, **(environment or {})}, program))

    async def _supervise(self, environment: Mapping[str, str], program: Sequence[str]) -> None:
        while True:
            with self.log.open("ab") as errors:
                child = self._child = await asyncio.create_subprocess_exec(
                    *self.lab_host.enter(*program, *self._arguments),
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    env=environment,
                )
            assert child.stdout is not None
            if (await child.stdout.readline()).startswith(b"ready"):
                self._ready.set()
            status = await child.wait()
            self._ready.clear()
            if not self._is_killed or status != -signal.SIGKILL:
                self._exits.append(status)
                self.ends += 1
            if self._is_killed:
                self._is_killed = False
                return
            await asyncio.sleep(RESTART_S)

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def ready(self) -> None:
        """Wait until the process serves."""
        try:
            async with asyncio.timeout(READY_S):
                await self._ready.wait()
        except TimeoutError:
            raise RuntimeError(f"{self.name} is not ready, see {self.log}") from None

    async def kill(self) -> None:
        """Send SIGKILL and wait until the process has ended. It is not restarted."""
        assert self._supervisor is not None
        while not self.is_running:  # the process has ended by itself and is being restarted
            await asyncio.sleep(0.05)
        self._is_killed = True
        self.send(signal.SIGKILL)
        await self._supervisor
        self.kills += 1

    def send(self, number: signal.Signals) -> None:
        assert self._child is not None
        if self.is_running:
            self._child.send_signal(number)

    async def stop(self) -> None:
        """Kill the process if it runs."""
        if self._supervisor is not None and not self._supervisor.done():
            await self.kill()

    def take_log(self) -> str:
        """The log text since the last call."""
        text = self.log.read_bytes()[self._read_bytes :]
        self._read_bytes += len(text)
        return text.decode(errors="replace")

    def take_exits(self) -> list[int]:
        """The statuses of exits since the last call that no fault caused. A signal is a negative number."""
        found, self._exits = self._exits, []
        return found

    def state(self) -> str:
        """The kernel's state of the process: R, S, or T when it is stopped."""
        return state_of(self.pid)

    async def metrics(self) -> dict[str, float]:
        """The sum of each metric's samples; empty if the process does not answer."""
        totals: dict[str, float] = {}
        try:
            _, text = await self._get("/metrics")
        except (aiohttp.ClientError, TimeoutError):
            return totals
        for name, value in _SAMPLE.findall(text):
            totals[name] = totals.get(name, 0.0) + float(value)
        return totals

    async def clock_s(self) -> float | None:
        """The process's clock as whole seconds since the epoch; None if the process does not answer."""
        try:
            date, _ = await self._get("/healthz")
        except (aiohttp.ClientError, TimeoutError):
            return None
        return parsedate_to_datetime(date).timestamp()

    async def _get(self, path: str) -> tuple[str, str]:
        security = ssl.create_default_context(cafile=self._viewer.ca)
        security.load_cert_chain(self._viewer.cert, self._viewer.key)
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"https://{self.lab_host.address}:{HTTP}{path}", ssl=security) as response,
        ):
            return response.headers["Date"], await response.text()


def state_of(pid: int) -> str:
    """The state letter of a process; X (dead) if the process does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def serve_arguments(lab_host: LabHost, cert_files: CertFiles, *arguments: str) -> list[str]:
    """The arguments of a process that listens at its host's address."""
    listeners = (("--listen", API), ("--http", HTTP), ("--agents", AGENTS))
    listening = [part for flag, port in listeners for part in (flag, f"{lab_host.address}:{port}")]
    security = [
        "--tls-cert",
        str(cert_files.cert),
        "--tls-key",
        str(cert_files.key),
        "--tls-client-ca",
        str(cert_files.ca),
    ]
    bmcs = ["--bmc-password-file", str(lab_host_password(cert_files))]
    return ["serve", *listening, *security, *bmcs, "--name", lab_host.name, "--as-of-servers", "0", *arguments]


def lab_host_password(cert_files: CertFiles) -> Path:
    """A file with the password of BMCs, beside the certificates."""
    path = cert_files.cert.with_name("bmc-password")
    path.write_text("a password of the plane")
    return path


def simulator_arguments(
    lab_host: LabHost, cert_files: CertFiles, relays: Sequence[str], servers: Sequence[str], dpus: int
) -> list[str]:
    """The arguments of the process that simulates all devices, `dpus` in each zone."""
    where = ["--relay", ",".join(relays), "--server", ",".join(servers), "--bmc", f"{lab_host.address}:7090"]
    return ["simulator", *where, *cert_files.flags, "--dpus-per-zone", str(dpus)]
