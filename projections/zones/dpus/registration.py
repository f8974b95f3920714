"""The row of a new DPU: its ordinal in the zone, and its first phase."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from eventstore.folding.fold import RecordMetadata
from eventstore.reasons import Fault, Reason
from projections.installs.fold import MAX_ORDINAL
from projections.zones.dpus.index import ZoneDpus
from projections.zones.dpus.phases import INITIALIZING
from projections.zones.rows import Dpu, Zone

MAX_DPUS_PER_ZONE = 100_000


class Registered(NamedTuple):
    """A new DPU, and the row of its zone with the next ordinal."""

    dpu: Dpu
    zone: Zone


class Registration(NamedTuple):
    """The properties of a DPU that its registration states."""

    zone: str
    node: str
    serial: str
    bmc_address: str


def registered(registration: Registration, zone: Zone, index: ZoneDpus, at: RecordMetadata) -> Registered:
    """A new DPU of a zone that is below its limit."""
    ordinal = zone.ordinals if zone.ordinals < MAX_ORDINAL else index.lowest_free
    row = Dpu(
        zone=registration.zone,
        ordinal=ordinal,
        node=registration.node,
        serial=registration.serial,
        bmc_address=registration.bmc_address,
        phase=INITIALIZING,
        attempt=at.offset,
        entered=at.offset,
        since=at.offset,
        since_ms=at.time_ms,
    )
    return Registered(row, replace(zone, ordinals=max(zone.ordinals, ordinal + 1)))


def limit_fault(zone: str, count: int) -> str | None:
    """Why a zone with this number of DPUs takes no more; None if it does."""
    if count < MAX_DPUS_PER_ZONE:
        return None
    reason = f"zone: {zone!r} has {MAX_DPUS_PER_ZONE} DPUs, the limit"
    return Fault(reason, Reason.LIMIT_REACHED, zone=zone, limit=MAX_DPUS_PER_ZONE)
