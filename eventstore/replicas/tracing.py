"""Following single commands through the log: what a replica tells whoever does it, and what goes with a record.

Which trace a record belongs to stands beside it in its headers, as W3C's trace context has it. Nothing is decided by
it, and its content hash is that of the value alone, so a copy of a command is a copy whoever follows it. Without
anybody who follows, a replica pays for one comparison per append and per slice of records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eventstore.log import Headers, Partition, Record
from schemas.events import Event


class Appending(Protocol):
    """An append that is followed."""

    @property
    def headers(self) -> Headers:
        """What goes with the record."""
        ...

    def ended(self, error: BaseException | None) -> None:
        """It was acknowledged, or ended in this error."""
        ...


class Tracing(Protocol):
    """Who follows. Everything here returns at once and never raises."""

    def appending(self, partition: Partition, event: Event) -> Appending | None:
        """This is about to be appended; None if nobody follows it."""
        ...

    def folded(self, partition: Partition, records: Sequence[Record]) -> None:
        """These were folded, some of which may be followed."""
        ...
