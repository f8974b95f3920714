"""One log, one state: every replica computes the same state, in any batches and from any saved state."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.composition.roles import folds_of
from deploy.composition.topics import TOPICS
from eventstore.folding.partition import FoldedPartition
from eventstore.log import INSTALLS, Partition
from eventstore.state_store.saver import load_partition
from eventstore.state_store.store import digest_bytes
from tests.simulation.checkers.evidence import Evidence
from tests.simulation.fresh import Digests
from tests.simulation.history import FinalPosition, StateSaved
from tests.support.delivered import ran

Found = Iterator[str]

PORTIONS = (1, 7, 64, 500)
"""Records at a time, in turn: runs of commands are folded together if there are enough in a row."""


def check_claims(run: Evidence) -> Found:
    """I10: the state that a replica saved of a partition is that of a fresh fold at that position."""
    digests = {(p, step.position): (step.digest, step.running) for p, found in run.steps.items() for step in found}
    for claim in run.history.of(StateSaved):
        if claim.position and digests.get((claim.partition, claim.position)) != (claim.digest, claim.running):
            where = f"{claim.process} saved {claim.partition} at {claim.position}"
            yield f"{where} with other digests than a fresh fold has"


def check_portions(run: Evidence) -> Found:
    """I10: a partition folded in batches equals one folded record by record."""
    for partition in run.folded:
        other, digests = _empty(run, partition), Digests()
        digests.take_in(other)
        _fold_on(other, run, 0)
        digests.take_in(other)
        if fault := _difference(run, other, digests.total):
            yield f"{partition}, folded in portions, {fault}"


def check_saved(run: Evidence) -> Found:
    """I11: a saved state plus the records after it equals a fold of all records."""
    for name, saved in run.saved.items():
        for partition in run.folded:
            head = saved.head(partition)
            if head is None:
                continue
            other = ran(load_partition(_empty(run, partition), saved))
            if other is None:
                yield f"what {name} saved of {partition} cannot be used"
                continue
            digests = Digests()
            digests.take_whole(other)
            _fold_on(other, run, other.position)
            digests.take_in(other)
            if fault := _difference(run, other, digests.total):
                yield f"{partition}, folded on from what {name} saved at {head.position}, {fault}"


def check_agreement(run: Evidence) -> Found:
    """I22: two readers see one record at each position, and every replica read the same records before it."""
    for partition, records in run.records.items():
        if list(records) != list(run.again.get(partition, ())):
            yield f"two readers of {partition} do not see the same"
    ends = {partition: steps[-1] for partition, steps in run.steps.items() if steps}
    for stood in run.history.of(FinalPosition):
        end = ends.get(stood.partition)
        if end is not None and stood.position == end.position and stood.running != end.running:
            yield f"{stood.process} has read other records of {stood.partition} than are in it"


def check_quarantine(run: Evidence) -> Found:
    """I20: the plane appends no record that its own folds reject."""
    for partition, found in run.folded.items():
        if found.quarantined and partition.topic != INSTALLS:
            yield f"{partition} has {found.quarantined} quarantined records: {list(found.quarantine)[:2]}"


def _empty(run: Evidence, partition: Partition) -> FoldedPartition:
    fold = next(fold for fold in folds_of(run.partition_count) if fold.topic == partition.topic)
    return FoldedPartition(partition, {fold.version: fold}, run.log_id, is_deciding=fold.topic in TOPICS.deciding)


def _fold_on(folded: FoldedPartition, run: Evidence, position: int) -> None:
    records = [record for record in run.records[folded.partition] if record.offset >= position]
    start = turn = 0
    while start < len(records) and not folded.halted:
        end = min(len(records), start + PORTIONS[turn % len(PORTIONS)])
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
        return "remembers other commands"
    return ""
