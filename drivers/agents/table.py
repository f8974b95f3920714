"""A DPU's table and its device: validate a frame, apply it, save the table, and read the device back.

An acknowledgement of the device is not sufficient. The device may fail during a frame, acknowledge it without applying
it, or lose rules to another program. Its table is therefore read back for every heartbeat. If the table differs, the
next frame is not applied as a delta. Instead, the device is told to hold the whole new table, whatever it holds now
(`Device.restore`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from drivers.agents.fault_log import ReadBackLog
from drivers.agents.store import TableStore
from drivers.backends.device import Device, DeviceFailed, DeviceNotReady
from drivers.wire.agent_messages import Refusal
from drivers.wire.protocol import TableStatus
from drivers.wire.relay_messages import Frame
from projections.rules import device_table
from projections.rules.device_table import EMPTY_TABLE, DeviceTable, RefusalCode, steps_between
from projections.rules.rule import SetStep

logger = logging.getLogger(__name__)

SELF = 1
"""This DPU as a set of DPUs: it is the only one on its link, with number 0."""


class AgentTable:
    """The table of one DPU."""

    def __init__(self, device: Device, store: TableStore, *, apply_s: float, read_back_s: float, slow_s: float) -> None:
        self.table = EMPTY_TABLE
        self.received = 0
        self._device = device
        self._store = store
        self._apply_s = apply_s
        self._read_back_s = read_back_s
        self._slow_s = slow_s
        self._in_hardware = 0
        self._digest = EMPTY_TABLE.digest
        """Digest of the device's table, as of the last read-back or acknowledged frame."""
        self._in_sync = False
        """Whether the device holds `table`. If not, the next frame reconciles the device instead of applying a
        delta."""
        self._busy = asyncio.Lock()
        self._read_back_log = ReadBackLog("table of the device")

    async def load(self) -> None:
        """Load the last good table."""
        self.table = self._store.load()
        self.received = self.table.version
        self._digest = self.table.digest
        if not self.table.version:  # no table was saved: the device keeps its present rules until a relay sends a table
            await self.read_back()
            return
        failure = await self._install(self.table, None, _ignore)
        if failure is not None and not isinstance(failure, DeviceNotReady):
            logger.warning("saved table not applied to the device yet: %s", failure)

    @property
    def is_busy(self) -> bool:
        """Whether the device is applying a frame or being read."""
        return self._busy.locked()

    def status(self) -> TableStatus:
        """The status of this DPU's table, as of the last read-back."""
        table = self.table
        received = max(self.received, table.version)
        return TableStatus(
            SELF, table.epoch, received, table.version, min(self._in_hardware, table.version), self._digest
        )

    async def take(self, frame: Frame, slow: Callable[[], None]) -> TableStatus | Refusal:
        """Apply or refuse a frame, and return the status afterwards. `slow` is called if the device takes long."""
        after = device_table.apply(self.table, frame.epoch, frame.delta, capacity=self._device.capacity)
        if isinstance(after, device_table.FrameRefused):
            return Refusal(self.status(), frame.delta.to_version, after.code, after.reason)
        if after.epoch == self.table.epoch:
            self.received = after.version
        if after is self.table and self._in_sync:
            return self.status()
        steps = self._steps(frame, after) if self._in_sync else None
        if (failure := await self._install(after, steps, slow)) is not None:
            return Refusal(self.status(), frame.delta.to_version, RefusalCode.DEVICE, str(failure))
        return self.status()

    def _steps(self, frame: Frame, after: DeviceTable) -> Sequence[SetStep]:
        """The steps to the table after a frame. The steps of a whole table take more memory than the table, so they are
        not computed for a device that gets the whole table."""
        return frame.delta.steps if frame.delta.from_version else steps_between(self.table, after)

    async def read_back(self) -> TableStatus:
        """Read back the device's table, unless the device is busy."""
        if self._busy.locked():
            return self.status()
        async with self._busy:
            try:
                async with asyncio.timeout(self._read_back_s):
                    self._digest = await self._device.read_back()
            except (DeviceFailed, TimeoutError) as error:
                self._read_back_log.failed(error)
            else:
                self._read_back_log.succeeded()
                self._in_sync = self._digest == self.table.digest
                self._in_hardware = self.table.version if self._in_sync else 0
        return self.status()

    async def _install(
        self, after: DeviceTable, steps: Sequence[SetStep] | None, slow: Callable[[], None]
    ) -> DeviceFailed | None:
        """Make the device hold this table. Returns the failure, or None."""
        if self._busy.locked():  # a read-back is under way and may take as long
            slow()
        async with self._busy:
            was_in_sync, self._in_sync = self._in_sync, False  # the end of a link cancels this function half-way
            try:
                if was_in_sync and steps is not None:
                    answer = self._device.apply(steps, after)
                else:
                    answer = self._device.restore(after)
                in_hardware = answer if isinstance(answer, bool) else await self._waited(answer, slow)
            except DeviceFailed as error:
                self.received = self.table.version
                return error
            except TimeoutError:
                self.received = self.table.version
                return DeviceFailed(f"the device did not apply the frame within {self._apply_s} s")
        if in_hardware:
            self._in_hardware = after.version
        elif after.epoch != self.table.epoch:  # versions of another log generation cannot be compared
            self._in_hardware = 0
        self.table, self.received = after, after.version
        self._digest, self._in_sync = after.digest, True
        self._keep(after)
        return None

    async def _waited(self, answer: Awaitable[bool], slow: Callable[[], None]) -> bool:
        """Await the answer of a slow device. This needs two timers: one that calls `slow`, and one for the timeout. A
        device that answers at once needs neither."""
        early = asyncio.get_running_loop().call_later(self._slow_s, slow)
        try:
            async with asyncio.timeout(self._apply_s):
                return await answer
        finally:
            early.cancel()

    def _keep(self, table: DeviceTable) -> None:
        try:
            self._store.save(table)
        except OSError as error:
            logger.warning("table version %d applied but not saved, a restart loses it: %s", table.version, error)


def _ignore() -> None:
    """The default for `slow`: no action."""
