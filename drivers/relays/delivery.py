"""What a relay tells whoever follows single changes to the devices: in order, of every zone, as it happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from drivers.relays.reports import Level


class Delivery(Protocol):
    """Who follows. Everything here returns at once."""

    def distributing(self, versions: Mapping[str, int]) -> None:
        """All that is folded was taken in, and these zones have a new version by it."""
        ...

    def sent(self, zone: str, version: int) -> None:
        """A frame to this version left for a DPU of the zone."""
        ...

    def reached(self, zone: str, version: int, level: Level) -> None:
        """DPUs of the zone have this version at this level."""
        ...
