"""Decision records: read from the topic, and computed by a fresh fold of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from deploy.composition.roles import folds_of
from deploy.composition.topics import TOPICS
from eventstore.avro.codec import encode
from eventstore.folding.decision_listener import DecidedRecord, DecidedRun, decided_records_of
from eventstore.folding.fold import folds_by_version
from eventstore.folding.origin import wait_for_origin
from eventstore.folding.partition import FoldedPartition
from eventstore.log import DECISIONS, EventLog
from projections.decisions.decided import decided, key_of
from projections.decisions.items import DecisionItem
from schemas.events import DecisionRecorded
from tests.contract.engine import read_all


class DecisionRecorder:
    """A listener that records every decision. `runs` counts the decided runs."""

    def __init__(self) -> None:
        self.decisions: list[DecidedRecord] = []
        self.runs = 0

    def on_decision(self, decided_record: DecidedRecord | DecidedRun) -> None:
        if isinstance(decided_record, DecidedRun):
            self.runs += 1
            self.decisions += decided_records_of(decided_record)
        else:
            self.decisions.append(decided_record)

    def records(self) -> dict[str, bytes]:
        return {key_of(decided_record.at): encode(rendered(decided_record)) for decided_record in self.decisions}


def rendered(decided_record: DecidedRecord) -> DecisionRecorded:
    return decided(
        decided_record.event, decided_record.change, decided_record.outcome, decided_record.at, decided_record.version
    )


async def written(log: EventLog) -> dict[str, set[bytes]]:
    """The distinct values of each key in the decisions topic."""
    found: dict[str, set[bytes]] = {}
    for partition in log.partitions(DECISIONS):
        for record in await read_all(log, partition):
            found.setdefault(record.key.decode(), set()).add(record.value)
    return found


async def refolded(log: EventLog) -> dict[str, set[bytes]]:
    """Every decision of the log, computed by a new fold, one record at a time."""
    origin = await wait_for_origin(log)
    found: dict[str, set[bytes]] = {}
    for topic, versions in folds_by_version(folds_of(log.partition_count)).items():
        for partition in log.partitions(topic) if topic in TOPICS.deciding else ():
            heard = DecisionRecorder()
            folded = FoldedPartition(partition, versions, origin.log_id, heard)
            for record in await read_all(log, partition):
                folded.fold(record)
            assert not folded.halted
            found |= {key: {value} for key, value in heard.records().items()}
    return found


async def wait_for_all_decisions(log: EventLog, *, timeout_s: float, every_s: float) -> dict[str, set[bytes]]:
    """Wait until the topic equals the decisions of a new fold."""
    async with asyncio.timeout(timeout_s):
        while (found := await written(log)) != await refolded(log):
            await asyncio.sleep(every_s)
    return found


def items_of(record: DecisionRecorded) -> Iterator[DecisionItem]:
    """The items of a record, with its columns at full length."""
    count = max(len(record.kinds), len(record.subjects), len(record.details))
    for i in range(count):
        yield DecisionItem(
            record.kinds[i if len(record.kinds) > 1 else 0],
            record.subjects[i if len(record.subjects) > 1 else 0],
            record.details[i if len(record.details) > 1 else 0],
        )
