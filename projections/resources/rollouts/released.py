"""The decisions of rollouts and allocations about a DPU, for drivers and conditions."""

from __future__ import annotations

from projections.resources.rollouts.status import read_installed
from projections.resources.state import ResourcesState


def released(state: ResourcesState, dpu: str) -> str | None:
    """The image identity that a DPU may be installed with now; None for any.

    A DPU without a plan keeps the image that is observed on it until its plan is stated, and may get any image if none
    is observed.
    """
    row = state.dpu_rollouts.rows.get(dpu)
    return row.released if row is not None else installed(state, dpu) or None


def installed(state: ResourcesState, dpu: str) -> str:
    """The image identity that is observed on a DPU; empty if none is."""
    seen = state.observed.rows.get(dpu)
    return read_installed(seen.observation).installed if seen is not None else ""


def cluster_of(state: ResourcesState, dpu: str) -> str | None:
    """The key of the DPUCluster that a DPU is allocated to."""
    row = state.allocations.rows.get(dpu)
    return row.cluster if row is not None else None
