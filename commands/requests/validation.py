"""Validation of requests: every rule that needs no state.

The API refuses an invalid request before anything is appended, so it takes no effect and the log has no record of it.
Everything that depends on state (an unknown node, a full clique) is decided by a fold instead. A valid request becomes
a `NewEvent`: the event to append, and where.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from google.protobuf.timestamp_pb2 import Timestamp

from eventstore.errors import PermanentError
from projections import field_checks
from schemas.api.times import to_ms
from schemas.events import MAX_ITEMS, Envelope, Event


class InvalidRequest(PermanentError):
    """A request that breaks a rule; the message names the field, the value and the rule. gRPC: INVALID_ARGUMENT."""


class NewEvent(NamedTuple):
    """An event to append. The key selects the partition of the topic."""

    topic: str
    key: str
    event: Event


EnvelopeFactory: TypeAlias = Callable[[str], Envelope]
"""Makes the envelope of a command with this subject; command id and principal are already bound."""

TIME_MS_MAX = 253_402_300_799_999
"""Latest time that a caller may give: the last millisecond of the year 9999, the limit of a protobuf Timestamp."""


def sorted_labels(field: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Labels by key. A protobuf map has no order, and a repeated command must become the same record, byte for byte.

    Raises InvalidRequest for too many labels, before sorting: a message can contain a hundred thousand.
    """
    require(field_checks.check_label_count(field, len(labels)))
    return dict(sorted(labels.items()))


def require(fault: str | None) -> None:
    """Raise InvalidRequest if there is a fault."""
    if fault is not None:
        raise InvalidRequest(fault)


def require_range(field: str, value: int, low: int, high: int) -> None:
    """Raise InvalidRequest unless `low` <= number <= `high`."""
    if not low <= value <= high:
        raise InvalidRequest(f"{field}: {value} must be from {low} to {high}")


def require_one_of(field: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise InvalidRequest unless the word is one of these."""
    if value not in allowed:
        raise InvalidRequest(f"{field}: {field_checks.quoted(value)} must be one of {', '.join(allowed)}")


def require_count(field: str, count: int) -> None:
    """Raise InvalidRequest unless the count is from 1 to the maximum of a record."""
    if not 1 <= count <= MAX_ITEMS:
        raise InvalidRequest(f"{field}: {count} items must be from 1 to {MAX_ITEMS}")


def require_zone(zone: str, query: str) -> None:
    """Raise InvalidRequest unless a zone is named. The server does not look the zone up: the result would depend on how
    far this server has folded."""
    if not zone:
        raise InvalidRequest(f"zone: '' must name the zone: a command id is bound to a zone; {query} returns it")
    require(field_checks.check_zone("zone", zone))


def time_of(field: str, given: Timestamp) -> int:
    """Milliseconds of a time, 0 if it is absent. Raises InvalidRequest unless it lies in the years 1970 to 9999."""
    if not (0 <= given.seconds <= TIME_MS_MAX // 1_000 and 0 <= given.nanos < 1_000_000_000):
        raise InvalidRequest(
            f"{field}: {given.seconds} s and {given.nanos} ns must be a time from 1970 to 9999, with less than a second"
            " of nanoseconds"
        )
    return to_ms(given)
