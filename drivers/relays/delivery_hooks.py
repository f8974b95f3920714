"""Tracing hooks of a relay, called as a change travels to the devices, in order, for every zone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from projections.installs.rows import Level


class DeliveryHooks(Protocol):
    """Tracing hooks. They return immediately and never raise."""

    def distributing(self, versions: Mapping[str, int]) -> None:
        """Called when a relay has read all folded changes; they gave these zones a new version."""
        ...

    def sent(self, zone: str, version: int) -> None:
        """Called when a frame that leads to this version was sent to a DPU of the zone."""
        ...

    def reached(self, zone: str, version: int, level: Level) -> None:
        """Called when DPUs of the zone have reached this level for this version."""
        ...
