"""A reboot into an image, or of the running one, as one attempt executes it: it reads the device, and makes the next
move (reboot_moves)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from drivers.backends.bmc import TaskFailed, Unreachable
from drivers.gnoi.client import GnoiClient
from drivers.gnoi.reboot_moves import (
    Ask,
    Asked,
    BootTiming,
    Done,
    Failed,
    Order,
    Seen,
    Wait,
    logged_of,
    mark_of,
    next_move,
)
from drivers.provisioning.attempts import Attempt
from eventstore.errors import PlaneError

Prepare = Callable[[], Awaitable[Callable[[], Awaitable[None]]]]
"""Prepares the request for a reboot, and returns it. Preparing it may be repeated."""


class Reboot:
    """The reboot of one attempt."""

    def __init__(
        self, attempt: Attempt, client: GnoiClient, order: Order, prepare: Prepare, timing: BootTiming
    ) -> None:
        self._attempt = attempt
        self._client = client
        self._order = order
        self._prepare = prepare
        self._timing = timing
        self._logged: Asked | None = logged_of(attempt.dpu.task)
        self._is_answered = False
        self._shape: object = None
        self._since_s = asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Boot the device. Raises the errors of a device."""
        wait_s = self._attempt.timing.poll_s
        while True:
            seen = await self._look()
            if seen is not None:
                match next_move(self._order, self._logged, seen, self._timing):
                    case Done():
                        return
                    case Failed(kind, message):
                        raise (Unreachable if kind == "transient" else TaskFailed)(message)
                    case Ask():
                        await self._ask(seen)
                        wait_s = self._attempt.timing.poll_s
                        continue
                    case Wait(logged):
                        await self._note(logged)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, self._attempt.timing.poll_max_s)

    async def _look(self) -> Seen | None:
        """Read the device; None while it does not answer within the time of a reboot that this DPU's attempts asked
        for."""
        try:
            seen = await self._read()
        except Unreachable:
            is_ours = self._logged is not None and self._logged.attempt > self._order.disowned
            if not is_ours or self._quiet_s(None) > self._timing.boot_s:
                raise
            return None
        return seen._replace(quiet_s=self._quiet_s(seen))

    async def _read(self) -> Seen:
        call = self._attempt.call
        reboots = await call(self._client.read_reboots, alters=False)
        if reboots.is_active:
            return Seen(True, reboots.boots, "", "", 0.0, self._is_answered)
        running = await call(self._client.read_running, alters=False)
        failure = reboots.failure or running.failure
        return Seen(False, reboots.boots, running.version, failure, 0.0, self._is_answered)

    def _quiet_s(self, shape: object) -> float:
        """The time since the last change of the device's state."""
        now_s = asyncio.get_running_loop().time()
        if shape != self._shape:
            self._shape, self._since_s = shape, now_s
        return now_s - self._since_s

    async def _ask(self, seen: Seen) -> None:
        """Ask for the reboot once. An event is appended first, so that a successor knows that it may be asked for."""
        request = await self._prepare()
        asked = Asked(self._attempt.dpu.attempt, seen.boots, mark_of(seen.version))
        await self._attempt.report_progress(asked.text(), 0)
        self._logged, self._is_answered = asked, False
        try:
            await self._while_ours(request)
            self._is_answered = True
        except Unreachable:
            pass  # the next read shows whether the request has arrived
        finally:
            self._shape, self._since_s = None, asyncio.get_running_loop().time()

    async def _while_ours(self, request: Callable[[], Awaitable[None]]) -> None:
        """Make a request whose answer may come only after the reboot, as long as the attempt is the current one."""
        patient = self._attempt._replace(timing=self._attempt.timing._replace(call_s=self._timing.boot_s))
        running = asyncio.ensure_future(patient.call(request))
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=self._attempt.timing.poll_max_s)
                if not running.done():
                    self._attempt.check()
            await running
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError, PlaneError):
                await running

    async def _note(self, logged: Asked) -> None:
        if logged != self._logged:
            self._logged = logged
            await self._attempt.report_progress(logged.text(), 0)


def reboot(attempt: Attempt, client: GnoiClient, timing: BootTiming) -> Reboot:
    """A reboot into what the device runs."""

    async def prepare() -> Callable[[], Awaitable[None]]:
        return client.reboot

    return Reboot(attempt, client, Order("", attempt.dpu.disowned), prepare, timing)


def activation(
    attempt: Attempt, client: GnoiClient, version: str, install: Callable[[], Awaitable[str]], timing: BootTiming
) -> Reboot:
    """A reboot into another image. `install` gives the device what it lacks, and returns what is to be activated."""

    async def prepare() -> Callable[[], Awaitable[None]]:
        return partial(client.activate, await install())

    return Reboot(attempt, client, Order(version, attempt.dpu.disowned), prepare, timing)
