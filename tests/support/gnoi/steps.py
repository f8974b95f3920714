"""Steps of a DPU on its management service, with the log that attempts leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime

from msgspec.structs import replace

from drivers.backends.bmc import TaskFailed
from drivers.gnoi.credentials import CredentialsOf, IssuedCredentials
from drivers.gnoi.installer import GnoiInstaller
from drivers.gnoi.reboot_moves import BootTiming
from drivers.gnoi.renewal import CertificateRenewal
from drivers.images.deliveries import Delivery, configuration_file
from drivers.provisioning.attempts import Attempt, AttemptSuperseded, CallTiming
from projections.zones.dpus.install_interfaces import step_of
from projections.zones.rows import Dpu
from tests.support.gnoi.packages import package
from tests.support.gnoi.service import SERIAL, Service

IMAGE = "dpf-image.bfb"
TIMING = BootTiming(settle_s=4.0, boot_s=30.0, validation_s=30.0)
CALLS = CallTiming(call_s=20.0, poll_s=0.02, poll_max_s=0.05)
CHUNK = 1_000_000


def now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1_000)


class GnoiSteps:
    """The steps of one DPU. `dpu` is its row, as the log has it; `progress` are the texts and percentages appended."""

    def __init__(self, service: Service, address: str = "") -> None:
        self.service = service
        self.content = package(IMAGE)
        self.configuration = b"bf.cfg with a secret"
        self.sent_bytes = 0
        self.renews = True
        """Whether the plane has the key of the authority."""
        self.timing = TIMING
        self.calls = CALLS
        self.credentials: CredentialsOf = IssuedCredentials(service.identity.trust, now_ms)
        self.progress: list[tuple[str, int]] = []
        self.on_chunk: Callable[[], None] = lambda: None
        self.on_progress: Callable[[str], None] = lambda text: None
        at = f"gnoi://{address or service.address}"
        self.dpu = Dpu("z", 0, "", SERIAL, at, "Pending", 10, 10, 9, 1, image="image/1", disowned=10, began_ms=1)

    def enter(self, phase: str) -> None:
        """Begin a phase, as the fold does."""
        dpu = self.dpu
        self.dpu = replace(dpu, phase=phase, entered=dpu.attempt, disowned=dpu.attempt, task="", percent=0)

    async def do(self, phase: str) -> Mapping[str, str]:
        """Enter a phase and run one attempt at it."""
        self.enter(phase)
        return await self.run()

    async def run(self, *, stop_after: int = 1_000_000) -> Mapping[str, str]:
        """Run the next attempt at the present phase. After `stop_after` checks another actor owns the step."""
        await self.before_attempt()
        try:
            return await self._attempted(stop_after)
        finally:
            await self.after_attempt()

    async def before_attempt(self) -> None:
        """Called before each attempt."""

    async def after_attempt(self) -> None:
        """Called after each attempt."""

    async def _attempted(self, stop_after: int) -> Mapping[str, str]:
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
            self.on_progress(task)

        step, calls = step_of(self.dpu.bmc_address, self.dpu.phase), asyncio.Semaphore(8)
        attempt = Attempt("d", self.dpu, step, check, thawed, report, calls, self.calls)
        identity = self.service.identity
        authority = identity.trust if self.renews else identity.trust_without_key
        renewal = CertificateRenewal(authority, self.credentials, now_ms)
        installer = GnoiInstaller(self.credentials, self._delivery, asyncio.Semaphore(4), self.timing, renewal)
        try:
            facts = await installer.run(attempt)
        except TaskFailed:
            self.dpu = replace(self.dpu, disowned=self.dpu.attempt)
            raise
        self.dpu = replace(self.dpu, facts={**self.dpu.facts, **facts})
        return facts

    async def _delivery(self, dpu: str, image: str) -> Delivery:
        async def chunks() -> AsyncIterator[bytes]:
            for begin in range(0, len(self.content), CHUNK):
                self.on_chunk()
                chunk = self.content[begin : begin + CHUNK]
                self.sent_bytes += len(chunk)
                yield chunk

        async def configuration() -> tuple[str, bytes]:
            return configuration_file(dpu, self.configuration), self.configuration

        return Delivery(IMAGE, len(self.content), chunks, configuration)
