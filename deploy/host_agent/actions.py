"""The actions of the agent of a host, by the action of a task.

An action may be killed at any moment and run again from its beginning: it reads the host first, and does what is
missing.
"""

from __future__ import annotations

from typing import Protocol

from schemas.api import dpuplane_pb2 as pb


class Progress(Protocol):
    """Reports a percentage and what the action waits for.

    A report that is required precedes what must not happen twice: an action that runs again must know of it. Raises
    CallFailed or PermanentError if the plane has not recorded it. Another report is best effort: the result says
    whether the plane has recorded it.
    """

    async def __call__(self, percent: int, message: str, *, is_required: bool = False) -> bool: ...


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
