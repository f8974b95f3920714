"""A relay's reports to the log about network documents: differences to what the log knows, many DPUs in one record."""

from __future__ import annotations

from collections.abc import Iterable

from drivers.relays.link_networks import LinkNetworks, Said
from eventstore.ids import internal_envelope
from projections.zones.dpus.networks import MAX_ENTRIES
from schemas.events import NetworksReported


class NetworkReport:
    """The news of the agents of one zone, which the log does not know: DPUs by content, over all links."""

    def __init__(self, links: Iterable[LinkNetworks]) -> None:
        self._ordinals: dict[Said, int] = {}
        self._told: list[tuple[LinkNetworks, int]] = []
        for link in links:
            for said, members in link.news().items():
                if said not in self._ordinals and len(self._ordinals) == MAX_ENTRIES:
                    continue  # the next report has it
                self._ordinals[said] = self._ordinals.get(said, 0) | link.ordinals(members)
                self._told.append((link, members))

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
        for link, members in self._told:
            link.reported(members)
