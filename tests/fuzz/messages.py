"""Mutations of Protobuf messages of any type."""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import DecodeError, Message

from tests.fuzz.mutators import NUMBERS, TEXTS, Bytes

_INTEGERS = {
    Field.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    Field.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    Field.TYPE_SINT32: (-(1 << 31), (1 << 31) - 1),
    Field.TYPE_SINT64: (-(1 << 63), (1 << 63) - 1),
    Field.TYPE_UINT32: (0, (1 << 32) - 1),
    Field.TYPE_UINT64: (0, (1 << 64) - 1),
    Field.TYPE_ENUM: (0, 9),
}


def message_mutated(kind: type[Message], data: bytes, rng: Random, some_bytes: Bytes) -> bytes:
    """A message of this type with changed fields. Every fourth time, libFuzzer changes the bytes themselves."""
    if rng.random() < 0.25:
        return some_bytes(data)
    try:
        message = kind.FromString(data)
    except DecodeError:
        return some_bytes(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _change(message, rng, some_bytes)
    return message.SerializeToString()


def _change(message: Message, rng: Random, some_bytes: Bytes) -> None:
    field: Any = rng.choice(list(message.DESCRIPTOR.fields))
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(message, field.name)[rng.choice(TEXTS)] = rng.choice(TEXTS)
    elif field.is_repeated:
        _change_repeated(message, field, rng, some_bytes)
    elif field.message_type is not None:
        if message.HasField(field.name) and rng.random() < 0.1:
            message.ClearField(field.name)
        else:
            getattr(message, field.name).SetInParent()
            _change(getattr(message, field.name), rng, some_bytes)
    else:
        setattr(message, field.name, _scalar(field, getattr(message, field.name), rng, some_bytes))


def _change_repeated(message: Message, field: Any, rng: Random, some_bytes: Bytes) -> None:
    values = getattr(message, field.name)
    at = rng.randrange(len(values)) if values else 0
    if values and rng.random() < 0.2:
        del values[at]
    elif field.message_type is not None:
        if values and rng.random() < 0.6:
            _change(values[at], rng, some_bytes)
        elif values:
            values.add().CopyFrom(values[at])
        else:
            _change(values.add(), rng, some_bytes)
    elif values and rng.random() < 0.3:
        values.extend([values[at]] * rng.choice((1, 1, 300)))
    else:
        empty: Any = "" if field.type == Field.TYPE_STRING else b"" if field.type == Field.TYPE_BYTES else 0
        values.append(_scalar(field, values[at] if values else empty, rng, some_bytes))


def _scalar(field: Any, value: Any, rng: Random, some_bytes: Bytes) -> Any:
    match field.type:
        case Field.TYPE_BOOL:
            return not value
        case Field.TYPE_STRING:
            return rng.choice((value + "x", value[:-1], *TEXTS, some_bytes(value.encode()).decode(errors="replace")))
        case Field.TYPE_BYTES:
            return rng.choice((value[:-1], value + value[-16:], bytes(16), b"\x01", some_bytes(value)))
        case Field.TYPE_DOUBLE | Field.TYPE_FLOAT:
            return rng.choice((0.0, -1.0, 1e300, float("nan"), float("inf")))
    least, most = _INTEGERS[field.type]
    return max(least, min(most, rng.choice((value + 1, value - 1, *NUMBERS))))
