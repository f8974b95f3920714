"""Simulated BMCs: devices with latency, lost calls, failures, hangs and false results, set by options and a seed.

A device is data and a clock, without a task. An action is a record of its start and its duration, so it continues
without observers and outlives every provisioner. Addresses are `simulated:NAME`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from drivers.backends.bmc import (
    Bmc,
    NeedsOperator,
    Reading,
    SessionEnded,
    Task,
    TaskState,
    Unreachable,
)
from drivers.backends.simulated_failures import Failure, InjectedFailures
from projections.field_checks import quoted
from projections.zones.dpus.phases import STEP_NAMES

SCHEME = "simulated:"

_LAST_TASKS = 8

WORK_S: Mapping[str, float] = {"install": 2.0, "firmware": 0.5, "reboot": 1.0, "drain": 0.3}
_OTHER_WORK_S = 0.1
"""Duration of other tasks, in seconds, at pace 1."""

_Answer = TypeVar("_Answer")


class Transfer(Protocol):
    """A transfer of an image to a device."""

    @property
    def is_done(self) -> bool: ...

    @property
    def fault(self) -> str: ...


Transfers: TypeAlias = Callable[[str], Transfer]
"""Begins the transfer from a URL to a device. Without one, a device knows each image by its name."""


class BmcFaults(NamedTuple):
    """Faults of BMCs. Shares are of calls; for `fail` and `lie`, of tasks."""

    latency_s: float = 0.005
    """Mean latency of a call, exponentially distributed."""
    pace: float = 1.0
    """Factor on the duration of tasks."""
    unreachable: float = 0.0
    """The call is lost before it reaches the device."""
    mute: float = 0.0
    """The call takes effect, and its response is lost."""
    hang: float = 0.0
    """The call never ends."""
    fail: float = 0.0
    """The task ends as failed."""
    lie: float = 0.0
    """The task ends as done without an effect."""
    no_images: frozenset[str] = frozenset()
    """Images that the device cannot download: whole identities, or names for all identities of an image."""


NO_BMC_FAULTS = BmcFaults()


class SimulatedBmc:
    """One simulated BMC. `begun` lists the started actions with their attempts, for the checks of tests."""

    def __init__(
        self,
        serial: str,
        *,
        now_s: Callable[[], float],
        rng: Random,
        faults: BmcFaults = NO_BMC_FAULTS,
        injected: InjectedFailures | None = None,
        transfers: Transfers | None = None,
    ) -> None:
        self.serial = serial
        self.image = ""
        self.boots = 1
        self.drained = False
        self.faults = faults
        self.begun: list[Task] = []
        self._now_s = now_s
        self._rng = rng
        self._injected = injected or InjectedFailures(serial)
        self._transfers = transfers
        self._transfer: Transfer | None = None
        self._token = 0
        self._running: Task | None = None
        self._lies = False
        self._began_s = 0.0
        self._ended: list[Task] = []

    async def open(self, token: int) -> Reading:
        await self._take(token)
        self._token = token
        return self._answer(self._device())

    async def read(self, token: int) -> Reading:
        await self._take(token)
        return self._answer(self._device())

    async def start(self, token: int, action: str, image: str, url: str = "") -> Task:
        await self._take(token)
        if self._running is not None:
            raise Unreachable("device: another update is in progress")
        if action not in STEP_NAMES:
            raise NeedsOperator(f"step: {quoted(action)} must be one of {', '.join(STEP_NAMES)}")
        self._injected.check(action)
        if action == "install" and not self.faults.no_images.isdisjoint((image, image.partition("/")[0])):
            raise NeedsOperator(f"image: {quoted(image)} does not exist on the device")
        self._transfer = self._transfers(url) if url and self._transfers is not None else None
        return self._answer(self._begin(Task(f"{action}-{len(self.begun)}", action, image, token, "running", 0)))

    async def cancel(self, token: int, task: str) -> None:
        await self._take(token)
        if self._running is not None and self._running.id == task:
            self._end("cancelled")
        self._answer(None)

    async def _take(self, token: int) -> None:
        """Simulate the call itself: its latency, its loss, and the check of its token."""
        await asyncio.sleep(self._rng.expovariate(1 / self.faults.latency_s) if self.faults.latency_s else 0)
        if self._chance(self.faults.hang):
            await asyncio.get_running_loop().create_future()
        if self._chance(self.faults.unreachable):
            raise Unreachable("device: no route to host")
        if token < self._token:
            raise SessionEnded(f"session: attempt {self._token} opened a newer session than attempt {token}")
        self._settle()

    def _answer(self, answer: _Answer) -> _Answer:
        if self._chance(self.faults.mute):
            raise Unreachable("device: it closed the connection")
        return answer

    def _begin(self, task: Task) -> Task:
        self._running, self._began_s = task, self._now_s()
        self._lies = self._chance(self.faults.lie)
        self.begun.append(task)
        if task.action == "install" and not self._lies:
            self.image = ""
        return task

    def _settle(self) -> None:
        """Advance the device to the present time."""
        task = self._running
        if task is None:
            return
        share = (self._now_s() - self._began_s) / max(1e-9, WORK_S.get(task.action, _OTHER_WORK_S) * self.faults.pace)
        transfer = self._transfer
        if transfer is not None and transfer.fault:
            self._end("failed", transfer.fault)
        elif share < 1 or (transfer is not None and not transfer.is_done):
            self._running = task._replace(percent=min(99, int(share * 100)))
        elif self._chance(self.faults.fail):
            self._end("failed", "writing the flash failed")
        else:
            if not self._lies:
                self._do(task)
            self._end("done")

    def _do(self, task: Task) -> None:
        match task.action:
            case "install":
                self.image = task.image
                self.boots += 1
            case "reboot":
                self.boots += 1
            case "drain":
                self.drained = True
            case "undrain" | "release":
                self.drained = False

    def _end(self, state: TaskState, message: str = "") -> None:
        assert self._running is not None
        percent = 100 if state == "done" else self._running.percent
        self._transfer = None
        self._ended.append(self._running._replace(state=state, percent=percent, message=message))
        del self._ended[:-_LAST_TASKS]
        self._running = None

    def _device(self) -> Reading:
        running = () if self._running is None else (self._running,)
        return Reading(self.serial, self.image, f"boot-{self.boots}", (*self._ended, *running))

    def _chance(self, share: float) -> bool:
        return share > 0 and self._rng.random() < share


class SimulatedBmcs:
    """The simulated BMCs of a plane by name, created on first use. `serial_of` gives their serial numbers."""

    def __init__(
        self,
        *,
        now_s: Callable[[], float],
        rng: Random,
        faults: BmcFaults = NO_BMC_FAULTS,
        serial_of: Callable[[str], str] = lambda name: "",
        failures: Sequence[Failure] = (),
        transfers: Transfers | None = None,
    ) -> None:
        self._transfers = transfers
        self.devices: dict[str, SimulatedBmc] = {}
        self._now_s = now_s
        self._rng = rng
        self._faults = faults
        self._serial_of = serial_of
        self._failures = failures

    def connect(self, address: str) -> Bmc:
        """The device at an address. Raises NeedsOperator for an unknown address."""
        name = address.removeprefix(SCHEME)
        if name == address or not name:
            raise NeedsOperator(f"bmc_address: {quoted(address)} must be {SCHEME}NAME")
        return self.device(name)

    def device(self, name: str) -> SimulatedBmc:
        """The device with this name."""
        device = self.devices.get(name)
        if device is None:
            rng = Random(self._rng.getrandbits(64))
            injected = InjectedFailures(name, self._failures)
            serial = self._serial_of(name)
            device = SimulatedBmc(
                serial,
                now_s=self._now_s,
                rng=rng,
                faults=self._faults,
                injected=injected,
                transfers=self._transfers,
            )
            self.devices[name] = device
        return device
