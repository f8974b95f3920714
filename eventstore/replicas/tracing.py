"""Tracing hooks of a replica: which trace an appended record belongs to, and which records were folded.

The trace of a record is in its headers, as in W3C's trace context. No fold reads the trace. The digest of a command
covers only the record value, so copies of a command count as copies even if their traces differ. Without tracing, a
replica pays for one comparison per append and per slice of records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eventstore.log import Headers, Partition, Record
from schemas.events import Event


class TracedAppend(Protocol):
    """An append under way that belongs to a trace."""

    @property
    def headers(self) -> Headers:
        """The headers to append the record with."""
        ...

    def finish(self, error: BaseException | None) -> None:
        """Called when the append was acknowledged (None), or ended with this error."""
        ...


class LogTracing(Protocol):
    """Tracing hooks. They return immediately and never raise."""

    def on_append(self, partition: Partition, event: Event) -> TracedAppend | None:
        """Called before an event is appended; returns None if the event belongs to no trace."""
        ...

    def on_fold(self, partition: Partition, records: Sequence[Record]) -> None:
        """Called after these records were folded; some of them may belong to a trace."""
        ...
