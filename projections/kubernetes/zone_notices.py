"""Facts about zones that only an edge of a source cluster knows, for the Events about the zones' objects.

The edge of Nodes puts facts into this table, and the writer of statuses reads them, because only the writer knows the
objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple


class ZoneNotice(NamedTuple):
    """A fact about a zone. Its reason is that of an Event: one word in upper camel case."""

    reason: str
    message: str


class ZoneNotices:
    """The notice of each zone that has one. `on_change` gets each zone whose notice changed."""

    def __init__(self) -> None:
        self.on_change: Callable[[str], None] = lambda zone: None
        self._rows: Mapping[str, ZoneNotice] = {}

    def get(self, zone: str) -> ZoneNotice | None:
        return self._rows.get(zone)

    def replace(self, rows: Mapping[str, ZoneNotice]) -> None:
        """Set the notices of all zones."""
        before, self._rows = self._rows, dict(rows)
        for zone in sorted(before.keys() | rows.keys()):
            if before.get(zone) != rows.get(zone):
                self.on_change(zone)
