"""An event type that exists only for tests. It needs this declaration and one line in `extension.build`."""

from __future__ import annotations

from schemas.envelope import Event


class NoteWritten(Event, frozen=True, gc=False):
    """A note about a subject."""

    schema_id = 9_001
    number: int
    text: str
