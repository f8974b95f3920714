"""Records for the toy fold: the start of a log, commands and statements about policies, and the bytes of poison."""

from __future__ import annotations

import random
from collections.abc import Iterable

from eventstore.avro.codec import encode
from eventstore.ids import envelope, internal_envelope, uuid7
from eventstore.log import Record
from schemas.events import Event, FoldVersionUpgraded, LogCreated, PolicyDeleted, PolicySet

T0 = 1_700_000_000_000
LOG_ID = uuid7(T0, random.Random(0))
POISON = b"\0\0\0\0\x12not what schema 18 says"


class Issuer:
    """Makes commands, each with an id of its own."""

    def __init__(self, seed: int = 1) -> None:
        self.rng = random.Random(seed)

    def id(self, now_ms: int = T0) -> str:
        return uuid7(now_ms, self.rng)

    def set(self, name: str, priority: int = 1, *, now_ms: int = T0, labels: dict[str, str] | None = None) -> PolicySet:
        said = envelope(name, "?tester", self.id(now_ms))
        return PolicySet(said, name, priority, "allow", "any", [], labels or {}, {})

    def delete(self, name: str, *, now_ms: int = T0) -> PolicyDeleted:
        return PolicyDeleted(envelope(name, "?tester", self.id(now_ms)), name)

    def raise_version(self, version: int, *, now_ms: int = T0) -> FoldVersionUpgraded:
        return FoldVersionUpgraded(envelope("fold", "?tester", self.id(now_ms)), version)


def fact(name: str, priority: int = 1) -> PolicySet:
    """A statement of the plane: it has no id, so each copy takes effect."""
    return PolicySet(internal_envelope(name, "plane", T0), name, priority, "allow", "any", [], {}, {})


def created(log_id: str = LOG_ID, partition_count: int = 4) -> LogCreated:
    return LogCreated(internal_envelope("log", "tester", T0), log_id, 1, partition_count, "")


def records(items: Iterable[Event | bytes], *, start: int = 0, time_ms: int = T0) -> list[Record]:
    """Events and raw values as records of a log, all appended at one time."""
    values = (item if isinstance(item, bytes) else encode(item) for item in items)
    return [Record(offset, time_ms, b"key", value) for offset, value in enumerate(values, start)]
