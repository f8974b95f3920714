"""What the agent of a host does for the steps of DPUs, by the action of the task.

An action may be killed at any moment and run again from its beginning: it reads the host first, and does what is
missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from schemas.api import dpuplane_pb2 as pb

Progress: TypeAlias = Callable[[int, str], Awaitable[None]]
"""Reports a percentage and what the action waits for."""


class ActionFailed(Exception):
    """The host could not do a task. The message is the reason, in one sentence."""


class Action(Protocol):
    """Does the tasks of one kind."""

    async def run(self, task: pb.HostTask, progress: Progress) -> None:
        """Do a task. Raises ActionFailed."""
        ...


class NothingToDo:
    """The action of a step that concerns nothing on the host."""

    async def run(self, task: pb.HostTask, progress: Progress) -> None:
        return None
