"""An update of a BMC's own firmware, as one attempt executes it: it reads the BMC, and makes the next move
(firmware_moves). The BMC restarts in the middle of an update, and the attempt connects again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from drivers.backends.bmc import NeedsOperator, TaskFailed, Unreachable
from drivers.images.deliveries import Firmware
from drivers.provisioning.attempts import Attempt
from drivers.redfish.answers import Unauthorized
from drivers.redfish.connection import Connection, Context, card_chassis, connected
from drivers.redfish.firmware_moves import (
    Activate,
    Current,
    FirmwareFailed,
    FirmwareLogged,
    FirmwareOrder,
    FirmwareWait,
    RestartAsked,
    SeenFirmware,
    SubmitFirmware,
    firmware_text,
    has_pull_failed,
    is_pushed,
    logged_firmware,
    next_firmware_move,
)
from drivers.redfish.polling import FAILED_READS_MAX, Polling
from drivers.redfish.pushes import UpdateService, is_to_be_pushed, push
from drivers.redfish.resources import ROOT, Chassis, Request, Software
from drivers.redfish.update_installation import read_tasks, simple_update, task_of
from drivers.redfish.update_moves import Asked, Started, target_of
from projections.field_checks import quoted
from projections.resources.specs import JSON

BMC_RESTART_S = 900.0
"""Longest time for which a BMC may take to answer again after it was restarted with new firmware."""
_SERVICE = f"{ROOT}/UpdateService"
_INVENTORY = f"{_SERVICE}/FirmwareInventory"
_PENDING = f"{_INVENTORY}/Pending_Bundle"


class FirmwareUpdate:
    """The update of one attempt. `packages` are those that objects name, by the PSID of the card that each fits. One
    with an empty PSID fits every card."""

    def __init__(self, attempt: Attempt, context: Context, packages: Mapping[str, Firmware]) -> None:
        self._attempt = attempt
        self._context = context
        self._packages = packages
        self._logged: FirmwareLogged = logged_firmware(attempt.dpu.task)
        self._is_pushed = is_pushed(attempt.dpu.task)
        self._reported: object = None
        self._polling = Polling(attempt.timing)

    async def run(self) -> None:
        """Update the firmware, unless the BMC has it. Raises the errors of a device."""
        loop, ends_s = asyncio.get_running_loop(), 0.0
        while True:
            try:
                async with connected(self._attempt, self._context) as bmc:
                    if not await self._until_restarted(bmc, is_back=ends_s > 0.0):
                        return
                ends_s = loop.time() + BMC_RESTART_S
            except (Unreachable, Unauthorized):
                if loop.time() >= ends_s:
                    raise
            await asyncio.sleep(self._attempt.timing.poll_max_s)

    async def _until_restarted(self, bmc: Connection, *, is_back: bool) -> bool:
        """Make moves until the BMC was asked to restart; False once it has the firmware. A BMC that restarts ends the
        session, so that a caller which waits for it connects anew."""
        package = await self._package(bmc)
        dpu = self._attempt.dpu
        order = FirmwareOrder(package.versions, target_of(package.url), dpu.attempt, dpu.disowned)
        self._polling.restart()
        while True:
            failures_max = 0 if is_back else FAILED_READS_MAX
            seen = await self._polling.read(partial(self._look, bmc), failures_max=failures_max)
            match next_firmware_move(order, self._logged, seen):
                case Current():
                    return False
                case FirmwareFailed(kind, message):
                    raise (Unreachable if kind == "transient" else TaskFailed)(message)
                case SubmitFirmware(known):
                    await self._submit(bmc, package, known)
                    self._polling.restart()
                case Activate():
                    await self._activate(bmc)
                    return True
                case FirmwareWait(percent, started):
                    if started is not None:
                        await self._report(started, percent)
                    await self._polling.pause()

    async def _package(self, bmc: Connection) -> Firmware:
        """The package for this card."""
        call, client = self._attempt.call, bmc.client
        path = await call(partial(card_chassis, client, bmc.root), alters=False)
        chassis = await call(partial(client.find, path, Chassis), alters=False) if path else None
        psid = (chassis and chassis.asset_tag) or ""
        packages = {name.lower(): package for name, package in self._packages.items()}
        package = packages.get(psid.lower()) or packages.get("")
        if package is None:
            raise NeedsOperator(f"pldmFwBundle: it has no firmware for a card with the PSID {quoted(psid)}")
        if not package.versions:
            raise NeedsOperator(f"firmware: {package.name} is not a package of PLDM whose versions can be read")
        return package

    async def _look(self, bmc: Connection) -> SeenFirmware:
        logged = self._logged
        own = logged.task if isinstance(logged, Started) and logged.attempt > self._attempt.dpu.disowned else ""
        tasks = await read_tasks(bmc, own)
        version = await self._version(bmc, f"{_INVENTORY}/{bmc.firmware_entry}")
        if not version:
            raise NeedsOperator(f"firmware: {bmc.client.host} reports no version of its own in {bmc.firmware_entry}")
        pending = await self._version(bmc, _PENDING)
        shape = tuple((task.id, task.state) for task in tasks), version, pending
        return SeenFirmware(tasks, version, pending, self._polling.quiet_s(shape))

    async def _version(self, bmc: Connection, path: str) -> str:
        found = await self._attempt.call(partial(bmc.client.find, path, Software), alters=False)
        return (found and found.version) or ""

    async def _submit(self, bmc: Connection, package: Firmware, known: tuple[str, ...]) -> None:
        """Send the update once. An event is appended first, so that a successor knows that it may have been sent."""
        service = await self._attempt.call(partial(bmc.client.read, _SERVICE, UpdateService), alters=False)
        dpu = self._attempt.dpu
        failed = has_pull_failed(dpu.task, dpu.disowned)
        self._is_pushed = is_to_be_pushed(service, package.url.partition("://")[0], has_pull_failed=failed)
        asked = Asked(self._attempt.dpu.attempt, known)
        await self._report(asked, 0)
        targets = [] if bmc.root.is_bluefield_4 else [f"{_INVENTORY}/{bmc.firmware_entry}"]  # a bundle names its own
        if self._is_pushed:
            async with self._context.pushes:
                answer = await push(bmc, service, package, targets)
        else:
            answer = await self._attempt.call(partial(bmc.client.send, simple_update(package.url, targets)))
        if name := task_of(bmc, answer):
            await self._report(Started(name, asked.attempt), 0)

    async def _activate(self, bmc: Connection) -> None:
        """Restart the BMC with the new firmware, and with a BlueField-4 the whole card."""
        await self._report(RestartAsked(self._attempt.dpu.attempt), 100)
        self._polling.moved()
        if bmc.root.is_bluefield_4:
            body: JSON = {"Targets": [{"@odata.id": _PENDING}]}
            activate = Request("POST", f"{ROOT}/UpdateService/Actions/UpdateService.Activate", body)
            await self._attempt.call(partial(bmc.client.send, activate))
            await bmc.reset_card("FullReset")
            return
        restart = Request("POST", f"{bmc.manager}/Actions/Manager.Reset", {"ResetType": "GracefulRestart"})
        await self._attempt.call(partial(bmc.client.send, restart))

    async def _report(self, logged: Asked | Started | RestartAsked, percent: int) -> None:
        """Append what was done, and each quarter of the progress of a task."""
        self._logged = logged
        if (shown := (logged, percent // 25)) != self._reported:
            self._reported = shown
            await self._attempt.report_progress(firmware_text(logged, is_pushed=self._is_pushed), percent)
