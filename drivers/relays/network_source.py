"""The relay's port to the log for network documents: what is wanted on each DPU, and what is known of it.

`replica_networks` implements it with the folds of a replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from projections.zones.rows import DpuNetwork
from schemas.events import NetworksReported


class NetworkSource(Protocol):
    """The network documents of DPUs, as far as the log was read."""

    @property
    def epoch(self) -> int:
        """The generation of the log."""
        ...

    async def changed(self) -> None:
        """Wait until documents, or what the log knows of them, may have changed."""
        ...

    def since(self, zone: str, revision: int) -> tuple[int, Sequence[str] | None]:
        """The present revision of a zone's documents, and the DPUs whose documents changed after the given one; None if
        those are not known any more."""
        ...

    def wanted(self, zone: str, dpu: str) -> DpuNetwork | None:
        """The document that is wanted on a DPU, and what the log knows of it."""
        ...

    def text(self, zone: str, digest: str) -> bytes:
        """The bytes of a document that is wanted in a zone."""
        ...

    async def report(self, event: NetworksReported) -> None:
        """Append a report. Raises TransientError if its outcome is unknown or a retry may succeed, PermanentError if
        the log refuses it."""
        ...
