"""Filters of the log's events: pure functions of an event and the criteria of a request or an export."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Protocol

from eventstore.avro.codec import decode
from eventstore.errors import Undecodable
from eventstore.log import Record
from schemas.api import dpuplane_pb2 as pb

UNDECODABLE = "undecodable"
"""The type of a record that no known schema decodes."""


class EventCriteria(Protocol):
    """The criteria of a filter for events. An empty field admits every event."""

    @property
    def types(self) -> Container[str]: ...

    @property
    def subject(self) -> str: ...

    @property
    def actor(self) -> str: ...

    @property
    def command_id(self) -> str: ...


def is_wanted(wanted: EventCriteria, event_type: str, subject: str, actor: str, command_id: str) -> bool:
    """Whether an event meets all criteria. An undecodable record has no subject, actor or command id."""
    return (
        (not wanted.types or event_type in wanted.types)
        and (not wanted.subject or subject == wanted.subject)
        and (not wanted.actor or actor == wanted.actor)
        and (not wanted.command_id or command_id == wanted.command_id)
    )


def admitted(wanted: pb.EventFilter, records: Iterable[Record]) -> Iterator[Record]:
    """The records that match every set field of the filter."""
    if not wanted.ByteSize():
        return iter(records)
    return (record for record in records if admits(wanted, record))


def admits(wanted: pb.EventFilter, record: Record) -> bool:
    """Whether a record matches."""
    try:
        event = decode(record.value)
    except Undecodable:
        return is_wanted(wanted, UNDECODABLE, "", "", "")
    envelope = event.envelope
    return is_wanted(wanted, type(event).__name__, envelope.subject, envelope.actor, envelope.command_id)
