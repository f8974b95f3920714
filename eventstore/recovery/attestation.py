"""Attestation of a log: it proves that the log still begins with the records that it once held, or finds the first
difference.

The running hashes that replicas compare are fast, but a writer of the log can forge them. Attestations are for
auditors: their chain is SHA-256 over every byte of every record with its offset and append time. A signed file keeps a
few marks along each partition, which narrow a difference down to a range. An optional second file keeps a hash of each
record, which finds the exact record. The signed file has the hash of the second file, so nobody can change the second
file unnoticed.

Record 0 is not in the chain: it identifies the log, and a restored log has another one before the same records.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from hashlib import sha256
from typing import NamedTuple, Protocol

import msgspec

from eventstore.errors import LogMismatch
from eventstore.log import EventLog, Partition, Record

STRIDE_MIN = 1_024
"""Offsets between two marks of a short partition; longer partitions have larger steps."""

MARKS_MAX = 32
"""Maximum number of marks per partition: with dozens of partitions the signed file has some tens of kB."""

HASH_BYTES = 8
"""Bytes of the chain hash that are stored for each record. They only locate a difference; the marks, which are whole
hashes, prove the content."""

_RECORD = struct.Struct(">qqIII")


class Attestation(msgspec.Struct, frozen=True):
    """The attestation of a partition's first `end` offsets. `marks` are values of the hash chain in hex: over the
    records before each multiple of `stride`, and over those before `end`. `chained` is the number of records in the
    chain.
    """

    end: int
    first: str
    stride: int
    marks: list[str]
    chained: int


class Difference(NamedTuple):
    """The first record that differs lies in [first, end). An `end` of -1 means that all records from `first` on are
    missing.
    """

    partition: Partition
    first: int
    end: int
    reason: str


class RecordHashes(Protocol):
    """The stored hash of each chained record of a partition, in order."""

    def __getitem__(self, index: int) -> bytes: ...


def chain_hash(previous: bytes, record: Record) -> bytes:
    """The chain after this record."""
    headers = repr(record.headers).encode() if record.headers else b""
    head = _RECORD.pack(record.offset, record.timestamp_ms, len(record.key), len(record.value), len(headers))
    return sha256(b"".join((previous, head, record.key, record.value, headers))).digest()


def stride_of(end: int) -> int:
    """The step between marks of a partition with this end."""
    stride = STRIDE_MIN
    while end > stride * MARKS_MAX:
        stride *= 2
    return stride


class HashChain:
    """The chain over one partition, from its first record on."""

    def __init__(self, stride: int) -> None:
        self.first = b""
        self.value = bytes(32)
        self.chained = 0
        self.marks: list[bytes] = []
        self._stride = stride

    def take(self, record: Record) -> None:
        """Add the next record."""
        self.reach(record.offset)
        if record.offset == 0:
            self.first = chain_hash(b"", record)
        else:
            self.value = chain_hash(self.value, record)
            self.chained += 1

    def reach(self, position: int) -> None:
        """Record that all records before this position were added."""
        while (len(self.marks) + 1) * self._stride <= position:
            self.marks.append(self.value)


async def attest(log: EventLog, partition: Partition, end: int, keep: Callable[[bytes], object] | None) -> Attestation:
    """Attest a partition up to `end`; `keep` receives the hash of each chained record."""
    chain = HashChain(stride_of(end))
    async with aclosing(records_before(log, partition, end)) as records:
        async for record in records:
            chain.take(record)
            if keep is not None and record.offset:
                keep(chain.value[:HASH_BYTES])
    chain.reach(end - 1)
    marks = [mark.hex() for mark in (*chain.marks, chain.value)]
    return Attestation(end, chain.first.hex(), stride_of(end), marks, chain.chained)


async def find_difference(
    log: EventLog, partition: Partition, kept: Attestation, hashes: RecordHashes | None, *, same_log: bool
) -> Difference | None:
    """The first difference between a partition and its attestation. With `same_log`, record 0 must be the same too."""
    begin, there = await log.begin(partition), await log.end(partition)
    if begin:
        return Difference(partition, 0, begin, f"the log begins at offset {begin}")
    try:
        found = await _first_difference(log, partition, kept, hashes, min(there, kept.end), same_log=same_log)
    except LogMismatch as error:
        return Difference(partition, 0, kept.end, str(error))
    if found is None and there < kept.end:
        return Difference(partition, there, -1, f"the log ends at offset {there}, and ended at {kept.end} before")
    return found


async def _first_difference(
    log: EventLog, partition: Partition, kept: Attestation, hashes: RecordHashes | None, end: int, *, same_log: bool
) -> Difference | None:
    chain, proven, marks = HashChain(kept.stride), 0, [bytes.fromhex(mark) for mark in kept.marks]
    async with aclosing(records_before(log, partition, end)) as records:
        async for record in records:
            chain.take(record)
            if record.offset == 0 and same_log and chain.first.hex() != kept.first:
                return Difference(partition, 0, 1, "the record changed")
            if chain.marks[proven:] != marks[proven : len(chain.marks)]:
                return _between(partition, kept, proven)
            proven = len(chain.marks)
            if hashes is not None and record.offset and _differs(chain, kept, hashes):
                return Difference(partition, record.offset, record.offset + 1, "the record changed")
    if end == kept.end and (chain.value != marks[-1] or chain.chained != kept.chained):
        return _between(partition, kept, proven)
    return None


def _differs(chain: HashChain, kept: Attestation, hashes: RecordHashes) -> bool:
    at = chain.chained - 1
    return at >= kept.chained or hashes[at] != chain.value[:HASH_BYTES]


def _between(partition: Partition, kept: Attestation, proven: int) -> Difference:
    """The difference in the range after the first `proven` marks, which all matched, up to the next mark."""
    first, end = proven * kept.stride, min((proven + 1) * kept.stride, kept.end)
    return Difference(partition, first, end, "the records changed")


async def records_before(log: EventLog, partition: Partition, end: int) -> AsyncGenerator[Record, None]:
    """The records of a partition before a position, from the first retained one."""
    begin = await log.begin(partition)
    if begin >= end:
        return
    async with aclosing(log.read({partition: begin})) as batches:
        async for _, records in batches:
            for record in records:
                if record.offset >= end:
                    return
                yield record
            if records and records[-1].offset + 1 >= end:
                return
