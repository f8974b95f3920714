"""The installer `gnoi`: it executes the steps of a DPU on its management service.

gNOI has no sessions, so only the log fences an attempt: each call, and each chunk of a transfer, is made only while the
log names the attempt. A read shows the effect of a predecessor's last request (reboot_moves.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias

from drivers.backends.bmc import NeedsOperator, TaskFailed
from drivers.gnoi.client import GnoiClient, connected
from drivers.gnoi.credentials import CredentialsOf
from drivers.gnoi.reboot import activation, reboot
from drivers.gnoi.reboot_moves import BootTiming, logged_of
from drivers.gnoi.renewal import CertificateRenewal
from drivers.gnoi.transfer import CHUNK_BYTES, Package, transfer
from drivers.images.deliveries import Delivery
from drivers.provisioning.attempts import Attempt, check_serial, checked_facts
from projections.field_checks import quoted
from projections.zones.dpus import phases
from projections.zones.dpus.phases import ON_DEVICE, OS_INSTALLING, READY

DPU_MODE = "DPU"
_TIMING = BootTiming()

DeliveryOf: TypeAlias = Callable[[str, str], Awaitable[Delivery | None]]
"""The delivery to a DPU for an installation identity; None if no object wants the DPU. May raise the errors of a
device."""


async def no_delivery(dpu: str, image: str) -> Delivery | None:
    """The deliveries of a process without an image store."""
    return None


class GnoiInstaller:
    """Executes steps on devices that speak gNMI and gNOI. `transfers` limits concurrent transfers of images. Without
    `renewal`, nothing is known of the certificates of devices."""

    def __init__(
        self,
        credentials: CredentialsOf,
        delivery_of: DeliveryOf,
        transfers: asyncio.Semaphore,
        timing: BootTiming = _TIMING,
        renewal: CertificateRenewal | None = None,
    ) -> None:
        self._credentials = credentials
        self._delivery_of = delivery_of
        self._transfers = transfers
        self._timing = timing
        self._renewal = renewal

    async def run(self, attempt: Attempt) -> Mapping[str, str]:
        """Execute the step. Returns the facts that the device reports afterwards."""
        if attempt.dpu.phase not in ON_DEVICE and attempt.dpu.phase != READY:
            return {}
        async with connected(attempt.dpu.bmc_address, self._credentials()) as client:
            serial = await attempt.call(client.read_serial, alters=False)
            check_serial(attempt.dpu.serial, serial)
            if attempt.dpu.phase == READY:
                return {} if self._renewal is None else await self._renewal.visit(attempt, client)
            renewed = await self._renew(attempt, client)
            match attempt.dpu.phase:
                case phases.INITIALIZE_INTERFACE:
                    await _set_mode(attempt, client)
                case phases.PREPARE_IMAGE:
                    await self._delivery(attempt)
                case phases.OS_INSTALLING:
                    delivery = await self._delivery(attempt)
                    install = partial(self._install, attempt, client, delivery)
                    await activation(attempt, client, delivery.name, install, self._timing).run()
                case phases.REBOOTING:
                    await reboot(attempt, client, self._timing).run()
            return {**await _facts(attempt, client, serial), **renewed}

    async def _renew(self, attempt: Attempt, client: GnoiClient) -> Mapping[str, str]:
        """The facts about the certificate of the device, which is renewed if it ends soon. A device that may reboot at
        any moment is left alone: a rotation would end with its connection."""
        if self._renewal is None or logged_of(attempt.dpu.task) is not None:
            return {}
        return await self._renewal.run(attempt, client)

    async def _delivery(self, attempt: Attempt) -> Delivery:
        if delivery := await self._delivery_of(attempt.name, attempt.dpu.image):
            return delivery
        raise NeedsOperator(
            f"image: there is no file for {quoted(attempt.dpu.image)}, because no object wants this DPU; apply a BFB, "
            "and a DPUDeployment or DPUSet that selects its DPUDevice"
        )

    async def _install(self, attempt: Attempt, client: GnoiClient, delivery: Delivery) -> str:
        """Give the device the image and the configuration. Returns their name together, as DMS activates them."""
        validation_s = self._timing.validation_s
        progress = _Progress(attempt, delivery)
        image = Package(delivery.name, delivery.size, delivery.chunks)
        async with self._transfers:
            await transfer(attempt, client, image, progress.received, validation_s)
        name, content = await delivery.configuration()
        configuration = Package(name, len(content), partial(_pieces, content))
        await transfer(attempt, client, configuration, _unreported, validation_s)
        return f"{delivery.name};{name}"


class _Progress:
    """Appends each quarter of a transfer once."""

    def __init__(self, attempt: Attempt, delivery: Delivery) -> None:
        self._attempt = attempt
        self._delivery = delivery
        self._quarter = -1

    async def received(self, count: int) -> None:
        percent = min(100, count * 100 // max(1, self._delivery.size))
        if percent // 25 > self._quarter:
            self._quarter = percent // 25
            await self._attempt.report_progress(f"transfer of {self._delivery.name}"[:200], percent)


async def _unreported(count: int) -> None:
    return None


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(content), CHUNK_BYTES):
        yield content[begin : begin + CHUNK_BYTES]


async def _set_mode(attempt: Attempt, client: GnoiClient) -> None:
    """Have the card run as a DPU. It may say so only after its host was power-cycled."""
    if await attempt.call(client.read_mode, alters=False) == DPU_MODE:
        return
    await attempt.call(partial(client.set_mode, DPU_MODE))
    if (mode := await attempt.call(client.read_mode, alters=False)) not in ("", DPU_MODE):
        raise TaskFailed(f"mode: the device accepted {DPU_MODE}, and reports {quoted(mode)}")


async def _facts(attempt: Attempt, client: GnoiClient, serial: str) -> dict[str, str]:
    """The facts of a DPU after a step."""
    dpu = attempt.dpu
    running = await attempt.call(client.read_running, alters=False)
    reboots = await attempt.call(client.read_reboots, alters=False)
    boot_id = str(reboots.boots) if reboots.boots else ""
    facts = {"serial": serial, "boot_id": boot_id, "os_version": running.version}
    if dpu.phase == OS_INSTALLING:
        facts["image"] = dpu.image
    return checked_facts(facts, "device")
