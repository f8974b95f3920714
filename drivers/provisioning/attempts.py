"""An attempt at a step of a DPU, as its executor sees it; the protocol of executors, and the checks that they share.

An executor executes the steps that the table of steps assigns to it: on the device, on its node, or in its cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol, TypeVar

from drivers.backends.bmc import NeedsOperator, TaskFailed, Unreachable
from projections.field_checks import check_text, is_printable, quoted
from projections.zones.dpus.decide import MAX_MESSAGE
from projections.zones.dpus.phases import Step
from projections.zones.rows import Dpu

_Result = TypeVar("_Result")


class CallTiming(NamedTuple):
    """Timing of the calls of an executor, in seconds."""

    call_s: float = 30.0
    """Timeout of one call."""
    prompt_s: float = 1.0
    """Time after which a call releases its slot. From then on, the call only waits for its device, and must not delay
    other calls."""
    poll_s: float = 0.2
    """First interval of polling a task; each further one is 1.5 times as long."""
    poll_max_s: float = 5.0
    """Longest interval of polling a task."""


class AttemptSuperseded(Exception):
    """The log names another attempt now: this attempt must no longer act or append."""


class Calls(Protocol):
    """Calls to hosts and stores: those of an attempt at a step, or of a task that cleans up after attempts."""

    async def call(self, make: Callable[[], Awaitable[_Result]], *, alters: bool = True) -> _Result:
        """Make one call within its time limit. A call that alters something waits until that is allowed."""
        ...

    async def report_wait(self, message: str, reported: str) -> str:
        """Report what is waited for, unless it was reported last. Returns the message."""
        ...


class TimedCalls:
    """The calls of an actor that has no attempt. `check` raises what ends its work."""

    def __init__(self, check: Callable[[], None] = lambda: None, call_s: float = CallTiming().call_s) -> None:
        self._check = check
        self._call_s = call_s

    async def call(self, make: Callable[[], Awaitable[_Result]], *, alters: bool = True) -> _Result:
        self._check()
        try:
            async with asyncio.timeout(self._call_s):
                return await make()
        except TimeoutError:
            raise Unreachable(f"host: no response within {self._call_s:g} s") from None

    async def report_wait(self, message: str, reported: str) -> str:
        return message


class Attempt(NamedTuple):
    """The context of an attempt. `name` is the DPU's. `check` raises AttemptSuperseded. `until_thawed` waits until
    the DPU's zone is not frozen. `report_progress` returns once the fold shows the progress. `calls` limits the
    concurrent calls of this process; calls that take longer than `prompt_s` do not count.
    """

    name: str
    dpu: Dpu
    step: Step
    check: Callable[[], None]
    until_thawed: Callable[[], Awaitable[None]]
    report_progress: Callable[[str, int], Awaitable[None]]
    calls: asyncio.Semaphore
    timing: CallTiming

    async def report_wait(self, message: str, reported: str) -> str:
        """Report what the attempt waits for, unless it was reported last. Returns the message."""
        if message != reported:
            line = "".join(char if is_printable(char) else " " for char in message[:MAX_MESSAGE])
            await self.report_progress(line, 0)
        return message

    async def call(self, make: Callable[[], Awaitable[_Result]], *, alters: bool = True) -> _Result:
        """Make one call to the device within its time limit, if this attempt is still current. A call that alters the
        device waits for a thaw first.
        """
        if alters:
            await self.until_thawed()  # before a slot is taken: thousands may wait here, and continue together
        async with _call_slot(self.calls, self.timing.prompt_s):
            if alters:
                await self.until_thawed()
            self.check()
            try:
                async with asyncio.timeout(self.timing.call_s):
                    return await make()
            except TimeoutError:
                raise Unreachable(f"device: no response within {self.timing.call_s:g} s") from None


@asynccontextmanager
async def _call_slot(places: asyncio.Semaphore, prompt_s: float) -> AsyncIterator[None]:
    """Hold a slot for a device call. It is released after `prompt_s` seconds even if the call has not returned, so that
    hung devices do not block the others.
    """
    await places.acquire()
    is_held = True

    def let_go() -> None:
        nonlocal is_held
        if is_held:
            is_held = False
            places.release()

    late = asyncio.get_running_loop().call_later(prompt_s, let_go)
    try:
        yield
    finally:
        late.cancel()
        let_go()


def check_serial(registered: str, serial: str) -> None:
    """Raise NeedsOperator for another card than the registered one, before anything on it is changed. An empty serial
    number is unknown."""
    if registered and serial and serial != registered:
        raise NeedsOperator(f"serial: the device has {quoted(serial)}, but {quoted(registered)} is registered")


def checked_facts(facts: Mapping[str, str], reporter: str) -> dict[str, str]:
    """The facts that have a value. Raises TaskFailed for a value that the log does not accept: the log would refuse the
    event of this step again and again, until its deadline."""
    for key, value in facts.items():
        if fault := check_text(key, value):
            raise TaskFailed(f"{fault}; the {reporter} reported this value")
    return {key: value for key, value in facts.items() if value}


class Executor(Protocol):
    """Executes steps. A step may be executed twice, and an attempt may end at any call. Each attempt therefore first
    reads the state that an earlier attempt has left."""

    async def run(self, attempt: Attempt) -> Mapping[str, str]:
        """Execute the step of this attempt, with every call through `attempt.call`. Returns the facts learned.

        Raises AttemptSuperseded, and the errors of drivers.backends.bmc, which stand for the kinds of failures.
        """
        ...
