"""Blocking work on files, which must not stop the event loop.

A process of the plane runs it on a thread; the simulation and tests may run it in place. The hash functions release the
interpreter's lock, so that a thread for a large block leaves the loop free.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

_Result = TypeVar("_Result")


class Offload(Protocol):
    """Runs a function that blocks."""

    def __call__(self, work: Callable[[], _Result]) -> Awaitable[_Result]: ...


async def in_place(work: Callable[[], _Result]) -> _Result:
    """Run it at once, on the event loop."""
    return work()
