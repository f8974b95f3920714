"""Command ids and envelopes. An id is a UUIDv7, so it contains the time at which its command was issued.

A command has no other time: a retry repeats the id and its time, so an old command cannot look fresh. Ids compare as
text in the order of their times.
"""

from __future__ import annotations

import re
from hashlib import sha256
from random import Random

from eventstore.errors import PermanentError
from schemas.events import Envelope

_UUID7 = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}").fullmatch

_NUMBER_DIGITS = 6
"""Number of hex digits at the end of an id that contain the number of a part."""


class InvalidCommandId(PermanentError):
    """The text is not a UUIDv7 in canonical form."""


def uuid7(now_ms: int, rng: Random) -> str:
    """A fresh id issued at `now_ms` (RFC 9562, section 5.7), in canonical text."""
    return _text(now_ms, rng.getrandbits(74))


def part_id(command_id: str, number: int) -> str:
    """The id of part `number` of a command. It has the issue time of the command, and is the same in each call.

    The first 50 of its 74 free bits are a digest of the command's id, the last 24 are the number. So the id of a
    command identifies its parts: see `is_part_of`. Raises InvalidCommandId.
    """
    assert 0 < number < 1 << 24, "more parts than any command has"
    family = int.from_bytes(sha256(command_id.encode()).digest()[:8], "big") >> 14
    return _text(issued_at_ms(command_id), family << 24 | number)


def comparison_id(command_id: str, number: int) -> str:
    """The id of comparison `number`, from 0, of a command that compares its objects again when they have changed.
    Clients number the parts of a command from 1 up, and these count down from the last number."""
    return part_id(command_id, (1 << 24) - number) if number else command_id


def is_part_of(command_id: str, whole: str) -> bool:
    """Whether an id is that of a command, or of a part of it."""
    return command_id == whole or command_id[:-_NUMBER_DIGITS] == part_id(whole, 1)[:-_NUMBER_DIGITS]


def _text(now_ms: int, chance: int) -> str:
    number = (now_ms & (1 << 48) - 1) << 80 | 7 << 76 | (chance >> 62) << 64 | 2 << 62 | chance & (1 << 62) - 1
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def issued_at_ms(command_id: str) -> int:
    """The time inside an id. Raises InvalidCommandId."""
    match = _UUID7(command_id)
    if match is None:
        raise InvalidCommandId(f"command_id: {command_id[:40]!a} must be a UUIDv7 in lower case with hyphens")
    return int(match[1] + match[2], 16)


def is_command_id(text: str) -> bool:
    """Whether a text is a UUIDv7. A uid of Kubernetes is a UUIDv4."""
    return _UUID7(text) is not None


def envelope(subject: str, actor: str, command_id: str) -> Envelope:
    """The envelope of a command. Raises InvalidCommandId."""
    return Envelope(command_id, subject, actor, issued_at_ms(command_id))


def internal_envelope(subject: str, actor: str, now_ms: int) -> Envelope:
    """The envelope of an internal event, which the plane itself appends. It has no command id and is idempotent by its
    content.
    """
    return Envelope("", subject, actor, now_ms)
