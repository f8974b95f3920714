"""What a provisioner needs of a DPU's management controller (BMC), whatever its protocol.

Doing something twice is not harmless to a device, so every call carries a token, which stands for the attempt that
makes it, and is higher than those of all attempts before, in whatever zone and log. The device remembers the highest
one that opened a session and refuses all lower ones: whoever takes over opens a session first, and from then on the one
before can do nothing. What takes long is a task of the device itself, which outlives whoever started it and says by
which attempt, so a successor adopts it instead of doing it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol, TypeAlias

from eventstore.errors import PermanentError, TransientError
from projections.field_checks import quoted

Action: TypeAlias = Literal[
    "drain",
    "initialize",
    "firmware",
    "prepare",
    "install",
    "configure",
    "reboot",
    "host-network",
    "join-cluster",
    "check-services",
    "undrain",
    "release",
]

TaskState: TypeAlias = Literal["running", "done", "failed", "cancelled"]


class Unreachable(TransientError):
    """The device did not answer, or is busy; nothing is known of the call."""


class SessionEnded(TransientError):
    """A later attempt has opened a session: this one must touch the device no more."""


class TaskFailed(PermanentError):
    """The device says that it could not do it, or that it did something else."""


class NeedsOperator(PermanentError):
    """Only a person can mend it: an image that is not there, credentials that are not right, another card."""


class Task(NamedTuple):
    """Something that the device does or did, for the attempt `token`."""

    id: str
    action: str
    image: str
    token: int
    state: TaskState
    percent: int
    message: str = ""


class Reading(NamedTuple):
    """What a device says of itself; empty for what it does not say. `tasks` are its last ones, in order."""

    serial: str
    image: str
    boot_id: str
    tasks: tuple[Task, ...]


class Bmc(Protocol):
    """One device. Any call may raise Unreachable, SessionEnded, TaskFailed or NeedsOperator."""

    async def open(self, token: int) -> Reading:
        """Open a session, which ends those of all lower tokens, and read the device."""
        ...

    async def read(self, token: int) -> Reading:
        """Read the device."""
        ...

    async def start(self, token: int, action: Action, image: str) -> Task:
        """Begin something. Refused as Unreachable while another task runs."""
        ...

    async def cancel(self, token: int, task: str) -> None:
        """End a task that runs; no error if it has ended."""
        ...


Connect: TypeAlias = Callable[[str], Bmc]
"""The BMC at an address, as `DpuRegistered` has it. Raises NeedsOperator for one that no backend knows."""


def by_scheme(backends: Mapping[str, Connect]) -> Connect:
    """The backend of an address by what it begins with, up to the first colon."""

    def connect(address: str) -> Bmc:
        scheme, colon, _ = address.partition(":")
        backend = backends.get(scheme)
        if backend is None or not colon:
            known = ", ".join(f"{name}:" for name in sorted(backends))
            raise NeedsOperator(f"bmc_address: {quoted(address)} must begin with one of {known}")
        return backend(address)

    return connect
