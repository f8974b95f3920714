"""Every replica computes the same state from the log, with any batch sizes and from any saved state."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.composition.roles import folds_of
from deploy.composition.topics import TOPICS
from eventstore.folding.fold import folds_by_version
from eventstore.folding.partition import FoldedPartition
from eventstore.log import INSTALLS, Partition
from eventstore.state_store.saver import load_partition
from eventstore.state_store.store import digest_bytes
from tests.simulation.checkers.evidence import Evidence
from tests.simulation.fresh import Digests
from tests.simulation.history import FinalPosition, StateSaved
from tests.support.delivered import ran

Found = Iterator[str]

BATCH_SIZES = (1, 7, 64, 500)
"""The batch sizes, in turn. A long series of commands is folded as one run, so large batches take another path."""


def check_saved_digests(run: Evidence) -> Found:
    """I10: the state that a replica saved equals a fresh fold at its position."""
    digests = {(p, step.position): (step.digest, step.running) for p, found in run.steps.items() for step in found}
    for saved in run.history.of(StateSaved):
        if saved.position and digests.get((saved.partition, saved.position)) != (saved.digest, saved.running):
            where = f"{saved.process} saved {saved.partition} at {saved.position}"
            yield f"{where} with other digests than a fresh fold has"


def check_batches(run: Evidence) -> Found:
    """I10: a partition folded in batches equals one folded record by record."""
    for partition in run.folded:
        other, digests = _empty(run, partition), Digests()
        digests.add_changed_rows(other)
        _fold_on(other, run, 0)
        digests.add_changed_rows(other)
        if fault := _difference(run, other, digests.total):
            yield f"{partition}, folded in batches, {fault}"


def check_saved(run: Evidence) -> Found:
    """I11: a saved state plus the records after it equals a fold of all records."""
    for name, saved in run.saved.items():
        for partition in run.folded:
            head = saved.head(partition)
            if head is None:
                continue
            other = ran(load_partition(_empty(run, partition), saved))
            if other is None:
                yield f"the state that {name} saved of {partition} cannot be loaded"
                continue
            digests = Digests()
            digests.add_all_rows(other)
            _fold_on(other, run, other.position)
            digests.add_changed_rows(other)
            if fault := _difference(run, other, digests.total):
                yield f"{partition}, folded from the state that {name} saved at {head.position}, {fault}"


def check_agreement(run: Evidence) -> Found:
    """I22: two readers see one record at each position, and every replica read the same records before it."""
    for partition, records in run.records.items():
        if list(records) != list(run.again.get(partition, ())):
            yield f"two readers of {partition} see different records"
    ends = {partition: steps[-1] for partition, steps in run.steps.items() if steps}
    for final in run.history.of(FinalPosition):
        end = ends.get(final.partition)
        if end is not None and final.position == end.position and final.running != end.running:
            yield f"{final.process} has read other records of {final.partition} than the log has"


def check_quarantine(run: Evidence) -> Found:
    """I20: the plane appends no record that its own folds reject."""
    for partition, found in run.folded.items():
        if found.quarantined and partition.topic != INSTALLS:
            yield f"{partition} has {found.quarantined} quarantined records: {list(found.quarantine)[:2]}"


def _empty(run: Evidence, partition: Partition) -> FoldedPartition:
    versions = folds_by_version(folds_of(run.partition_count))[partition.topic]
    return FoldedPartition(partition, versions, run.log_id, is_deciding=partition.topic in TOPICS.deciding)


def _fold_on(folded: FoldedPartition, run: Evidence, position: int) -> None:
    records = [record for record in run.records[folded.partition] if record.offset >= position]
    start = turn = 0
    while start < len(records) and not folded.halted:
        end = min(len(records), start + BATCH_SIZES[turn % len(BATCH_SIZES)])
        start, _ = folded.fold_next(records, start, end)
        turn += 1


def _difference(run: Evidence, other: FoldedPartition, digest: int) -> str:
    steps = run.steps[other.partition]
    if not steps:
        return ""
    if other.halted:
        return f"halts: {other.halted}"
    if digest_bytes(digest) != steps[-1].digest:
        return "has other rows"
    if other.running != steps[-1].running:
        return "has another hash of its records"
    reference = run.folded[other.partition].ledger
    if other.ledger.state() != reference.state():
        return "has other command ids"
    return ""
