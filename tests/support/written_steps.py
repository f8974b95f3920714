"""Steps that a test writes row by row in place of a fold's result; some could come from no correct fold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventstore.log import Partition, Record
from eventstore.replicas.replica import Answer
from schemas import events as e
from tests.simulation.checkers import Evidence
from tests.simulation.fresh import Step
from tests.simulation.history import HistoryEntry
from tests.support.written_run import START_MS, ZONES_0, WrittenRun


class WrittenSteps:
    """Partitions that are empty at first. Each step advances the clock by a second, unless a test sets the time."""

    def __init__(self, *happened: HistoryEntry) -> None:
        self.log = WrittenRun()
        self.steps: dict[Partition, list[Step]] = {partition: [] for partition in self.log.records}
        self.now_s = 0.0
        for each in happened:
            self.log.history.add(each)

    def add(
        self,
        event: e.Event | None,
        partition: Partition = ZONES_0,
        answer: Answer | None = None,
        /,
        **rows: Mapping[str, Any],
    ) -> WrittenSteps:
        """Add a record, the answer to its author, and the rows that it changed, by table and key."""
        self.now_s += 1.0
        found = self.steps.setdefault(partition, [])
        record = Record(len(found), START_MS + round(self.now_s * 1000), b"", b"")
        changed = {table: list(changes.items()) for table, changes in rows.items()}
        found.append(Step(partition, record, event, answer, changed, b"", b""))
        return self

    def evidence(self) -> Evidence:
        """The evidence for checkers. A record is appended at the second of its timestamp."""
        run = self.log.evidence()
        run.steps = self.steps
        appended_s = {
            (partition, step.record.offset): (step.record.timestamp_ms - START_MS) / 1_000
            for partition, found in self.steps.items()
            for step in found
        }
        run._appended_s = lambda partition, offset: appended_s[partition, offset]
        run.records = {partition: [step.record for step in found] for partition, found in self.steps.items()}
        return run
