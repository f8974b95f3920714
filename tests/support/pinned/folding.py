"""A log folded step by step with all results, for comparison with another way to fold it or with a pinned result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deploy.composition.topics import TOPICS
from eventstore.folding.decision_listener import DecidedRecord, DecidedRun
from eventstore.folding.fold import DONE, Fold, Outcome
from eventstore.folding.partition import FoldedPartition
from eventstore.log import Partition, Record
from eventstore.state_store.saver import save
from eventstore.state_store.store import digest_bytes
from tests.support.delivered import ran
from tests.support.memory_disk import DiskStore
from tests.support.toy_records import LOG_ID


class Folding:
    """A folded log: the digest of the state at each position, the outcome at each offset, and the runs."""

    def __init__(self, topic: str, rules: Mapping[int, Fold[Any]], records: Sequence[Record]) -> None:
        self.records = records
        self.folded = FoldedPartition(Partition(topic, 0), rules, LOG_ID, self, is_deciding=topic in TOPICS.deciding)
        self.digests: dict[int, bytes] = {}
        self.told: dict[int, Outcome] = {}
        self.runs = 0
        self.store = DiskStore()

    def singly(self) -> Folding:
        for record in self.records:
            entry = self.folded.fold(record)
            if entry is not None:
                self.told[record.offset] = entry.outcome
            self._save()
        return self

    def in_runs(self) -> Folding:
        start = 0
        while start < len(self.records):
            end, entries = self.folded.fold_next(self.records, start, len(self.records))
            for record, entry in zip(self.records[start:end], entries, strict=False):
                self.told[record.offset] = entry.outcome
            start = end
            self._save()
        return self

    def _save(self) -> None:
        assert not self.folded.halted, self.folded.halted
        ran(save(self.folded, self.store))
        self.digests[self.folded.position] = digest_bytes(self.folded.digest)

    def on_decision(self, decided_record: DecidedRecord | DecidedRun) -> None:
        """Record the outcome of a statement, which has no ledger entry."""
        if isinstance(decided_record, DecidedRecord):
            self.told[decided_record.at.offset] = decided_record.outcome
            return
        self.runs += 1
        self.told.update(dict.fromkeys((record.offset for record in decided_record.records), DONE))
