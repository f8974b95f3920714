"""An event type that only tests have: this declaration, and a line in `extended_build`, are all of it."""

from __future__ import annotations

from schemas.envelope import Event


class NoteWritten(Event, frozen=True, gc=False):
    """A note about a subject."""

    schema_id = 9_001
    number: int
    text: str
