"""The compiled Avro reader and writer agree with fastavro, also on malformed bytes."""

from __future__ import annotations

import random
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import example, given
from hypothesis import strategies as st

from eventstore.avro import writer as avro_writer
from eventstore.avro.reader import compile_reader

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "text", "type": "string"},
        {"name": "number", "type": "long"},
        {"name": "flag", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "numbers", "type": {"type": "array", "items": "long"}},
        {"name": "raws", "type": {"type": "array", "items": "bytes"}},
        {"name": "names", "type": {"type": "array", "items": "string"}},
        {"name": "maps", "type": {"type": "array", "items": {"type": "map", "values": "string"}}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "last", "type": "string"}]}},
    ],
}
PARSED = parse_schema(EVERYTHING)
WRITE = avro_writer.compile_writer(EVERYTHING, b"header")
READ = compile_reader(EVERYTHING, {"Everything": lambda *values: values, "Inner": lambda last: {"last": last}})

NOTHING: dict[str, Any] = {
    "text": "",
    "number": 0,
    "flag": False,
    "raw": b"",
    "numbers": [],
    "raws": [],
    "names": [],
    "maps": [],
    "counts": {},
    "inner": {"last": "é"},
}

longs = st.integers(LONG_MIN, LONG_MAX) | st.integers(-200, 200)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=90)
rows_of_texts = st.lists(texts, max_size=5) | st.builds(
    lambda groups: [text for text, count in groups for _ in range(count)],
    st.lists(st.tuples(texts, st.integers(1, 150)), max_size=4),
)
columns = (
    st.lists(longs, max_size=5)
    | st.lists(longs, min_size=60, max_size=300)
    | st.lists(st.integers(-64, 64), min_size=60, max_size=300)
    | st.builds(
        lambda groups: [number for number, count in groups for _ in range(count)],
        st.lists(st.tuples(longs, st.integers(1, 150)), max_size=4),
    )
)
of_one_length = st.sampled_from(["ab", "ab\0", "éü"]).flatmap(
    lambda letters: st.lists(st.text(letters, min_size=3, max_size=3), min_size=60, max_size=200)
)
maps = st.builds(
    lambda groups: [each for each, count in groups for _ in range(count)],
    st.lists(st.tuples(st.dictionaries(texts, texts, max_size=3), st.integers(1, 3)), max_size=3),
)
"""Lists of maps in which neighbours may be the same object."""
everything = st.fixed_dictionaries(
    {
        "text": texts,
        "number": longs,
        "flag": st.booleans(),
        "raw": st.binary(max_size=300),
        "numbers": columns,
        "names": rows_of_texts | of_one_length,
        "raws": st.lists(st.binary(max_size=5), max_size=70),
        "maps": maps,
        "counts": st.dictionaries(texts, longs, max_size=3),
        "inner": st.fixed_dictionaries({"last": texts}),
    }
)


def written(value: dict[str, Any]) -> bytes:
    body = BytesIO()
    schemaless_writer(body, PARSED, value)
    return body.getvalue()


def ours(body: bytes) -> dict[str, Any] | None:
    """The value that the compiled reader decodes from a whole body, or None if it refuses the body."""
    try:
        value, end = READ(body, 0)
    except (IndexError, ValueError):
        return None
    return dict(zip(NOTHING, value, strict=True)) if end == len(body) else None


def theirs(body: bytes) -> dict[str, Any] | None:
    """The value that fastavro decodes from a whole body, or None if it refuses the body."""
    stream = BytesIO(body)
    try:
        value: Any = schemaless_reader(stream, PARSED, None)
    except Exception:
        return None
    return dict(value) if stream.tell() == len(body) else None


@given(everything)
def test_the_reader_decodes_bytes_of_fastavro(value: dict[str, Any]) -> None:
    assert ours(written(value)) == value


def with_sorted_keys(value: dict[str, Any]) -> dict[str, Any]:
    """The value with sorted map keys."""
    maps = [dict(sorted(each.items())) for each in value["maps"]]
    return value | {"maps": maps, "counts": dict(sorted(value["counts"].items()))}


@given(everything)
def test_the_writer_encodes_the_bytes_of_fastavro(value: dict[str, Any]) -> None:
    event = SimpleNamespace(**value | {"inner": SimpleNamespace(**value["inner"])})
    assert WRITE(event) == b"header" + written(with_sorted_keys(value))


@pytest.mark.parametrize("number", [LONG_MIN - 1, LONG_MAX + 1])
@pytest.mark.parametrize("count", [1, 100])
def test_numbers_of_more_than_64_bits_are_not_written(number: int, count: int) -> None:
    event = NOTHING | {"numbers": [number] * count, "inner": SimpleNamespace(last="")}
    with pytest.raises(OverflowError, match="64 bits"):
        WRITE(SimpleNamespace(**event))


@given(value=everything, seed=st.integers(0, 1 << 32), flips=st.integers(0, 5), cut=st.integers(0, 3))
def test_damaged_bytes_are_decoded_as_by_fastavro_or_refused(
    value: dict[str, Any], seed: int, flips: int, cut: int
) -> None:
    rng = random.Random(seed)
    body = bytearray(written(value))
    for _ in range(flips):
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    damaged = bytes(body[: len(body) - cut])
    assert ours(damaged) in (theirs(damaged), None)
    if flips == 0:
        assert (ours(damaged) is None) == (theirs(damaged) is None)


@given(st.binary(max_size=60))
@example(b"\x00" * 9)
@example(b"\x00" * 8 + b"\x01")
def test_any_bytes_are_decoded_as_by_fastavro_or_refused(body: bytes) -> None:
    assert ours(body) in (theirs(body), None)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 2_000])
@pytest.mark.parametrize("numbers", [[0], [LONG_MIN, LONG_MAX], [-1, 1 << 40, 3], list(range(-70, 70))])
def test_long_columns_of_numbers_are_decoded(numbers: list[int], count: int) -> None:
    column = (numbers * count)[:count]
    value = NOTHING | {"numbers": column}
    assert ours(written(value)) == value


@pytest.mark.parametrize("count", [63, 64, 65, 511, 513, 2_000])
@pytest.mark.parametrize("text", ["n{}", "n{:04}", "{:04}\0", "é{:04}", "{:080}", ""])
def test_long_columns_of_texts_are_decoded(text: str, count: int) -> None:
    value = NOTHING | {"names": [text.format(number) for number in range(count)]}
    body = written(value)
    assert ours(body) == value
    assert WRITE(SimpleNamespace(**value | {"inner": SimpleNamespace(last="é")})) == b"header" + body
    assert all(ours(body[:end]) is None for end in range(len(body) - 90, len(body)))


class Sliced(bytes):
    """Bytes that count how many of them are copied."""

    copied = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        if isinstance(found, bytes):
            self.copied += len(found)
        return found


@pytest.mark.parametrize("field", ["numbers", "names"])
def test_a_column_of_many_short_runs_is_decoded_in_linear_time(field: str) -> None:
    runs = [number for number in range(1_000, 2_000) for _ in range(17)]
    value = NOTHING | {field: runs if field == "numbers" else [f"n{number}" for number in runs]}
    body = Sliced(written(value))
    assert ours(body) == value
    assert body.copied < 10 * len(body)


def test_blocks_with_a_size_are_decoded() -> None:
    """Other writers may write a negative count and the size of a block, and split an array into several blocks."""
    body = written(NOTHING)
    blocks = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00"
    assert body[4] == 0
    assert ours(body[:4] + blocks + body[5:]) == NOTHING | {"numbers": [1, 2, 3]}


@pytest.mark.parametrize("huge", [b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x00", b"\xff" * 30])
@pytest.mark.parametrize("before", [b"", b"\x00", b"\x00\x00\x00\x00" + b"\x80\x02"])
def test_numbers_of_more_than_64_bits_are_refused(before: bytes, huge: bytes) -> None:
    assert ours(before + huge + b"\x00" * 200) is None


def test_an_unsupported_type_in_a_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="double"):
        compile_reader({"type": "record", "name": "Bad", "fields": [{"name": "x", "type": "double"}]}, {})
