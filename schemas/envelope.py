"""The envelope of every event. It has a module of its own so that code about one event need not import all events."""

from __future__ import annotations

import msgspec


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """The actor of an event, its subject, and the time by the actor's clock.

    `command_id` is a UUIDv7 in canonical text for a command. It is empty for an internal event of the plane, which is
    idempotent by its content: a cause range, an attempt, a session. A command's `issued_at_ms` is the time inside its
    id, so a retry cannot change it. `actor` is the authenticated principal; a leading `?` marks an
    unauthenticated one.
    """

    command_id: str
    subject: str
    actor: str
    issued_at_ms: int
