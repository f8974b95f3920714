"""The protocol of a DPU's management controller (BMC), as a provisioner uses it.

A repeated call can harm a device. Every call therefore carries a fencing token. The token identifies the attempt and is
higher than the token of every earlier attempt, in every zone and log. The device stores the highest token that opened a
session and refuses all lower ones. A successor opens a session first; from then on, calls of its predecessor are
refused. A long operation is a task of the device: it outlives the caller and names the attempt that started it, so that
a successor adopts the task instead of repeating it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol, TypeAlias

from eventstore.errors import PermanentError, TransientError
from projections.field_checks import quoted

TaskState: TypeAlias = Literal["running", "done", "failed", "cancelled"]

_URL_TOKEN = re.compile(r"Wy[I-L][A-Za-z0-9_-]{40,}(?:\.[A-Za-z0-9_-]*)?")
"""The token in the URL of an image: the base64 of a JSON list that begins with a text, and a signature."""


def without_tokens(text: str) -> str:
    """A text of a device without the tokens of URLs. A device may repeat the URL of its image in an error or in the id
    of a task. A token is a secret, and records and logs have many readers."""
    return _URL_TOKEN.sub("[token]", text)


class Unreachable(TransientError):
    """The device did not respond, or is busy; the outcome of the call is unknown."""


class SessionEnded(TransientError):
    """A later attempt has opened a session: this attempt must not call the device again."""


class TaskFailed(PermanentError):
    """The device reported that an action failed, or that it did a different action."""


class NeedsOperator(PermanentError):
    """The fault needs an operator: a missing image, wrong credentials, a replaced card."""


class Task(NamedTuple):
    """A task of the device, started by the attempt `token`."""

    id: str
    action: str
    image: str
    token: int
    state: TaskState
    percent: int
    message: str = ""


class Reading(NamedTuple):
    """The state that a device reports; fields are empty if unreported. `tasks` are its most recent tasks, in order."""

    serial: str
    image: str
    boot_id: str
    tasks: tuple[Task, ...]


class Bmc(Protocol):
    """One BMC. Any call may raise Unreachable, SessionEnded, TaskFailed or NeedsOperator."""

    async def open(self, token: int) -> Reading:
        """Open a session, end all sessions with lower tokens, and read the device."""
        ...

    async def read(self, token: int) -> Reading:
        """Read the device."""
        ...

    async def start(self, token: int, action: str, image: str, url: str = "") -> Task:
        """Start the task of the step with this name. Raises Unreachable while another task runs.

        `url` is where the device finds the image and its configuration. It has a secret token. It is empty for an image
        that the device knows by its name.
        """
        ...

    async def cancel(self, token: int, task: str) -> None:
        """Cancel a running task; no error if it has ended."""
        ...


Connect: TypeAlias = Callable[[str], Bmc]
"""The BMC at an address in the form of `DpuRegistered`. Raises NeedsOperator for an address that it cannot reach."""


def by_scheme(backends: Mapping[str, Connect]) -> Connect:
    """Select the backend by the scheme of an address: the part before the first colon."""

    def connect(address: str) -> Bmc:
        scheme, colon, _ = address.partition(":")
        backend = backends.get(scheme)
        if backend is None or not colon:
            known = ", ".join(f"{name}:" for name in sorted(backends))
            raise NeedsOperator(f"bmc_address: {quoted(address)} must begin with one of {known}")
        return backend(address)

    return connect
