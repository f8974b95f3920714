"""The protocol by which a search asks an address whether the BMC of a DPU answers there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from eventstore.errors import PermanentError
from projections.resources.discovery import Probed


class NotUsable(PermanentError):
    """A BMC answered, and its DPU cannot be used: wrong credentials, or no serial number."""


def ignore() -> None:
    """The caller needs not know whether a BMC answers."""


class Prober(Protocol):
    """Identifies DPUs by their BMCs. A probe changes nothing on a device but a factory password."""

    async def probe(self, address: str, port: int, answers: Callable[[], None] = ignore) -> Probed | None:
        """The DPU whose BMC answers at an address; None if none answers. Raises NotUsable. `answers` is called once
        the BMC of a DPU answers: its identification may then take longer."""
        ...
