"""The lifecycle of DPUs: only legal transitions, defined here independently of the plane. Only the attempt that the log
names acts on a device.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from eventstore.log import CLIQUES, ZONES, Partition
from projections.zones.rows import Dpu
from schemas import events as e
from tests.simulation.checkers.evidence import Evidence
from tests.simulation.history import BmcCalled

Found = Iterator[str]

ACTIONS = {
    "Node Effect": "drain",
    "Initialize Interface": "initialize",
    "Config FW Parameters": "firmware",
    "Prepare BFB": "prepare",
    "OS Installing": "install",
    "DPU Config": "configure",
    "Rebooting": "reboot",
    "Host Network Configuration": "host-network",
    "DPU Cluster Config": "join-cluster",
    "Service Readiness": "check-services",
    "Node Effect Removal": "undrain",
    "Deleting": "release",
}
"""The action of a device in each working phase, in the order of a provisioning."""

DEFAULT_LIMIT = 50

_ORDER = [phase for phase in ACTIONS if phase != "Deleting"]
_INSTALLS = _ORDER[:-1]
_SAME = "same"
_OUTSIDE = {"Initializing", "Pending", "Ready"}
_AT_REST = {*_OUTSIDE, "Error"}
_ENDS = {"Node Effect Removal": {"Ready", "Initializing"}, "Deleting": {"gone"}}


def _next(phase: str) -> set[str]:
    return _ENDS.get(phase) or {_ORDER[_ORDER.index(phase) + 1]}


def _requested(request: str, before: Dpu) -> set[str]:
    """The phases to which a request may move a DPU."""
    phase, failed = before.phase, before.resume
    match request:
        case "pause" | "resume":
            return {_SAME}
        case "provision" if phase in _AT_REST:
            return {"Pending", "Node Effect"}
        case "retry" if phase == "Error":
            return {failed, "Pending"}
        case "retry" if phase in ACTIONS:
            return {_SAME, "Pending"}
        case "skip" if phase == "Error" and failed in ACTIONS:
            return _next(failed) | {"Pending"}
        case "skip" if phase in ACTIONS:
            return _next(phase)
        case "abort" if phase == "Pending":
            return {"Ready", "Initializing", "Node Effect Removal"}
        case "abort" if phase in ACTIONS or phase == "Error":
            return {"Node Effect Removal"}
        case "delete":
            return {"Deleting"}
    return set()


_WANTED = {
    False: {_SAME, "Pending", "Node Effect", "Node Effect Removal", "Ready", "Error", "Deleting"},
    True: {_SAME},
}
"""The phases to which a statement of what is wanted may move a DPU, and one that is being deleted."""


def _targets(event: e.Event | None, name: str, before: Dpu) -> set[str]:
    """The phases to which this record may move a DPU."""
    admitted = {before.resume or "Node Effect"} if before.phase == "Pending" else set()
    if isinstance(event, e.DpusWanted):
        return admitted | (_WANTED[before.phase == "Deleting"] if name in event.dpus else set())
    if getattr(event, "dpu", event.envelope.subject if event else "") != name:
        return admitted
    return admitted | _own_targets(event, before)


def _own_targets(event: e.Event | None, before: Dpu) -> set[str]:
    """The phases to which a record about this DPU may move it."""
    match event:
        case e.LifecycleRequested():
            return _requested(event.request, before)
        case e.StepStarted() | e.StepProgressed() if before.phase in ACTIONS:
            return {_SAME}
        case e.StepSucceeded() if before.phase in ACTIONS:
            return _next(before.phase) | {_SAME, "Error"}
        case e.StepFailed() | e.DeadlinePassed() if before.phase in ACTIONS:
            return {_SAME, "Error"}
        case e.DpuRegistered():
            return {_SAME, "Error"}
    return set()


def check_transitions(run: Evidence) -> Found:
    """I5: a DPU changes its phase only as its phase and the record allow; an absent row is never removed."""
    for partition, steps in run.steps.items():
        rows: dict[tuple[str, str], Any] = {}
        for step in steps:
            where = f"{partition}@{step.record.offset}"
            for table, changes in step.rows.items():
                for key, after in changes:
                    before = rows.get((table, key))
                    rows[table, key] = after
                    if table == "dpus" and (fault := _illegal(step.event, key, before, after)):
                        yield f"{where}: {fault}"
                    if partition.topic in (ZONES, CLIQUES) and table != "marks" and before is None and after is None:
                        yield f"{where} removes {key} from {table}, which does not have it"


def _is_new(before: Dpu, after: Dpu | None) -> bool:
    """Whether a row is another DPU under the same name: a wanted one that is registered anew once it is gone."""
    return after is not None and after.ordinal != before.ordinal and not after.installed


def _illegal(event: e.Event | None, name: str, before: Dpu | None, after: Dpu | None) -> str:
    cause = f"by {type(event).__name__} {getattr(event, 'request', '')}"
    if before is None:
        begins = {"Initializing", "Pending", "Node Effect"} if isinstance(event, e.DpusWanted) else {"Initializing"}
        is_legal = isinstance(event, e.DpuRegistered | e.DpusWanted) and after is not None and after.phase in begins
        return "" if is_legal or after is None else f"{name} begins as {after.phase} {cause}"
    to = "gone" if after is None else after.phase
    if before.phase == "Deleting" and to in ("Initializing", "Pending", "Node Effect") and _is_new(before, after):
        return ""
    allowed = _targets(event, name, before)
    if not ((to == before.phase and _SAME in allowed) or to in allowed):
        return f"{name} goes from {before.phase} to {to} {cause}"
    if after is not None and to == "Ready" and not after.installed:
        return f"{name} is Ready, but nothing is installed"
    return ""


def check_attempts(run: Evidence) -> Found:
    """I7: a report about a step counts only if it is about the running attempt of the log and comes from its holder."""
    for partition, steps in run.steps.items():
        if partition.topic != ZONES:
            continue
        rows: dict[str, Dpu] = {}
        last: dict[str, int] = {}
        for step in steps:
            where, event = f"{partition}@{step.record.offset}", step.event
            changed = dict(step.rows.get("dpus", ()))
            if isinstance(event, e.StepProgressed | e.StepSucceeded | e.StepFailed) and event.dpu in changed:
                yield from _unauthorized(where, event, rows.get(event.dpu))
            for dpu, row in changed.items():
                before = last.get(dpu, 0)
                attempt = before if row is None else row.attempt
                if attempt < before:
                    yield f"{where}: attempt {attempt} of {dpu} after {before}"
                last[dpu] = attempt
            rows |= changed


def _unauthorized(where: str, event: e.StepProgressed | e.StepSucceeded | e.StepFailed, row: Dpu | None) -> Found:
    cause = (
        f"{where}: {type(event).__name__} of attempt {event.attempt} of {event.dpu} by {event.envelope.actor} counts"
    )
    if row is None or row.step_state != "running" or (row.attempt, row.phase) != (event.attempt, event.phase):
        yield f"{cause}, but that is not the running attempt"
    elif getattr(event, "kind", "") != "lost":
        holder = row.provisioner.split("#")[0]
        if event.envelope.actor != f"provisioner/{holder}":
            yield f"{cause}, but {holder} holds the attempt"


def check_marks(run: Evidence) -> Found:
    """I7: a record caused by another partition counts if and only if it begins where the last one ended."""
    marks: dict[tuple[Partition, int], int] = {}
    for partition, found in run.steps.items():
        for step in found:
            event = step.event
            if isinstance(event, e.MembershipChanged):
                key = partition, event.cause_partition
            elif isinstance(event, e.NodesSuperseded | e.ZoneLimitsSet):
                key = partition, -1
            else:
                continue
            first, end, mark = event.from_offset, event.to_offset, marks.get(key, 0)
            fits = first == mark and end > first
            if fits != ("marks" in step.rows):
                yield f"{partition}@{step.record.offset}: [{first}, {end}) at mark {mark}"
            if fits:
                marks[key] = end


def check_calls(run: Evidence) -> Found:
    """I7: a BMC is told only the action of an attempt of the log, once per attempt, in the order of attempts."""
    named: dict[tuple[str, int], list[str]] = defaultdict(list)
    for found in run.steps.values():
        for step in found:
            if isinstance(step.event, e.StepStarted) and step.rows:
                named[step.event.dpu, step.event.attempt].append(ACTIONS[step.event.phase])
    calls: dict[str, list[BmcCalled]] = defaultdict(list)
    for call in run.history.of(BmcCalled):
        calls[call.device].append(call)
    for dpu, calls_of_dpu in calls.items():
        tokens = [(call.began_ms, call.attempt) for call in calls_of_dpu]
        if len(set(calls_of_dpu)) != len(calls_of_dpu) or tokens != sorted(tokens):
            told = [(call.attempt, call.action) for call in calls_of_dpu]
            yield f"{dpu} was told an action twice, or by an attempt that had ended: {told}"
        for call in calls_of_dpu:
            known = named.get((dpu, call.attempt), ["None"])
            if call.action not in known:
                at = f"attempt {call.attempt}, which the log has for {' and '.join(known)}"
                yield f"{dpu} was told to {call.action} by {at}"


def check_rollout(run: Evidence) -> Found:
    """I13: no zone starts installs of more DPUs, or drains more nodes for them, than its limits allow."""
    for partition, steps in run.steps.items():
        if partition.topic != ZONES:
            continue
        rows: dict[str, Dpu] = {}
        limits: dict[str, tuple[int, int]] = {}
        for step in steps:
            limits |= {k: (z.parallel_installs, z.unavailable_nodes) for k, z in step.rows.get("zones", ()) if z}
            changed = dict(step.rows.get("dpus", ()))
            after = {name: row for name, row in (rows | changed).items() if row is not None}
            for name, row in changed.items():
                before = rows.get(name)
                if before is not None and row is not None and before.phase in _OUTSIDE and row.phase in _INSTALLS:
                    for fault in _too_many(row.zone, rows, after, limits.get(row.zone, (0, 0))):
                        yield f"{partition}@{step.record.offset} admits {name}: {fault}"
            rows = after


def _too_many(zone: str, before: dict[str, Dpu], after: dict[str, Dpu], limits: tuple[int, int]) -> Found:
    kinds = ("DPUs are installing", "nodes are out of service")
    for what, had, has, limit in zip(kinds, _busy(before, zone), _busy(after, zone), limits, strict=True):
        if had < has > (limit or DEFAULT_LIMIT):
            yield f"{has} {what} in {zone}, and the limit is {limit or DEFAULT_LIMIT}"


def _busy(rows: dict[str, Dpu], zone: str) -> tuple[int, int]:
    """The number of DPUs of a zone that are installing, and the number of its nodes out of service."""
    found = {name: row for name, row in rows.items() if row.zone == zone}
    hosts = {row.node or name for name, row in found.items() if row.effect}
    return sum(row.phase in _INSTALLS for row in found.values()), len(hosts)
