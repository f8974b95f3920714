"""Bugs in staged changes."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

import projections.staging.decide
from drivers.relays.link_membership import LinkMembership
from projections.fleet.state import FleetState
from projections.resources.network_stages.rows import StagedNetworks
from tests.seeded.bugs import Bug, SimulatedScenario, patched
from tests.simulation.plan import with_network_stages, with_stages


def _next_stage_too(cohorts_of: Any) -> Any:
    def found(self: FleetState, zone: str) -> dict[str, int]:
        row, staged = self.staged_dpus.rows.get(zone), self.staged
        if row is None or staged is None or not staged.cohorts:
            return {}
        return {dpu: min(stage, staged.stage) for dpu, stage in row.stages.items() if min(stage, staged.stage)}

    return found


def _keeps_stages(follow: Any) -> Any:
    def followed(self: LinkMembership) -> None:
        if self._cohorts is None:
            follow(self)

    return followed


def _goes_on(with_failures: Any) -> Any:
    def row(staged: Any, event: Any) -> Any:
        return replace(with_failures(staged, event), held="", paused_by="")

    return row


def _with_the_first_stage(of_stage: Any) -> Any:
    def text(self: StagedNetworks, stage: int) -> str:
        found: str = of_stage(self, stage or self.stage)
        return found

    return text


BUGS = (
    Bug(
        "stage-before-its-release",
        "relays give DPUs the list of a stage when they are named for it, before its release",
        "I32",
        lambda: patched((FleetState, "cohorts_of", _next_stage_too)),
        SimulatedScenario(1, faulty_s=60.0, plan=with_stages),
    ),
    Bug(
        "stage-of-the-hello",
        "a relay keeps the stage that a DPU had when it connected",
        "I32",
        lambda: patched((LinkMembership, "follow_stages", _keeps_stages)),
        SimulatedScenario(2, faulty_s=60.0, plan=with_stages),
    ),
    Bug(
        "paused-change-goes-on",
        "a staged change that is held or paused gets its next stage",
        "I32",
        lambda: patched((projections.staging.decide, "_with_failures", _goes_on)),
        SimulatedScenario(3, faulty_s=60.0, plan=with_stages),
    ),
    Bug(
        "networks-without-stages",
        "every DPU gets the networks of a change with its first stage",
        "I32",
        lambda: patched((StagedNetworks, "of_stage", _with_the_first_stage)),
        SimulatedScenario(36, faulty_s=150.0, plan=with_network_stages),
    ),
)
