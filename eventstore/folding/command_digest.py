"""The digest of a command's body: of the fields that the caller sent, without those that a replica added. A command id
is bound to one digest, so it cannot be used for another command.

A caller that lost a response repeats the command through another replica. The record of `SessionOpened` names the
replica that appended it, so the repeat is a different record of the same command, and gets the same outcome. The record
of `ResourcesApplied` has the generations of the objects as the replica found them.
"""

from __future__ import annotations

from msgspec.structs import replace

from eventstore.avro.codec import encode
from eventstore.folding.hashes import value_digest
from schemas.events import Event, ResourcesApplied, SessionOpened


def command_digest(event: Event, content: bytes) -> bytes:
    """The digest of a command's body. `content` is the digest of its whole record value."""
    if type(event) is SessionOpened:
        return value_digest(encode(replace(event, edge="")))
    if type(event) is ResourcesApplied:
        return value_digest(encode(replace(event, expected_generations=[], expected_revisions=[])))
    return content
