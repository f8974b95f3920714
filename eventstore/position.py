"""A position: the part of the log that a reader must have folded. For callers it is an opaque token: a caller gets it
in an answer, and can send it with a later query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from eventstore.errors import PermanentError
from eventstore.log import Partition

_PART = re.compile(r"([a-z]+)/([0-9]{1,6})=([0-9]{1,18})")
_MAX_TOKEN = 65_536
"""Maximum number of characters of a token: twice the length of a token that names 1,000 partitions."""


class InvalidPosition(PermanentError):
    """The token is malformed, or belongs to another log."""


class Position(NamedTuple):
    """The part of the log `log_id` that an answer depended on: per partition, the offset after the last record that the
    answer depended on."""

    log_id: str
    offsets: Mapping[Partition, int]


def to_token(position: Position) -> str:
    """Format a position as `LOGID:fleet/0=9,zones/3=15`, sorted by partition."""
    parts = ",".join([f"{topic}/{number}={offset}" for (topic, number), offset in sorted(position.offsets.items())])
    return f"{position.log_id}:{parts}"


def partition_token(log_id: str, partition: Partition, offset: int) -> str:
    """The token of a position in one partition, as in every answer to a command."""
    return f"{log_id}:{partition.topic}/{partition.number}={offset}"


def check_token(token: str) -> None:
    """Raise InvalidPosition for a malformed token, of any log."""
    log_id, colon, _ = token.partition(":")
    if not log_id or not colon:
        raise InvalidPosition(f"position: {token[:40]!r} must have the form LOGID:TOPIC/PARTITION=OFFSET,...")
    from_token(token, log_id)


def from_token(token: str, log_id: str) -> Position:
    """Parse a token of the log `log_id`. Raises InvalidPosition."""
    if len(token) > _MAX_TOKEN:
        raise InvalidPosition(f"position: {len(token)} characters are more than the {_MAX_TOKEN} allowed")
    owner, _, rest = token.partition(":")
    if owner != log_id:
        raise InvalidPosition(f"position: log id {owner[:40]!r} must be that of this log, {log_id!r}")
    offsets: dict[Partition, int] = {}
    for part in rest.split(",") if rest else ():
        match = _PART.fullmatch(part)
        if match is None:
            raise InvalidPosition(f"position: {part[:40]!r} must have the form TOPIC/PARTITION=OFFSET")
        offsets[Partition(match[1], int(match[2]))] = int(match[3])
    return Position(log_id, offsets)
