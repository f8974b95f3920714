"""Records that Kafka stores but the library cannot read are read by our own code."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from eventstore.kafka.records import TolerantRecords

Header = tuple[str, bytes | None]
Said = tuple[bytes | None, bytes | None, list[Header]]

SAID: list[Said] = [
    (b"k", b"v", []),
    (None, b"v" * 300, [("a", b"1"), ("b", None), ("", b"")]),
    (b"k" * 200, None, [("QQQQ", b"2")]),
    (b"", b"", [("é", b"\xff")]),
]


def batch(said: list[Said], compression: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, compression, 0, -1, -1, 0, 1 << 20)
    for number, (key, value, headers) in enumerate(said):
        builder.append(number, 1_700_000_000_000 + 1_000 * number, key, value, headers)
    return bytes(builder.build())


def read(records: Any) -> list[tuple[Any, ...]]:
    found = []
    while records.has_next():
        one = records.next_batch()
        found += [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value, list(r.headers), r.checksum) for r in one]
    return found


@pytest.mark.parametrize("compression", [0, 1])
def test_readable_records_are_read_by_the_library(compression: int) -> None:
    packed = batch(SAID, compression) + batch(SAID[:1], compression)
    assert read(TolerantRecords(packed)) == read(MemoryRecords(packed))
    assert TolerantRecords(packed).next_batch().validate_crc()


@pytest.mark.parametrize("stamped", [False, True], ids=["stamped by who wrote it", "stamped by the broker"])
def test_an_invalid_header_name_is_escaped_and_the_rest_is_unchanged(stamped: bool) -> None:
    packed = bytearray(batch(SAID) + batch(SAID))
    packed[22] |= 8 if stamped else 0
    whole = read(MemoryRecords(bytes(packed)))
    packed = packed.replace(b"QQQQ", b"Q\xff\xfeQ", 1)
    with pytest.raises(UnicodeDecodeError):
        read(MemoryRecords(bytes(packed)))
    whole[2] = (*whole[2][:5], [("Q\\xff\\xfeQ", b"2")], None)
    assert read(TolerantRecords(bytes(packed))) == whole
