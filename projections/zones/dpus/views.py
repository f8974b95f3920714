"""Views of DPUs, and the lookup of their zone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from projections.zones.rows import Dpu
from projections.zones.state import ZonesState


class DpuView(NamedTuple):
    dpu: str
    zone: str
    ordinal: int
    node: str
    serial: str
    bmc_address: str
    image: str
    phase: str
    step_state: str
    phase_attempts: int
    attempt: int
    provisioner: str
    task: str
    percent: int
    paused: bool
    swapped: bool
    failures: int
    message: str
    phase_start_time_ms: int
    attempt_deadline_time_ms: int
    facts: dict[str, str]


def view(name: str, dpu: Dpu) -> DpuView:
    return DpuView(
        dpu=name,
        zone=dpu.zone,
        ordinal=dpu.ordinal,
        node=dpu.node,
        serial=dpu.serial,
        bmc_address=dpu.bmc_address,
        image=dpu.image,
        phase=dpu.phase,
        step_state=dpu.step_state,
        phase_attempts=dpu.phase_attempts,
        attempt=dpu.attempt,
        provisioner=dpu.provisioner,
        task=dpu.task,
        percent=dpu.percent,
        paused=dpu.paused,
        swapped=dpu.swapped,
        failures=dpu.failures,
        message=dpu.message,
        phase_start_time_ms=dpu.since_ms,
        attempt_deadline_time_ms=dpu.deadline_ms,
        facts=dpu.facts,
    )


def zones_of_dpu(name: str, states: Iterable[ZonesState]) -> list[str]:
    """The zones that have a DPU of this name, sorted. A partition has at most one DPU of a name."""
    found = (state.dpus.rows.get(name) for state in states)
    return sorted(dpu.zone for dpu in found if dpu is not None)


def named(state: ZonesState, *, is_wanted: Callable[[str], bool], phase: str, stuck: bool) -> Iterator[str]:
    """The DPUs of a partition, filtered by zone, by phase and by need of an operator; an empty or false filter matches
    all.

    Zones without a DPU in the phase are skipped: a scan of every DPU for the few failed ones delayed all other
    requests.
    """
    rows = state.dpus.rows
    for name, dpus in state.dpu_index.zones.items():
        if not is_wanted(name) or (phase and phase not in dpus.phases):
            continue
        for dpu in dpus.stuck if stuck else dpus.names.values():
            if phase in ("", rows[dpu].phase):
                yield dpu
