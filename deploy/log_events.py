"""The log's events as lines of JSON: where they stand, when they were appended, and what they say."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from eventstore.codec import decode
from eventstore.errors import Undecodable
from eventstore.log import FOLDED_TOPICS, EventLog, Partition, Record


class Wanted(NamedTuple):
    """Which events to give; empty means all. `since_ms` is an append time; `subject` is matched as a whole."""

    topics: Collection[str] = FOLDED_TOPICS
    types: Collection[str] = ()
    subject: str = ""
    actor: str = ""
    command_id: str = ""
    since_ms: int = 0

    def admits(self, line: dict[str, object]) -> bool:
        envelope = line.get("envelope")
        said = envelope if isinstance(envelope, dict) else {}
        return (
            (not self.types or line["type"] in self.types)
            and (not self.subject or said.get("subject") == self.subject)
            and (not self.actor or said.get("actor") == self.actor)
            and (not self.command_id or said.get("command_id") == self.command_id)
        )


async def lines(log: EventLog, wanted: Wanted, *, follow: bool) -> AsyncGenerator[dict[str, object], None]:
    """Events in order per partition, up to the present ends of the log, or for ever if `follow`."""
    partitions = [partition for topic in wanted.topics for partition in log.partitions(topic)]
    ends = {partition: await log.end(partition) for partition in partitions}
    positions = {partition: await _start(log, partition, wanted.since_ms) for partition in partitions}
    behind = {partition for partition in partitions if positions[partition] < ends[partition]}
    if not behind and not follow:
        return
    async with aclosing(log.read(positions)) as batches:
        async for partition, records in batches:
            for record in records:
                if not follow and record.offset >= ends[partition]:
                    break
                line = as_line(partition, record)
                if wanted.admits(line):
                    yield line
            if records and records[-1].offset + 1 >= ends[partition]:
                behind.discard(partition)
            if not behind and not follow:
                return


def as_line(partition: Partition, record: Record) -> dict[str, object]:
    """One event; bytes in it are base64. What no schema of ours reads is given as type `undecodable`, in hex."""
    where: dict[str, object] = {
        "partition": str(partition),
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
    }
    try:
        event = decode(record.value)
    except Undecodable as error:
        return {**where, "type": "undecodable", "reason": str(error), "value": record.value.hex()}
    return {**where, "type": type(event).__name__, **msgspec.to_builtins(event)}


def as_json(line: dict[str, object]) -> str:
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False)


async def _start(log: EventLog, partition: Partition, since_ms: int) -> int:
    return await log.position_at(partition, since_ms) if since_ms else await log.begin(partition)
