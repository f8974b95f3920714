"""The status of a DPURack: the state of a zone in at most 2 kB, whatever its size.

If the status is too large, the members are left out first, then the last offenders. Members are listed all or not at
all.

A change of rules needs a second or two to reach the hardware of all DPUs. The condition RulesInstalled ignores the
changes of the last seconds: otherwise each join of a node would flip it twice in every zone, and each flip is a write.
The version and the counts in `rules` include these changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Any, NamedTuple

from projections.fleet.state import FleetState
from projections.fleet.tables import zone_table as tables
from projections.installs.rows import InstallsState, Level
from projections.kubernetes.statements import NO_ACCEPTANCE, STATED, Acceptance
from projections.kubernetes.status_body import (
    Condition,
    Document,
    Position,
    StatusBody,
    conditions_of,
    shortened,
    size_of,
    transition_ms,
)
from projections.views.progress import ProgressView, ProgressViews
from projections.views.staging import lagging
from projections.zones.dpus.phases import ERROR, INITIALIZING, READY
from projections.zones.rows import Dpu
from projections.zones.state import ZonesState
from schemas.resources.dpu_rack import MAX_OFFENDERS, MAX_RANGES, MAX_STATUS_BYTES

READY_CONDITION = "Ready"
ZONE_UNKNOWN = "ZoneUnknown"
"""The reason of the condition Ready of an object whose zone was deleted, or has not joined yet."""
RULES_INSTALLED = "RulesInstalled"

INSTALL_GRACE_MS = 15_000
"""RulesInstalled stays true while the earliest change of rules that is not in hardware is younger than this."""
MAX_LISTED = 2_048
"""Maximum number of nodes of a zone whose names are listed as ranges. More names seldom fit, and their conversion to
ranges takes long."""
MAX_RANGE_CHARACTERS = 253
MAX_REASON = 120
MAX_DPU = 100
"""Maximum numbers of characters that are shown for an offender: MAX_REASON of the reason, MAX_DPU of the DPU's name."""


class RackStates(NamedTuple):
    """The states that a zone's status depends on, at one position. `epoch` is the generation of the log. `ranges` are
    the names of the zone's nodes in the compact form of `fold_names`; empty if the zone has more than MAX_LISTED
    nodes."""

    zones: ZonesState
    fleet: FleetState
    installs: InstallsState
    epoch: int
    ranges: Sequence[str]


def names_by_zone(state: ZonesState, zones: Collection[str]) -> dict[str, list[str]]:
    """The names of the nodes of these zones, without zones that have more than MAX_LISTED nodes."""
    found: dict[str, list[str]] = {zone: [] for zone in zones if 0 < state.node_counts.get(zone, 0) <= MAX_LISTED}
    if found:
        for name, row in state.nodes.rows.items():
            names = found.get(row.zone)
            if names is not None:
                names.append(name)
    return found


def rack_status(
    zone: str,
    states: RackStates,
    position: Position,
    progress: ProgressViews,
    *,
    observed_generation: int,
    now_ms: int,
    time_ms: int,
    accepted: Acceptance = NO_ACCEPTANCE,
) -> StatusBody:
    """The status of a zone's object. `time_ms` is the fold time."""
    view = progress.view(zone, states.zones, states.fleet, states.installs, states.epoch)
    installed = _installed(view, now_ms)
    table = tables.table(states.fleet, zone)
    ready = _ready(view, installed) if is_known(zone, states.zones, states.fleet) else _UNKNOWN
    content: dict[str, Any] = {
        "observedGeneration": observed_generation,
        "nodes": view.nodes,
        "dpus": view.dpus,
        "readyDpus": view.phases.get(READY, 0),
        "phases": {phase: count for phase, count in sorted(view.phases.items()) if phase != READY},
        "members": [],
        "rules": {
            "version": view.version,
            "digest": table.digest.hex(),
            "rules": sum(found.prefixes.size() for found in table.sets),
            "applied": view.applied if view.reported >= view.version else 0,
            "inHardware": view.in_hardware if view.reported >= view.version else 0,
        },
        "frozen": view.frozen,
        "offenders": [],
        "conditions": [
            *(each.document(observed_generation) for each in (ready, installed)),
            *accepted.conditions,
        ],
    }
    if accepted.stated:
        content[STATED] = accepted.stated
    for offender in _offenders(zone, states, is_late=not installed.is_true):
        content["offenders"].append(offender)
        if size_of(content) > MAX_STATUS_BYTES:
            content["offenders"].pop()
            break
    content["members"] = _fitting_members(states.ranges, content)
    return StatusBody(content, position, time_ms)


def is_known(zone: str, zones: ZonesState, fleet: FleetState) -> bool:
    """Whether the plane has a zone: its nodes, DPUs, labels, limits or freeze, or an empty one that is not deleted."""
    return zones.existing_zone(zone) is not None or fleet.has_zone(zone)


def unknown_since_ms(status: Document) -> int:
    """The time since which the status of an object says that the plane has no such zone; 0 if it does not."""
    reasons = {found.get("type"): found.get("reason") for found in conditions_of(status)}
    return transition_ms(status, READY_CONDITION) if reasons.get(READY_CONDITION) == ZONE_UNKNOWN else 0


def _installed(view: ProgressView, now_ms: int) -> Condition:
    if not view.dpus:
        return Condition(RULES_INSTALLED, True, "NoDPUs", "the zone has no DPU")
    since = [time_ms for time_ms in (view.pending_start_time_ms, view.unreported_start_time_ms) if time_ms]
    is_current = view.reported >= view.version and view.in_hardware == view.dpus
    is_recent = view.reported and since and now_ms - min(since) < INSTALL_GRACE_MS
    if is_current or is_recent:
        return Condition(RULES_INSTALLED, True, "Installed", f"all {view.dpus} DPUs have all rules in hardware")
    have = view.in_hardware if view.reported >= view.version else 0
    message = f"{have} of {view.dpus} DPUs are known to have version {view.version} in hardware"
    return Condition(RULES_INSTALLED, False, "Frozen" if view.frozen else "Installing", message)


_UNKNOWN = Condition(READY_CONDITION, False, ZONE_UNKNOWN, "the plane has no such zone; its first node or DPU makes it")


def _ready(view: ProgressView, installed: Condition) -> Condition:
    if not view.dpus:
        return Condition(READY_CONDITION, True, "NoDPUs", "the zone has no DPU")
    if view.stuck:
        message = f"{view.stuck} of {view.dpus} DPUs need an operator"
        return Condition(READY_CONDITION, False, "DPUsNeedOperator", message)
    if not installed.is_true:
        return Condition(READY_CONDITION, False, installed.reason, installed.message)
    provisioning = view.dpus - view.phases.get(READY, 0) - view.phases.get(INITIALIZING, 0)
    if provisioning:
        message = f"{provisioning} of {view.dpus} DPUs are being provisioned"
        return Condition(READY_CONDITION, False, "Provisioning", message)
    return Condition(READY_CONDITION, True, "Ready", f"{view.dpus} DPUs serve")


def _offenders(zone: str, states: RackStates, *, is_late: bool) -> list[dict[str, str]]:
    """The DPUs that need attention, the worst first: stuck ones, then those that refused or rolled back their rules,
    then those without the newest rules."""
    found: dict[str, str] = {}
    for dpu, reason in _reasons(zone, states, is_late=is_late):
        found.setdefault(dpu, reason)
        if len(found) == MAX_OFFENDERS:
            break
    return [{"dpu": shortened(dpu, MAX_DPU), "reason": shortened(reason, MAX_REASON)} for dpu, reason in found.items()]


def _reasons(zone: str, states: RackStates, *, is_late: bool) -> Iterator[tuple[str, str]]:
    dpus, rows = states.zones.dpu_index.zone(zone), states.zones.dpus.rows
    for name in worst_stuck(states.zones, zone, MAX_OFFENDERS):
        yield name, stuck_because(rows[name])
    told = states.installs.zones.rows.get(zone)
    if told is None or told.epoch != states.epoch:
        return
    behind = lagging(zone, dpus.names, states.fleet, states.installs, Level.IN_HARDWARE)
    late = {dpus.names[ordinal]: None for ordinal in behind}
    for exception in told.exceptions:
        if exception.dpu in late:
            has_rolled_back = exception.version >= 0
            yield exception.dpu, f"rolled back to {exception.version}" if has_rolled_back else exception.reason
    if is_late:
        newest = states.installs.numbers[zone][-1] if states.installs.numbers.get(zone) else 0
        yield from ((name, f"version {newest} not in hardware") for name in islice(late, 2 * MAX_OFFENDERS))


def worst_stuck(state: ZonesState, zone: str, limit: int) -> list[str]:
    """The DPUs of a zone that need an operator: failed ones first, and the longest waiting first."""
    rows = state.dpus.rows

    def badness(name: str) -> tuple[bool, int, str]:
        return rows[name].phase != ERROR, rows[name].since_ms, name

    return nsmallest(limit, state.dpu_index.zone(zone).stuck, badness)


def stuck_because(dpu: Dpu) -> str:
    """Why a DPU needs an operator."""
    if dpu.swapped:
        return "swapped for another card"
    if dpu.paused:
        return f"paused in {dpu.phase}"
    return f"{dpu.phase}: {dpu.message}" if dpu.message else dpu.phase


def _fitting_members(ranges: Sequence[str], content: dict[str, Any]) -> list[str]:
    """The ranges of members; an empty list unless all of them fit."""
    is_listed = len(ranges) <= MAX_RANGES and all(len(each) <= MAX_RANGE_CHARACTERS for each in ranges)
    return [*ranges] if is_listed and size_of({**content, "members": ranges}) <= MAX_STATUS_BYTES else []
