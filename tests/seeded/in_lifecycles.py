"""Bugs in the lifecycle of DPUs: attempts, phases, limits, sessions on their BMCs."""

from __future__ import annotations

import random
from typing import Any

from msgspec.structs import replace

import projections.zones.dpus.decide
import projections.zones.dpus.lifecycle
from drivers.backends.simulated_bmc import SimulatedBmc
from drivers.provisioning import provisioner
from drivers.provisioning.attempts import Attempt
from drivers.provisioning.provisioner import Provisioner
from projections.zones.dpus.phases import NODE_EFFECT, OS_INSTALLING, PREPARE_IMAGE, READY, REBOOTING
from projections.zones.dpus.rollout import RolloutLimits
from tests.seeded.bugs import Bug, SimulatedScenario, SteppedScenario, patched, returns


def _without_install(phase_after: Any) -> Any:
    return lambda address, phase: phase_after(address, OS_INSTALLING if phase == PREPARE_IMAGE else phase)


def _ready_without_install(settled: Any) -> Any:
    return lambda row, at: projections.zones.dpus.lifecycle._idle(row, READY, at)


def _attempts_from_zero(add: Any) -> Any:
    def added(state: Any, event: Any, at: Any) -> Any:
        decision = add(state, event, at)
        if decision.change is None:
            return decision
        rows = {name: replace(row, attempt=0, entered=0) for name, row in decision.change.dpus.items()}
        return decision._replace(change=decision.change._replace(dpus=rows))

    return added


def _limits_one_more(limits_of: Any) -> Any:
    def limits(row: Any) -> RolloutLimits:
        found: RolloutLimits = limits_of(row)
        return RolloutLimits(found.parallel_installs + 1, found.unavailable_nodes + 1)

    return limits


def _backoff_of_months(backoff_ms: Any) -> Any:
    return lambda name, attempt, failures: 10**10


def _longest_of_months(longest_ms: Any) -> Any:
    return 10**10


def _random_backoff(backoff_ms: Any) -> Any:
    return lambda name, attempt, failures: random.SystemRandom().randrange(1, 2_000)


def _accepts_any_attempt(stale: Any) -> Any:
    return lambda name, row, trigger: None if row.step_state == "running" else stale(name, row, trigger)


def _calls_without_check(call: Any) -> Any:
    async def called(self: Attempt, make: Any, *, alters: bool = True) -> Any:
        async with self.calls:
            return await make()

    return called


def _bmc_without_fence(take: Any) -> Any:
    async def taken(self: SimulatedBmc, token: int) -> None:
        self._token = min(self._token, token)
        await take(self, token)

    return taken


def _drain_instead_of_reboot(step_of: Any) -> Any:
    return lambda address, phase: step_of(address, NODE_EFFECT if phase == REBOOTING else phase)


BUGS = (
    Bug(
        "transition-skipped",
        "after its image is prepared, a DPU is configured without an install",
        "I5",
        lambda: patched((projections.zones.dpus.lifecycle, "phase_after", _without_install)),
        SteppedScenario(1),
    ),
    Bug(
        "ready-with-nothing-installed",
        "a DPU is Ready after an aborted provisioning, although nothing is installed",
        "I5",
        lambda: patched((projections.zones.dpus.lifecycle, "_settled", _ready_without_install)),
        SteppedScenario(12),
    ),
    Bug(
        "stale-attempt-accepted",
        "the result of any attempt counts",
        "I7",
        lambda: patched((projections.zones.dpus.lifecycle, "stale", _accepts_any_attempt)),
        SteppedScenario(1),
    ),
    Bug(
        "attempts-from-zero",
        "a DPU that is registered again counts its attempts from zero",
        "I7",
        lambda: patched((projections.zones.dpus.decide, "_add", _attempts_from_zero)),
        SteppedScenario(1),
    ),
    Bug(
        "rollout-one-too-many",
        "a zone admits one DPU more than its limits",
        "I13",
        lambda: patched((projections.zones.dpus.decide, "limits_of", _limits_one_more)),
        SteppedScenario(1),
    ),
    Bug(
        "retry-never-due",
        "the wait before a retry is months instead of seconds",
        "I16",
        lambda: patched(
            (projections.zones.dpus.lifecycle, "backoff_ms", _backoff_of_months),
            (projections.zones.dpus.lifecycle, "LONGEST_BACKOFF_MS", _longest_of_months),
        ),
        SteppedScenario(1),
    ),
    Bug(
        "fold-is-random",
        "the jitter of a retry is drawn when the record is folded",
        "I10",
        lambda: patched((projections.zones.dpus.lifecycle, "backoff_ms", _random_backoff)),
        SteppedScenario(1),
    ),
    Bug(
        "zombie-provisioner",
        "a provisioner continues an attempt that it has lost, and the BMC accepts its calls",
        "I7",
        lambda: patched(
            (Attempt, "call", _calls_without_check),
            (Provisioner, "_is_ours", returns(True)),
            (SimulatedBmc, "_take", _bmc_without_fence),
        ),
        SimulatedScenario(4, faulty_s=20.0),
    ),
    Bug(
        "wrong-action",
        "a DPU is drained in the phase Rebooting",
        "I7",
        lambda: patched((provisioner, "step_of", _drain_instead_of_reboot)),
        SimulatedScenario(1),
    ),
)
