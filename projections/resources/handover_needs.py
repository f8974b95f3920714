"""The records that wanted DPUs and their zones still need: placements, statements to zones, and reports from zones.

The needs follow from the states of both sides alone, and a record that is folded ends its need. So any replica may
append a record, more than once, and a driver may stop at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from projections.resources.blame import Blame
from projections.resources.derivation import Derivation
from projections.resources.handover import DpuForZone, handover, image_fault
from projections.resources.rollouts.released import released
from projections.resources.state import Placement, ResourcesState, object_id
from projections.zones.dpus.install_interfaces import step_of
from projections.zones.dpus.phases import READY, STEPS, WAITS
from projections.zones.dpus.wanted import is_being_deleted
from projections.zones.rows import Dpu, WantedDpu
from projections.zones.state import ZonesState


class HandoverSides(NamedTuple):
    """The states of both sides. `number` is that of the resources partition, and `zones` gives the state of a zone's
    partition."""

    state: ResourcesState
    derivation: Derivation
    number: int
    zones: Callable[[str], ZonesState]


class Needs(NamedTuple):
    """The records that the logs lack about some DPUs, by key: the zone of a placement (empty to end it), the handover
    to a zone, and the observation to be reported (empty for a DPU that is gone)."""

    placements: dict[str, str]
    wanted: dict[str, tuple[str, WantedDpu]]
    """The zone and the row. The row has an empty zone if the DPU is wanted no more."""
    reports: dict[str, tuple[str, str]]
    """The zone and the observation."""

    def __bool__(self) -> bool:
        return bool(self.placements or self.wanted or self.reports)


def needs(sides: HandoverSides, keys: Iterable[str]) -> Needs:
    """The records that the logs lack about these DPUs."""
    found = Needs({}, {}, {})
    for key in keys:
        told = handover(sides.state, sides.derivation, key)
        placement = sides.state.placements.rows.get(key)
        zone = _proposed(told, placement)
        if zone is not None:
            found.placements[key] = zone
        if placement is None:
            continue
        zones = sides.zones(placement.zone)
        lacking = _wanted(sides, key, told, placement, zones)
        if lacking is not None:
            found.wanted[key] = placement.zone, lacking
        report = _report(sides, key, placement, zones)
        if report is not None:
            found.reports[key] = placement.zone, report
    return found


def _proposed(told: DpuForZone | Blame | None, placement: Placement | None) -> str | None:
    """The zone to propose for a DPU, empty to end its placement; None if nothing is to be proposed. While an address
    cannot be used, the DPU stays where it is."""
    if isinstance(told, Blame):
        return None
    zone = told.zone if told is not None else ""
    if placement is None:
        return zone or None
    if zone == placement.zone:
        return zone if placement.ending >= 0 else None
    return "" if placement.ending < 0 else None


def _wanted(
    sides: HandoverSides, key: str, told: DpuForZone | Blame | None, placement: Placement, zones: ZonesState
) -> WantedDpu | None:
    """The handover that the zone of a DPU lacks; None if it lacks none."""
    name = object_id(key).name
    known = zones.wanted.rows.get(name)
    if known is not None and known.object != key:
        known = None
    if placement.ending >= 0:
        is_told = known is None and zones.wanted_before(sides.number) > placement.ending
        return None if is_told else WantedDpu(key, "", "", "", "", "")
    if not isinstance(told, DpuForZone) or (known is None and is_taken(zones, key, placement.zone)):
        return None
    image = _image(sides, key, told.image, known.image if known else "")
    row = WantedDpu(key, placement.zone, told.node, told.serial, told.bmc_address, image)
    is_known = known is not None and replace(row, image=image or known.image) == known
    return None if is_known else row


def _image(sides: HandoverSides, key: str, wanted: str, known: str) -> str:
    """The image to hand over now: the wanted image, once it is ready and the rollout has released the DPU to it. Until
    then it is empty, and the zone keeps the image that it has, because this replica may have read an older one."""
    if wanted in ("", known) or released(sides.state, key) not in (None, wanted):
        return ""
    return "" if image_fault(sides.state, sides.derivation, key) is not None else wanted


def is_taken(zones: ZonesState, key: str, zone: str) -> bool:
    """Whether a DPU of this name is an operator's, or that of another object. One that is being deleted in the zone is
    not: it makes room once it is gone."""
    name = object_id(key).name
    other, row = zones.wanted.rows.get(name), zones.dpus.rows.get(name)
    if other is not None:
        return other.object != key
    return row is not None and (not is_being_deleted(row) or row.zone != zone)


def _report(sides: HandoverSides, key: str, placement: Placement, zones: ZonesState) -> str | None:
    """The observation of a DPU that its zone is to report; None if the last one is up to date."""
    seen = sides.state.observed.rows.get(key)
    row = zones.dpus.rows.get(object_id(key).name)
    if is_taken(zones, key, placement.zone):
        row = None
        text = _taken(placement.zone)
    elif row is not None:
        text = observed(row)
    else:
        text = ""
    if row is None and placement.ending >= 0:
        return "" if zones.wanted_before(sides.number) > placement.ending else None
    if not text or (seen is not None and seen.observation == text):
        return None
    return text


def observed(row: Dpu) -> str:
    """The observation of a DPU in its zone."""
    fields = {
        "ready": row.phase == READY,
        "phase": row.phase,
        "message": _message(row),
        "installed": row.installed,
        "image": row.image,
        "zone": row.zone,
        "ordinal": row.ordinal,
        "sinceMs": row.since_ms,
        "step": step_of(row.bmc_address, row.phase).name if row.phase in STEPS else "",
        "failures": row.failures,
        "paused": row.paused,
    }
    return msgspec.json.encode(fields).decode()


def _message(row: Dpu) -> str:
    """Why a DPU is not ready: its last failure, or what its step waits for."""
    if row.phase == READY:
        return ""
    waits = row.task if row.step_state == "running" and row.task.startswith(WAITS) else ""
    return row.message or ("an operator paused it" if row.paused else waits)


def _taken(zone: str) -> str:
    message = f"zone {zone} has another DPU of this name, which an operator registered or another object wants"
    return msgspec.json.encode({"ready": False, "phase": "Error", "message": message}).decode()


def all_keys(sides: HandoverSides) -> Iterator[str]:
    """All DPUs that are wanted or placed."""
    yield from sides.derivation.dpus.winners
    yield from (key for key in sides.state.placements.rows if key not in sides.derivation.dpus.winners)
