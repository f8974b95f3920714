"""The statuses of the plane's objects in source clusters: equal to the folds, only forward, small, and written only
when they change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.json import encode

from projections.fleet.tables import zone_table as tables
from projections.kubernetes.object_names import object_name
from projections.kubernetes.status_body import position_of, without_stamps
from projections.name_ranges import fold_names
from schemas.resources.dpu_rack import DPU_RACK, MAX_STATUS_BYTES
from schemas.resources.rule_policy import RULE_POLICY
from tests.simulation.checkers.evidence import Evidence
from tests.simulation.history import FaultInjected, FinalObject, ServerRestored, StatusCommitted

Found = Iterator[str]

AMPLIFICATION = 1.1
"""Maximum status writes per change of a status, also under faults."""
AWAY, HOUR_S = "API server away", 3_600.0
SLOW, UNDER_WAY_S = "slow API server", 5.0
"""A fault, and the time for which writes that began in it may last."""
REPEATED_MIN = 8
"""Repeated writes that a short run may have, whatever its number of changes: about one for each object. A replica that
takes over while its watches stall may write each status once that another replica has written already."""


def check_forward(run: Evidence) -> Found:
    """I28: the log position of an object's status never goes back, and a status has at most 2 kB."""
    for write in run.history.of(StatusCommitted):
        if position_of(write.status).is_refused_after(position_of(write.before)):
            yield f"{write.kind} {write.name} went back from {position_of(write.before)} to {position_of(write.status)}"
        size = len(encode(write.status))
        if write.kind == DPU_RACK.plural and size > MAX_STATUS_BYTES:
            yield f"{write.kind} {write.name} has a status of {size} bytes"


def check_amplification(run: Evidence) -> Found:
    """I28: at most a tenth of the writes of statuses repeats the status that an object has, or changes stamps only.

    While an API server is slow, a replica may write what the write of another replica, still under way, contains.
    """
    slow = [fault for fault in run.history.of(FaultInjected) if fault.kind == SLOW]
    writes = [
        write
        for write in run.history.of(StatusCommitted)
        if not any(fault.from_s <= write.at_s <= fault.to_s + UNDER_WAY_S for fault in slow)
    ]
    repeated = [write for write in writes if without_stamps(write.before) == without_stamps(write.status)]
    changes = len(writes) - len(repeated)
    if len(repeated) > max(REPEATED_MIN, (AMPLIFICATION - 1) * changes):
        shown = sorted({f"{write.kind} {write.name}" for write in repeated})[:3]
        yield f"{len(repeated)} of {len(writes)} writes of statuses changed nothing: {shown}"


def check_return(run: Evidence) -> Found:
    """I28, at rest: after an absence of an API server of an hour, in which changes have accumulated, each object is
    written once.
    """
    for absence in run.history.of(FaultInjected):
        if absence.kind == AWAY and absence.to_s - absence.from_s >= HOUR_S:
            writes = [write for write in run.history.of(StatusCommitted) if write.at_s >= absence.to_s]
            objects = {(write.kind, write.name) for write in writes}
            if len(writes) > AMPLIFICATION * len(objects):
                yield f"after an absence, {len(writes)} statuses of {len(objects)} objects were written"


def check_shown(run: Evidence) -> Found:
    """I28, at rest: each zone with a node or a DPU has an object, and every status equals the folds.

    A policy may lack its status if it was last written at a version that a restored server had reached before: only an
    hourly list finds it.
    """
    racks = {item.name: item.body for item in run.history.of(FinalObject) if item.kind == DPU_RACK.plural}
    policies = {item.name: item.body for item in run.history.of(FinalObject) if item.kind == RULE_POLICY.plural}
    if not racks and not policies:
        return
    members: dict[str, list[str]] = {}
    for state in run.zone_states:
        for name, row in state.nodes.rows.items():
            members.setdefault(row.zone, []).append(name)
        for dpu in state.dpus.rows.values():
            members.setdefault(dpu.zone, [])
    for zone, names in sorted(members.items()):
        body = racks.get(object_name(zone))
        if body is None:
            yield f"zone {zone} has no object"
        else:
            yield from _rack_faults(run, zone, names, body)
    reached = max((restore.from_version for restore in run.history.of(ServerRestored)), default=0)
    for name, body in sorted(policies.items()):
        if int(body["metadata"]["resourceVersion"]) <= reached:
            continue
        policy = run.fleet.policies.rows.get(name)
        yield from _unequal(f"policy {name}", body, {"version": policy.version if policy is not None else 0})


def _rack_faults(run: Evidence, zone: str, names: list[str], body: Mapping[str, Any]) -> Found:
    table, ranges = tables.table(run.fleet, zone), fold_names(names)
    status = body.get("status") or {}
    yield from _unequal(f"zone {zone}", body, {"nodes": len(names)})
    rules, wanted = status.get("rules") or {}, (table.version, table.digest.hex())
    if (rules.get("version"), rules.get("digest")) != wanted:
        yield f"zone {zone} shows rules {rules}, and the folds have {wanted}"
    if status.get("members") and status["members"] != ranges:
        yield f"zone {zone} shows members {status['members']}, and the folds have {ranges}"
    if ranges and len(ranges) <= 3 and not status.get("members"):
        yield f"zone {zone} shows no members, and the folds have {ranges}"


def _unequal(about: str, body: Mapping[str, Any], wanted: Mapping[str, Any]) -> Found:
    wanted = {**wanted, "observedGeneration": body["metadata"]["generation"]}
    status = body.get("status") or {}
    shown = {name: status.get(name) for name in wanted}
    if shown != wanted:
        yield f"{about} shows {shown}, and the folds have {wanted}"
