"""Hooks that a relay calls as a change travels to the devices, for traces: in order, of every zone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from drivers.relays.reports import Level


class DeliveryHooks(Protocol):
    """Tracing hooks. They return immediately and never raise."""

    def distributing(self, versions: Mapping[str, int]) -> None:
        """All that is folded was taken in, and these zones have a new version by it."""
        ...

    def sent(self, zone: str, version: int) -> None:
        """A frame to this version left for a DPU of the zone."""
        ...

    def reached(self, zone: str, version: int, level: Level) -> None:
        """DPUs of the zone have this version at this level."""
        ...
