"""The rules that every engine shares: the partition of a key, and the limits of records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.composition.topics import TOPICS
from eventstore.errors import AppendRefused
from eventstore.log import FLEET, MAX_RECORD_BYTES, REPLICAS, ZONES, Partition, _murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "hash_"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_murmur2_agrees_with_kafka(key: bytes, hash_: int) -> None:
    assert _murmur2(key) == hash_ % 2**32
    assert partition_of(key, 12) == ((hash_ % 2**32) & 0x7FFFFFFF) % 12


@given(st.binary(max_size=40), st.integers(1, 1_000))
def test_every_key_has_a_partition(key: bytes, partition_count: int) -> None:
    assert 0 <= partition_of(key, partition_count) < partition_count


def test_fleet_and_replicas_have_one_partition_for_any_count() -> None:
    assert [len(TOPICS.partitions(topic, 12)) for topic in TOPICS.names] == [12, 12, 1, 12, 12, 12, 1]
    assert TOPICS.partitions(FLEET, 12) == (Partition(FLEET, 0),)


@pytest.mark.parametrize(
    "partition", [Partition(ZONES, 12), Partition(ZONES, -1), Partition(REPLICAS, 1), Partition("x", 0)]
)
def test_a_missing_partition_is_refused_by_name(partition: Partition) -> None:
    with pytest.raises(AppendRefused, match=str(partition)):
        TOPICS.check_append(partition, b"", b"", 12)


def test_the_limit_counts_key_and_value() -> None:
    TOPICS.check_append(Partition(ZONES, 11), b"k" * 100, b"v" * (MAX_RECORD_BYTES - 100), 12)
    with pytest.raises(AppendRefused, match=str(MAX_RECORD_BYTES + 1)):
        TOPICS.check_append(Partition(ZONES, 11), b"k" * 101, b"v" * (MAX_RECORD_BYTES - 100), 12)
