"""The findings of an attestation on a truncated log, at every cut, with the hashes of all records and without."""

from __future__ import annotations

import pytest

from eventstore.log import ZONES, Partition
from eventstore.recovery.attestation import HASH_BYTES, Difference, attest, find_difference
from tests.support.memory_log import Contents, MemoryLog

ZONES_0 = Partition(ZONES, 0)
COUNT = 2_100
"""A count of records that spans more than two marks."""


class HashFile:
    """The hashes of all records, as in the file of a backup."""

    def __init__(self) -> None:
        self.content = b""

    def add(self, found: bytes) -> None:
        self.content += found

    def __getitem__(self, index: int) -> bytes:
        return self.content[index * HASH_BYTES : (index + 1) * HASH_BYTES]


def log_of(count: int) -> MemoryLog:
    contents = Contents(1)
    for number in range(count):
        contents.add(ZONES_0, 1_000 + number, b"key", b"%d" % number)
    return MemoryLog(contents, lambda: 1_000)


@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("there", [0, 1, 1_023, 1_024, 1_025, 2_048, COUNT - 2, COUNT - 1])
async def test_a_truncated_log_is_found_with_its_end(there: int, fine: bool) -> None:
    kept = HashFile()
    attestation = await attest(log_of(COUNT), ZONES_0, COUNT, kept.add)
    found = await find_difference(log_of(there), ZONES_0, attestation, kept if fine else None, same_log=True)
    assert found == Difference(ZONES_0, there, -1, f"the log ends at offset {there}, and ended at {COUNT} before")


@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("grown", [0, 1, 3_000])
async def test_an_unchanged_log_may_have_grown(grown: int, fine: bool) -> None:
    kept = HashFile()
    attestation = await attest(log_of(COUNT), ZONES_0, COUNT, kept.add)
    assert (
        await find_difference(log_of(COUNT + grown), ZONES_0, attestation, kept if fine else None, same_log=True)
        is None
    )


@pytest.mark.parametrize("changed", [0, 1, 1_023, 1_024, COUNT - 1])
async def test_a_changed_record_is_found(changed: int) -> None:
    kept, log = HashFile(), log_of(COUNT)
    attestation = await attest(log, ZONES_0, COUNT, kept.add)
    records = log.contents.records[ZONES_0]
    records[changed] = records[changed]._replace(timestamp_ms=7)
    found = await find_difference(log, ZONES_0, attestation, kept, same_log=True)
    assert found is not None
    assert (found.first, found.end) == (changed, changed + 1)
    roughly = await find_difference(log, ZONES_0, attestation, None, same_log=True)
    assert roughly is not None
    assert roughly.first <= changed < roughly.end
