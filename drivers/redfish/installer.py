"""The installer `redfish`: it executes the steps of a DPU on its BMC.

Every attempt logs in anew, which ends the sessions of earlier attempts, and reads the device. Its next request
follows from that read and from the log alone (`*_moves.py`, settings.py), so an attempt may end at any request. The
steps on the host and in the DPU cluster have no part on the BMC. The preparation of the image has none either: it only
waits for its file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

from drivers.backends.bmc import NeedsOperator, TaskFailed, Unreachable
from drivers.images.deliveries import Firmware
from drivers.provisioning.attempts import Attempt, checked_facts
from drivers.provisioning.device import UrlOf, no_url
from drivers.redfish.certificates import REPORT_BEFORE, day_of, utc
from drivers.redfish.connection import VERSIONS, Connection, Context, card_chassis, connected
from drivers.redfish.device_log import latest_faults
from drivers.redfish.firmware_update import FirmwareUpdate
from drivers.redfish.media_installation import MediaInstallation
from drivers.redfish.resources import Link
from drivers.redfish.settings import (
    Bios,
    Change,
    HostPrivilege,
    NvidiaManager,
    NvidiaSystem,
    Refused,
    Restart,
    SecureBoot,
    SeenSettings,
    SettingsMove,
    Wants,
    first_change,
    lock_down,
)
from drivers.redfish.update_installation import UpdateInstallation
from eventstore.errors import PermanentError
from projections.field_checks import quoted
from projections.zones.dpus import phases
from projections.zones.dpus.certificates import CERTIFICATE_FACT, ENDS_FACT
from projections.zones.dpus.phases import CONFIG_FIRMWARE, DPU_CONFIG, ON_DEVICE, OS_INSTALLING, PREPARE_IMAGE, READY

RESTART_S = 300.0
"""Longest time for which a restart may take until the operating system runs. A DPU without one never reaches that."""
RESTART_SHOWN_S = 60.0
"""Longest time from a restart until a BMC reports it."""
_RESTARTED = "restart asked"
_ON_BMC = ON_DEVICE - {PREPARE_IMAGE, DPU_CONFIG}
"""Steps with a part on the BMC. The image brings its configuration with it."""


class Wanted(NamedTuple):
    """The wishes of the objects of a DPU: its settings, and the versions in its image by entry of the inventory."""

    settings: Wants = Wants()
    versions: Mapping[str, str] = {}


FirmwareOf: TypeAlias = Callable[[str, str], Awaitable[Mapping[str, Firmware]]]
"""The packages of firmware for the BMC of a DPU with an image, by the PSID that each fits."""
WantedOf: TypeAlias = Callable[[str, str], Awaitable[Wanted]]
"""The wishes for a DPU with an image; empty if no object wants the DPU."""


class RedfishInstaller:
    """Executes steps on BMCs that speak Redfish. `url_of` has the URLs of images, and `seed_of` those of the media with
    the configurations of DPUs that are installed from virtual media; `firmware_of` has the firmware of BMCs."""

    def __init__(
        self,
        context: Context,
        url_of: UrlOf,
        wanted_of: WantedOf,
        *,
        seed_of: UrlOf = no_url,
        firmware_of: FirmwareOf | None = None,
    ) -> None:
        self._context = context
        self._url_of = url_of
        self._seed_of = seed_of
        self._firmware_of = firmware_of
        self._wanted_of = wanted_of

    async def run(self, attempt: Attempt) -> Mapping[str, str]:
        """Execute the step. Returns the facts that the device reports afterwards."""
        if attempt.dpu.phase == PREPARE_IMAGE:
            await self._url(attempt)
        if attempt.dpu.phase == READY:
            return await self._renewed(attempt)
        if attempt.dpu.phase not in _ON_BMC:
            return {}
        if attempt.dpu.phase == CONFIG_FIRMWARE and self._firmware_of is not None:
            packages = await self._firmware_of(attempt.name, attempt.dpu.image)
            if packages:
                await FirmwareUpdate(attempt, self._context, packages).run()
        async with connected(attempt, self._context) as bmc:
            wanted = await self._wanted_of(attempt.name, attempt.dpu.image)
            try:
                await self._execute(bmc, wanted)
            except TaskFailed as error:
                if hint := await latest_faults(bmc):
                    raise type(error)(f"{error}; the event log of the BMC says: {hint}") from error
                raise
            return await _facts(bmc)

    async def _renewed(self, attempt: Attempt) -> Mapping[str, str]:
        """The facts about the certificate of the BMC of a Ready DPU, which a connection renews if it is time."""
        async with connected(attempt, self._context) as bmc:
            ends = bmc.verdict.ends
            if ends is not None and ends - utc(self._context.now_ms()) < REPORT_BEFORE:
                raise NeedsOperator(
                    f"certificate: that of {bmc.client.host} ends on {day_of(ends)}; the plane has no bmc_ca_key"
                )
            return _certificate_facts(bmc) if ends is not None else {ENDS_FACT: ""}

    async def _execute(self, bmc: Connection, wanted: Wanted) -> None:
        match bmc.attempt.dpu.phase:
            case phases.INITIALIZE_INTERFACE:
                await _settle(bmc, wanted.settings, locks=False)
            case phases.CONFIG_FIRMWARE:
                await _settle(bmc, wanted.settings, locks=True)
            case phases.OS_INSTALLING:
                await self._install(bmc, wanted)
            case phases.REBOOTING:
                await _reboot(bmc)

    async def _install(self, bmc: Connection, wanted: Wanted) -> None:
        attempt = bmc.attempt
        url = partial(self._url, attempt)
        if bmc.root.is_bluefield_4:
            seed_url = partial(self._seed_of, attempt.name, attempt.dpu.image)
            await MediaInstallation(bmc, url, seed_url, wanted.versions).run()
        else:
            await UpdateInstallation(bmc, url, wanted.versions).run()

    async def _url(self, attempt: Attempt) -> str:
        """The URL of the image."""
        if url := await self._url_of(attempt.name, attempt.dpu.image):
            return url
        raise NeedsOperator(
            f"image: there is no file for {quoted(attempt.dpu.image)}: no object wants this DPU, and no BFB has this "
            "name; apply a BFB with it, or objects that select the DPUDevice of the DPU"
        )


async def _settle(bmc: Connection, wants: Wants, *, locks: bool) -> None:
    """Make the changes that are lacking, one by one, each after a new read."""
    sent: set[str] = set()
    restarts = 0
    while True:
        seen = await _read_settings(bmc)
        move: SettingsMove = lock_down(wants, seen, sent) if locks else first_change(wants, seen, sent, restarts)
        match move:
            case None:
                return
            case Change(name, request):
                sent.add(name)
                await bmc.attempt.call(partial(bmc.client.send, request))
            case Restart():
                restarts += 1
                before = (await bmc.read_system()).boot_id
                await bmc.restart()
                await _until_restarted(bmc, before)
            case Refused(kind, message):
                error: type[PermanentError] = NeedsOperator if kind == "operator" else TaskFailed
                raise error(message)


async def _read_settings(bmc: Connection) -> SeenSettings:
    call, client = bmc.attempt.call, bmc.client
    nvidia = await call(partial(client.find, f"{bmc.system}/Oem/Nvidia", NvidiaSystem), alters=False)
    manager = await call(partial(client.find, f"{bmc.manager}/Oem/Nvidia", NvidiaManager), alters=False)
    secure = await call(partial(client.find, f"{bmc.system}/SecureBoot", SecureBoot), alters=False)
    bios = await call(partial(client.find, f"{bmc.system}/Bios", Bios), alters=False)
    pending = await call(partial(client.find, f"{bmc.system}/Bios/Settings", Bios), alters=False) if bios else None
    attributes = None if bios is None else {**(bios.attributes or {}), **((pending and pending.attributes) or {})}
    rshim = manager.rshim.is_enabled if manager is not None and manager.rshim is not None else None
    privilege = await _read_privilege(bmc) if bmc.root.is_bluefield_4 else None
    return SeenSettings(bmc.system, bmc.manager, nvidia, rshim, secure, attributes, privilege)


async def _read_privilege(bmc: Connection) -> HostPrivilege | None:
    """The privilege of the host, from the first network adapter of the card."""
    call, client = bmc.attempt.call, bmc.client
    chassis = await call(partial(card_chassis, client, bmc.root), alters=False)
    if not chassis:
        return None
    adapters = await call(partial(client.members, Link(f"{chassis}/NetworkAdapters")), alters=False)
    if not adapters:
        return None
    path = f"{adapters[0]}/Oem/Nvidia/HostPrivilegeConfig/Settings"
    return await call(partial(client.find, path, HostPrivilege), alters=False)


async def _reboot(bmc: Connection) -> None:
    """Restart the DPU once, also if an earlier attempt did it without reporting."""
    before = bmc.attempt.dpu.facts.get("boot_id", "")
    if bmc.attempt.dpu.task == _RESTARTED:
        if await _is_restarted(bmc, before):
            await _until_restarted(bmc, before)
            return
    elif before and (await bmc.read_system()).boot_id not in ("", before):
        await _until_restarted(bmc, before)
        return
    before = (await bmc.read_system()).boot_id
    await bmc.attempt.report_progress(_RESTARTED, 0)
    await bmc.restart()
    await _until_restarted(bmc, before)


async def _is_restarted(bmc: Connection, before: str) -> bool:
    """Whether the restart that an earlier attempt asked for shows within its time."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + RESTART_SHOWN_S
    while (await bmc.read_system()).boot_id in ("", before):
        if loop.time() > ends_s:
            return False
        await asyncio.sleep(bmc.attempt.timing.poll_max_s)
    return True


async def _until_restarted(bmc: Connection, before: str) -> None:
    """Wait until the DPU has restarted. A BMC may not respond in between. Raises TaskFailed if it never does."""
    loop = asyncio.get_running_loop()
    began_s, wait_s = loop.time(), bmc.attempt.timing.poll_s
    while True:
        await asyncio.sleep(wait_s)
        wait_s = min(wait_s * 1.5, bmc.attempt.timing.poll_max_s)
        passed_s = loop.time() - began_s
        try:
            system = await bmc.read_system()
        except Unreachable:
            if passed_s > RESTART_S:
                raise
            continue
        has_booted = system.boot_id not in ("", before)
        if has_booted and system.is_up:
            return
        if passed_s > RESTART_S and (has_booted or not system.boot_id):
            return  # it has no operating system, or its BMC reports no boots
        if passed_s > RESTART_S:
            raise TaskFailed(f"boot_id: the DPU did not restart: its last boot is still {quoted(before)}")


async def _facts(bmc: Connection) -> dict[str, str]:
    """The facts of a DPU after a step."""
    dpu, system, versions = bmc.attempt.dpu, await bmc.read_system(), await bmc.read_versions()
    facts = {"serial": bmc.serial, "boot_id": system.boot_id, **_certificate_facts(bmc)}
    facts |= {VERSIONS[name]: version for name, version in versions.items()}
    if dpu.phase == OS_INSTALLING:
        facts["image"] = dpu.image
    return checked_facts(facts, "device")


def _certificate_facts(bmc: Connection) -> dict[str, str]:
    ends = bmc.verdict.ends
    return {CERTIFICATE_FACT: bmc.verdict.fact, ENDS_FACT: "" if ends is None else day_of(ends)}
