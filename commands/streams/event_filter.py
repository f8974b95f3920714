"""Which records of the log a reader wants: pure functions of a record and the filter of a request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eventstore.avro.codec import decode
from eventstore.errors import Undecodable
from eventstore.log import Record
from schemas.api import dpuplane_pb2 as pb

UNDECODABLE = "undecodable"
"""The type of a record that no known schema decodes."""


def admitted(wanted: pb.EventFilter, records: Iterable[Record]) -> Iterator[Record]:
    """The records that match all fields of the filter that are set."""
    if not wanted.ByteSize():
        return iter(records)
    return (record for record in records if admits(wanted, record))


def admits(wanted: pb.EventFilter, record: Record) -> bool:
    """Whether a record matches. An undecodable record has no subject, actor or command id."""
    try:
        event = decode(record.value)
    except Undecodable:
        of_envelope = wanted.subject or wanted.actor or wanted.command_id
        return not of_envelope and (not wanted.types or UNDECODABLE in wanted.types)
    said = event.envelope
    return (
        (not wanted.types or type(event).__name__ in wanted.types)
        and (not wanted.subject or said.subject == wanted.subject)
        and (not wanted.actor or said.actor == wanted.actor)
        and (not wanted.command_id or said.command_id == wanted.command_id)
    )
