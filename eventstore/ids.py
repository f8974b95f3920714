"""Command ids and envelopes. An id is a UUIDv7, so it contains the time at which its command was issued.

A command has no other time: a retry repeats the id and its time, so an old command cannot look fresh. Ids compare as
text in the order of their times.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from random import Random

import numpy as np

from eventstore.errors import PermanentError
from schemas.events import Envelope

_UUID7 = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}").fullmatch

_NUMBER_DIGITS = 6
"""Hex digits of an id that hold the number of a part."""

_LENGTH = 36
_HYPHENS = (8, 13, 18, 23)
_DIGITS = np.array([place for place in range(_LENGTH) if place not in _HYPHENS])
_TIME_DIGITS = 12
_NO_DIGIT = 255
_DIGIT_OF = np.full(256, _NO_DIGIT, np.uint8)
_DIGIT_OF[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16, dtype=np.uint8)
_TIME_WEIGHTS = 16 ** np.arange(_TIME_DIGITS - 1, -1, -1, dtype=np.int64)


class InvalidCommandId(PermanentError):
    """Text that is no UUIDv7 in canonical form."""


def uuid7(now_ms: int, rng: Random) -> str:
    """A fresh id issued at `now_ms` (RFC 9562, section 5.7), in canonical text."""
    return _text(now_ms, rng.getrandbits(74))


def part_id(command_id: str, number: int) -> str:
    """The id of the `number`-th part of a command given under one id: issued at the same time, and always the same.

    The first 50 of its 74 free bits are a digest of the whole's id, the last 24 are the number. So the id of a command
    identifies its parts: see `is_part_of`. Raises InvalidCommandId.
    """
    assert 0 < number < 1 << 24, "more parts than any command has"
    family = int.from_bytes(sha256(command_id.encode()).digest()[:8], "big") >> 14
    return _text(issued_at_ms(command_id), family << 24 | number)


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
        raise InvalidCommandId(f"command id: {command_id[:40]!a} must be a UUIDv7 in lower case with hyphens")
    return int(match[1] + match[2], 16)


def are_issued_at(command_ids: Sequence[str], issued_ms: Sequence[int]) -> bool:
    """Whether these are ids with these times inside: as `issued_at_ms` for each of them, in a tenth of the time."""
    text = "".join(command_ids)
    if not text.isascii() or set(map(len, command_ids)) != {_LENGTH}:
        return False
    octets = np.frombuffer(text.encode(), np.uint8).reshape(-1, _LENGTH)
    digits = _DIGIT_OF[octets[:, _DIGITS]]
    version, variant = digits[:, _TIME_DIGITS], digits[:, _TIME_DIGITS + 4]
    are_well_formed = (
        (octets[:, _HYPHENS] == ord("-")).all()
        and (digits != _NO_DIGIT).all()
        and (version == 7).all()
        and (variant & 12 == 8).all()
    )
    times_ms = digits[:, :_TIME_DIGITS].astype(np.int64) @ _TIME_WEIGHTS
    return bool(are_well_formed) and times_ms.tolist() == list(issued_ms)


def envelope(subject: str, actor: str, command_id: str) -> Envelope:
    """The envelope of a command. Raises InvalidCommandId."""
    return Envelope(command_id, subject, actor, issued_at_ms(command_id))


def internal_envelope(subject: str, actor: str, now_ms: int) -> Envelope:
    """The envelope of an internal event, which the plane itself appends. It has no command id and is idempotent by its
    content.
    """
    return Envelope("", subject, actor, now_ms)
