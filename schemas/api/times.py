"""Converts times and durations between the API's messages and the milliseconds of the log."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

_S_MS, _MS_NS = 1_000, 1_000_000


def to_timestamp(time_ms: int) -> Timestamp | None:
    """The Timestamp of a time; None for 0. A field that is set to None is absent."""
    return Timestamp(seconds=time_ms // _S_MS, nanos=time_ms % _S_MS * _MS_NS) if time_ms else None


def to_duration(span_ms: int) -> Duration | None:
    """The Duration of a number of milliseconds; None for a negative number. A field that is set to None is absent."""
    return Duration(seconds=span_ms // _S_MS, nanos=span_ms % _S_MS * _MS_NS) if span_ms >= 0 else None


def to_ms(given: Timestamp | Duration) -> int:
    """Milliseconds of a time or a duration; 0 for an absent field."""
    return given.seconds * _S_MS + given.nanos // _MS_NS
