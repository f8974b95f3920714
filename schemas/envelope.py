"""The envelope of every event, and the base of event types. It has a module of its own so that code about one event
need not import all events."""

from __future__ import annotations

from typing import ClassVar

import msgspec


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """The actor of an event, its subject, and the time by the actor's clock.

    `command_id` is a UUIDv7 in canonical text for a command. It is empty for an internal event of the plane. Such an
    event is idempotent by its content: a range of offsets, the number of an attempt, or the id of a session. A
    command's `issued_at_ms` is the time inside its id, so a retry cannot change it. `actor` is the authenticated
    principal; a leading `?` marks an unauthenticated one.
    """

    command_id: str
    subject: str
    actor: str
    issued_at_ms: int


class Event(msgspec.Struct, frozen=True, gc=False):
    """An event of the log. A subclass is the whole declaration of an event type.

    `schema_id` is in every record of the type. The fields and the docstring of the subclass are its Avro schema
    (eventstore/avro/released.py), so neither the id, nor the name, order or type of a field changes after a release.
    """

    schema_id: ClassVar[int]

    envelope: Envelope
