"""Records that the plane writes by itself: never ahead of the log, not too frequent, and few without effect."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import inf

from drivers.relays.reports import PROGRESS_S
from eventstore.log import FLEET_0, INSTALLS
from eventstore.replicas.beacons import EVERY_S
from schemas import events as e
from tests.simulation.checkers.evidence import REPLICAS_0, Evidence
from tests.simulation.history import Answered, ProcessUptime, Sample

Found = Iterator[str]

BOUNDS = {
    "tasks": 400,
    "backlog bytes": 3 << 20,
    "frames in flight to a DPU": 2,
    "open files": 1_000,
    "resident MiB": 1_500,
}
"""The sampled quantities, and the bound of each per process."""

DUPLICATION_FACTOR = 1.3
"""A faulty log duplicates records, so counts may exceed a rate by this factor."""

WINDOW_S = 10.0

EXTRA_RECORDS = 8
"""How many more records are allowed at the start of a process or by late landings."""

OWN = (e.MembershipChanged, e.NodesSuperseded, e.ZoneLimitsSet, e.OutboxAcknowledged, e.StepStarted, e.DeadlinePassed)
"""Records that the plane writes when the log shows a need for them. They change something unless they come too late."""


def check_positions(run: Evidence) -> Found:
    """I9: no replica reports a position beyond the end of the log."""
    for offset, beacon in run.beacons:
        at_s = run.appended_s(REPLICAS_0, offset)
        for status in beacon.partitions:
            if status.position > run.end_at(status.partition, at_s):
                yield f"{beacon.replica} reported {status.partition}@{status.position}, which did not exist yet"


def check_digests(run: Evidence) -> Found:
    """I10: no replica reports digests that differ from those of a fresh fold at that position."""
    rows = {(p, step.position): step.digest.hex() for p, found in run.steps.items() for step in found}
    read = {(p, step.position): step.running.hex() for p, found in run.steps.items() for step in found}
    for _, beacon in run.beacons:
        for status in beacon.partitions:
            where = f"{beacon.replica} reported {status.partition}"
            if read.get((status.partition, status.position), status.running) != status.running:
                yield f"{where}@{status.position} after other records than are in the log"
            if rows.get((status.partition, status.saved_position), status.digest) != status.digest:
                yield f"{where}@{status.saved_position} with other rows than a fresh fold has"


def check_versions(run: Evidence) -> Found:
    """I9: a zone's version never goes back, and no relay reports a version that fleet did not have yet."""
    for zone, versions in run.tables.items():
        if list(versions) != sorted(versions):
            yield f"the version of {zone} went back"
        if versions and max(versions) > max((step.position for step in run.steps[FLEET_0]), default=0):
            yield f"{zone} has version {max(versions)}, beyond the end of the log"
    for partition, steps in run.steps.items():
        for step in steps if partition.topic == INSTALLS else ():
            if isinstance(step.event, e.InstallsReported):
                end = run.end_at(FLEET_0, run.appended_s(partition, step.record.offset))
                relay, version = step.event.relay, max(step.event.versions, default=0)
                if version > end:
                    yield f"{relay} reported version {version} of {step.event.zone}, which did not exist yet"


def check_rates(run: Evidence) -> Found:
    """I18: in any ten seconds, no replica writes more beacons than allowed, and no relay more reports of a zone."""
    times: dict[tuple[str, float], list[float]] = defaultdict(list)
    for offset, beacon in run.beacons:
        times[f"{beacon.replica} sent beacons", EVERY_S].append(run.appended_s(REPLICAS_0, offset))
    for partition, steps in run.steps.items():
        for step in steps if partition.topic == INSTALLS else ():
            if isinstance(step.event, e.InstallsReported):
                what = f"{step.event.relay} reported of {step.event.zone}"
                times[what, PROGRESS_S].append(run.appended_s(partition, step.record.offset))
    for (what, every_s), times_s in sorted(times.items()):
        limit = DUPLICATION_FACTOR * WINDOW_S / every_s + EXTRA_RECORDS
        count, at_s = max((bisect_right(times_s, at_s + WINDOW_S) - i, at_s) for i, at_s in enumerate(times_s))
        if count > limit and at_s > -inf:
            yield f"{what} {count} times in {WINDOW_S:g} s from {at_s:.1f} s on"


def check_idle_records(run: Evidence) -> Found:
    """I17: failures, crashes and duplicated appends explain all records of the plane without effect.

    After a failure, the next attempt waits by the clock of the log. If that clock lags, each provisioner in turn may
    start the attempt too early.
    """
    uptimes = run.history.of(ProcessUptime)
    uptime_count = len(uptimes) or 1
    provisioners = len({uptime.process for uptime in uptimes if "provisioner" in uptime.roles}) or 1
    useful: Counter[type] = Counter()
    idle: Counter[type] = Counter()
    for steps in run.steps.values():
        for step in steps:
            (useful if step.rows else idle)[type(step.event)] += 1
    for kind in OWN:
        too_early = useful[e.StepFailed] * provisioners if kind is e.StepStarted else 0
        if idle[kind] > useful[kind] / 2 + too_early + EXTRA_RECORDS + 3 * uptime_count:
            yield f"{idle[kind]} {kind.__name__} changed nothing, and {useful[kind]} changed something"


def check_retries(run: Evidence) -> Found:
    """I17: a command is in the log no more often than it was sent, except for duplicates by the log."""
    copies = Counter(
        step.event.envelope.command_id
        for step in run.by_offset.values()
        if step.event is not None and step.event.envelope.command_id
    )
    answered = {answered.command_id for answered in run.history.of(Answered)}
    for command_id, count in sorted(copies.items()):
        sent = run.sent[command_id]
        if command_id in answered and sent and count > 2 * sent:
            yield f"{command_id} was sent {sent} times and is in the log {count} times"


def check_bounds(run: Evidence) -> Found:
    """I17: no bounded quantity exceeds its bound."""
    limit: dict[tuple[str, str], Sample] = {}
    for sample in run.history.of(Sample):
        highest = limit.get((sample.process, sample.what))
        if highest is None or highest.value < sample.value:
            limit[sample.process, sample.what] = sample
    for (process, what), sample in sorted(limit.items()):
        if sample.value > BOUNDS[what]:
            yield f"{process} had {sample.value:g} {what} at {sample.at_s:.1f} s; the bound is {BOUNDS[what]:g}"
