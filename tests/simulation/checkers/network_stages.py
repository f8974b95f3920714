"""Staged changes of networks: which DPUs may have the changed document when, from raw records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf

from deploy.composition.roles import folds_of
from eventstore.folding.fold import folds_by_version
from eventstore.log import RESOURCES, ZONES, Partition
from projections.resources.network_documents.derive import NetworkDocuments
from projections.resources.network_documents.document import NO_NETWORK
from projections.resources.network_documents.stated import in_clusters
from projections.resources.network_documents.stated_text import decoded_networks
from projections.resources.network_stages.rows import StagedNetworks
from projections.resources.state import LOCAL
from projections.staging.course import PATIENCE_MS, STAGING
from schemas.events import NetworksWanted, StageDpusNamed
from tests.simulation.checkers.evidence import Evidence, Records, log_id_of
from tests.simulation.checkers.staging import IDLE_S
from tests.simulation.fresh import Step, refold
from tests.simulation.plan import PARTITIONS

Found = Iterator[str]

_CLUSTER = "cluster"
"""The DPU cluster of all selectors: there is one."""


class _Course:
    """A staged change: the stage of each named DPU, and the position from which each stage is released, as records
    tell them. From `everywhere` on all DPUs should have the change, from `undone` on none.
    """

    def __init__(self, row: StagedNetworks) -> None:
        self.row = row
        self.named: dict[str, int] = {}
        self.released: dict[int, int] = {}
        self.everywhere = inf
        self.undone = inf
        self.ended = inf
        networks = [each for text in (row.before, row.after) if (each := decoded_networks(text)) is not None]
        self._documents = [NetworkDocuments(in_clusters(each, lambda _: (_CLUSTER,))) for each in networks]

    def digests(self, dpu: str) -> tuple[str, str]:
        """The digests of a DPU's documents before and after the change, in the only DPU cluster."""
        before, after = (each.of_node(_CLUSTER, {"kubernetes.io/hostname": dpu}) for each in self._documents)
        return before.digest, after.digest

    def since(self, dpu: str) -> float:
        """The position from which a DPU may have the change."""
        return min(self.released.get(self.named.get(dpu, 0), inf), self.everywhere)


def check_documents(run: Evidence) -> Found:
    """I32: a DPU gets the document of a change only after the release of a stage that names it, and not after an undo;
    it gets none without the change after the release of the last stage."""
    courses = [course for partition in _partitions(run) for course in _courses(run.steps[partition])]
    for partition, steps in run.steps.items():
        for step in steps if partition.topic == ZONES else ():
            if isinstance(step.event, NetworksWanted):
                yield from _faults(step, step.event, courses)


def _faults(step: Step, event: NetworksWanted, courses: list[_Course]) -> Found:
    as_of = event.to_offset
    active = [course for course in courses if course.row.version <= as_of < course.ended]
    wanted = {name: row for name, row in step.rows.get("dpu_networks", ()) if row is not None}
    for course in active[-1:]:
        for name, row in wanted.items():
            if row.version != step.record.offset or row.digest == NO_NETWORK.digest:
                continue  # a DPU that no object wants has no network, in any stage
            before, after = course.digests(name)
            if before == after:
                continue
            if row.digest == after and not course.since(name) <= as_of < course.undone:
                yield f"{name} gets the document of a change at {step.record.offset}, outside of its stage"
            if row.digest == before and course.everywhere <= as_of < course.undone:
                yield f"{name} gets the document before a change at {step.record.offset}, after its last stage"


def _partitions(run: Evidence) -> list[Partition]:
    return [partition for partition in run.steps if partition.topic == RESOURCES]


def _courses(steps: list[Step]) -> Iterator[_Course]:
    """The staged changes of a source, in order."""
    course: _Course | None = None
    for step in steps:
        changed, row = _row(step)
        if changed and course is not None and (row is None or row.version != course.row.version):
            course.ended = min(course.ended, step.position)
            yield course
            course = None
        if row is not None and not row.result and course is None:
            course = _Course(row)
        if course is None:
            continue
        if isinstance(step.event, StageDpusNamed) and "staged_network_dpus" in step.rows:
            for dpu in step.event.dpus:
                course.named.setdefault(dpu, step.event.stage)
        if row is not None:
            _follow(course, row, step.position)
    if course is not None:
        yield course


def _follow(course: _Course, row: StagedNetworks, position: int) -> None:
    if row.stage:
        course.released.setdefault(row.stage, position)
    if row.is_everywhere:
        course.everywhere = min(course.everywhere, position)
    if row.undone_by:
        course.undone = min(course.undone, position)
    if row.result:
        course.ended = min(course.ended, position)


def check_order(run: Evidence) -> Found:
    """I32: stages follow each other, none ends before its bake time, and a held or paused change does not go on."""
    for partition in _partitions(run):
        last: StagedNetworks | None = None
        for step in run.steps[partition]:
            changed, row = _row(step)
            if not changed:
                continue
            before, last = last, row
            if before is None or row is None or before.version != row.version or row.stage == before.stage:
                continue
            where = f"{partition}@{step.record.offset}"
            if row.stage != before.stage + 1 or before.phase != STAGING:
                yield f"{where}: stage {row.stage} follows stage {before.stage}, and the change was {before.phase}"
            if before.stage and row.since_ms != before.since_ms and row.since_ms - before.since_ms < row.plan.bake_ms:
                yield f"{where}: stage {before.stage} ends {row.since_ms - before.since_ms} ms after its release"


def check_ended(run: Evidence) -> Found:
    """I32, at rest: a change that nothing holds up goes on."""
    if run.end_s is None:
        return
    for partition in _partitions(run):
        time_ms = run.steps[partition][-1].record.timestamp_ms if run.steps[partition] else 0
        for source, row in run.folded[partition].state.staged_networks.rows.items():
            is_waiting = row.is_open and not row.held and not row.paused_by
            if is_waiting and time_ms > row.since_ms + row.plan.bake_ms + PATIENCE_MS + IDLE_S * 1_000:
                yield f"the change of the networks of {source} stays in stage {row.stage} since {row.since_ms}"


def network_course_counts(records: Records) -> Counter[str]:
    """The number of released stages of networks, and of changes that ended and that were rolled back."""
    counts: Counter[str] = Counter()
    folds = folds_by_version(folds_of(PARTITIONS))[RESOURCES]
    for partition in (each for each in records if each.topic == RESOURCES):
        _, steps = refold(partition, records[partition], folds, log_id_of(records))
        for course in _courses(steps):
            counts["network stages released"] += len(course.released)
            counts["network changes undone"] += course.undone < inf
            counts["network changes everywhere"] += course.everywhere < inf
    return counts


def _row(step: Step) -> tuple[bool, StagedNetworks | None]:
    """Whether the record changed the staged networks of the source, and their row."""
    found = [row for key, row in step.rows.get("staged_networks", ()) if key == LOCAL]
    return bool(found), found[-1] if found else None
