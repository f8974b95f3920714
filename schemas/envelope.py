"""What every event begins with, in a file of its own: whoever speaks of an event need not know all of them."""

from __future__ import annotations

import msgspec


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """Who said it, about what, and when by their own clock.

    `command_id` is a UUIDv7 in canonical text for a command, empty for an internal event of the plane (those are
    idempotent by what they say: a cause range, an attempt, a session). A command's `issued_at_ms` is the time inside
    its id, so a retry cannot re-stamp it. `actor` is the authenticated principal; a leading `?` marks an
    unauthenticated one.
    """

    command_id: str
    subject: str
    actor: str
    issued_at_ms: int
