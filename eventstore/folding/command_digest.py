"""The body of a command, to which its id is bound: what the caller said, and nothing that a replica added.

A caller whose answer was lost repeats a command through another replica. The record of `SessionOpened` names the
replica that appended it, so the repeat is another record. It is the same command, and has the same answer.
"""

from __future__ import annotations

from msgspec.structs import replace

from eventstore.avro.codec import encode
from eventstore.folding.hashes import value_digest
from schemas.events import Event, SessionOpened


def command_digest(event: Event, content: bytes) -> bytes:
    """The digest of a command's body. `content` is the digest of its whole record value."""
    if type(event) is SessionOpened:
        return value_digest(encode(replace(event, edge="")))
    return content
