"""A relay's reports to the log about network documents: the statuses that the log lacks, many DPUs in one record."""

from __future__ import annotations

from collections.abc import Iterable

from drivers.relays.link_networks import DocumentStatus, LinkNetworks
from eventstore.ids import internal_envelope
from projections.zones.dpus.networks import MAX_ENTRIES
from schemas.events import NetworksReported


class NetworkReport:
    """The statuses of the agents of one zone that the log lacks: the DPUs of all links by status."""

    def __init__(self, links: Iterable[LinkNetworks]) -> None:
        self._ordinals: dict[DocumentStatus, int] = {}
        self._reported: list[tuple[LinkNetworks, int]] = []
        for link in links:
            for status, members in link.unreported().items():
                if status not in self._ordinals and len(self._ordinals) == MAX_ENTRIES:
                    continue  # the next report has it
                self._ordinals[status] = self._ordinals.get(status, 0) | link.ordinals(members)
                self._reported.append((link, members))

    def __bool__(self) -> bool:
        """Whether there is anything to report."""
        return bool(self._ordinals)

    def event(self, zone: str, relay: str, now_ms: int) -> NetworksReported:
        """The report as an event."""
        versions, applied, unresolved, refusals = zip(*self._ordinals, strict=True)
        return NetworksReported(
            internal_envelope(zone, f"relay/{relay}", now_ms),
            zone,
            relay,
            [*versions],
            [*applied],
            [each.to_bytes((each.bit_length() + 7) // 8, "little") for each in self._ordinals.values()],
            [",".join(names) for names in unresolved],
            [*refusals],
        )

    def landed(self) -> None:
        """The log has the report."""
        for link, members in self._reported:
            link.mark_reported(members)
