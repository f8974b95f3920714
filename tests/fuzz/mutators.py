"""Structured mutations: events with changed fields, and histories with records added, copied and moved.

Randomly changed bytes are nearly always refused at the first field. A mutator therefore decodes an event, replaces a
value, and encodes the event again. The new value is an unusual one, or one from elsewhere in the history, because rules
interact only over repeated names. Every fourth time, libFuzzer changes the bytes themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any

import msgspec

from eventstore.avro.codec import decode, encode
from eventstore.errors import Undecodable
from eventstore.ids import uuid7
from schemas.events import Envelope
from tests.fuzz.framing import Part, joined, split
from tests.support.samples import EVENT_TYPES, sample
from tests.support.toy_records import T0

NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    18,
    100,
    255,
    1_000,
    65_535,
    1 << 31,
    1 << 53,
    (1 << 53) + 1,
    (1 << 63) - 1,
    -(1 << 63),
    T0,
)
TEXTS = ("", "a", "n1", "src/n1", "z", "ä", "\0", "\n", "a" * 64, "a" * 254, "../x", "10.0.0.1", "0", "-1", "any")
DELAYS = (0, 0, 1, -1, 10, 300, 600, 1_300, 6_100, -700, 32_767)

Bytes = Callable[[bytes], bytes]


class Values:
    """The values in a history, by type."""

    def __init__(self, events: Iterable[Any]) -> None:
        self.texts, self.numbers, self.packed = list(TEXTS), list(NUMBERS), [b"", bytes(4), bytes(16)]
        for event in events:
            for value in _leaves(msgspec.to_builtins(event, builtin_types=(bytes,))):
                match value:
                    case str():
                        self.texts.append(value)
                    case int():
                        self.numbers.append(value)
                    case bytes():
                        self.packed.append(value)

    def changed(self, value: Any, rng: Random, some_bytes: Bytes) -> Any:
        """Another value of the same type."""
        match value:
            case bool():
                return not value
            case int():
                near = value + rng.choice((-1, 1, 1 << rng.randrange(62)))
                return _clamped(rng.choice((near, rng.choice(self.numbers))))
            case str():
                changed = rng.choice((value + "x", value[:-1], *rng.choices(self.texts, k=4)))
                return changed if rng.random() < 0.9 else some_bytes(value.encode()).decode(errors="replace")
            case bytes():
                return rng.choice((value + value[-16:], value[:-1], rng.choice(self.packed), some_bytes(value)))
            case list():
                return self._list_changed(value, rng, some_bytes)
            case dict():
                return self._dict_changed(value, rng, some_bytes)
            case Envelope():
                return self._envelope_changed(value, rng, some_bytes)
            case msgspec.Struct():
                field = rng.choice(value.__struct_fields__)
                changed = self.changed(getattr(value, field), rng, some_bytes)
                return msgspec.structs.replace(value, **{field: changed})
        raise AssertionError(f"{value!r} has a type that no event has")

    def _list_changed(self, value: list[Any], rng: Random, some_bytes: Bytes) -> list[Any]:
        if not value:
            return [rng.choice(self.texts)] if rng.random() < 0.5 else [rng.choice(self.numbers)]
        at = rng.randrange(len(value))
        match rng.randrange(5):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return [*value, value[at]]
            case 2:
                return (value * 70)[: rng.choice((2, 17, 70)) * len(value)]
            case _:
                return [*value[:at], self.changed(value[at], rng, some_bytes), *value[at + 1 :]]

    def _dict_changed(self, value: dict[str, Any], rng: Random, some_bytes: Bytes) -> dict[str, Any]:
        if not value or rng.random() < 0.3:
            return {**value, rng.choice(self.texts): rng.choice(self.texts)}
        key = rng.choice(list(value))
        rest = {other: value[other] for other in value if other != key}
        return rest if rng.random() < 0.3 else {**rest, key: self.changed(value[key], rng, some_bytes)}

    def _envelope_changed(self, value: Envelope, rng: Random, some_bytes: Bytes) -> Envelope:
        match rng.randrange(4):
            case 0:
                return msgspec.structs.replace(value, command_id="")
            case 1:
                now_ms = T0 + 100 * rng.choice(DELAYS)
                return msgspec.structs.replace(value, command_id=uuid7(now_ms, rng), issued_at_ms=now_ms)
            case 2:
                return msgspec.structs.replace(
                    value, actor=rng.choice(("?ann", "?bob", "operator/ann", "approver/bob"))
                )
            case _:
                field = rng.choice(value.__struct_fields__)
                return msgspec.structs.replace(value, **{field: self.changed(getattr(value, field), rng, some_bytes)})


def event_mutated(data: bytes, rng: Random, some_bytes: Bytes) -> bytes:
    """A record value with changed fields."""
    if rng.random() < 0.25:
        return some_bytes(data)
    try:
        event = decode(data)
    except Undecodable:
        event = sample(rng.choice(list(EVENT_TYPES)))
    return _encoded_or(Values([event]).changed(event, rng, some_bytes), data)


def history_mutated(types: Sequence[str], data: bytes, rng: Random, some_bytes: Bytes) -> bytes:
    """A partition of events of these types, changed in one to three places."""
    parts = split(data)
    values = Values(_events(parts))
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(parts) + 1)
        if at == len(parts) or rng.random() < 0.1:
            parts.insert(at, Part(0, _new_or_copied(types, parts, rng)))
        elif rng.random() < 0.1:
            del parts[at]
        elif rng.random() < 0.15:
            parts[at] = parts[at]._replace(number=rng.choice(DELAYS))
        elif rng.random() < 0.15:
            other = rng.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]
        else:
            parts[at] = parts[at]._replace(content=_content(parts[at].content, values, rng, some_bytes)[:65_535])
    return joined(parts)


def _content(content: bytes, values: Values, rng: Random, some_bytes: Bytes) -> bytes:
    if rng.random() < 0.1:
        return some_bytes(content)
    try:
        event = decode(content)
    except Undecodable:
        return content
    for _ in range(rng.choice((1, 1, 2, 4))):
        event = values.changed(event, rng, some_bytes)
    return _encoded_or(event, content)


def _new_or_copied(types: Sequence[str], parts: list[Part], rng: Random) -> bytes:
    """A copy of an existing record, or a new one of these types."""
    if parts and rng.random() < 0.8:
        return rng.choice(parts).content
    return encode(sample(rng.choice(types)))


def _events(parts: Iterable[Part]) -> Iterator[Any]:
    for part in parts:
        try:
            yield decode(part.content)
        except Undecodable:
            continue


def _encoded_or(event: Any, otherwise: bytes) -> bytes:
    try:
        return encode(event)
    except (AttributeError, TypeError, ValueError, OverflowError):  # the list has another type than in the schema
        return otherwise


def _leaves(value: Any) -> Iterator[Any]:
    match value:
        case dict():
            for key, each in value.items():
                yield key
                yield from _leaves(each)
        case list() | tuple():
            for each in value[:8]:
                yield from _leaves(each)
        case _:
            yield value


def _clamped(number: int) -> int:
    return max(-(1 << 63), min((1 << 63) - 1, number))
