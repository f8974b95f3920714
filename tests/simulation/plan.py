"""How long a run takes and how badly it goes, drawn from its seed: some runs are calm and long, some short and wild."""

from __future__ import annotations

import random
from typing import NamedTuple

from drivers.backends import simulated, simulated_bmc
from eventstore import hostile

SOUND_LOG = hostile.LogFaults(duplicate=0.0, lost_answer=0.0, late=0.0, never=0.0)
"""Rates only: what readers see of gaps and stamps is fixed when the log is made."""


class Plan(NamedTuple):
    """One run."""

    seed: int
    processes: tuple[frozenset[str], ...]
    """The roles of each process."""
    clients: int
    zones: tuple[str, ...]
    dpus_per_zone: int
    faulty_s: float
    """How long things go wrong."""
    pause_s: float
    """A client's mean pause between commands."""
    trouble_s: float
    """Mean time between two blows of the nemesis."""
    log: hostile.LogFaults
    devices: simulated.Faults
    bmcs: simulated_bmc.BmcFaults


PARTITIONS = 3

ALL = frozenset({"api", "relay", "provisioner"})
DEPLOYMENTS: tuple[tuple[frozenset[str], ...], ...] = (
    (ALL,),
    (ALL, ALL),
    (ALL, ALL, ALL),
    (frozenset({"api"}), frozenset({"relay"}), frozenset({"provisioner"})),
    (frozenset({"api", "relay"}), frozenset({"api", "provisioner"}), frozenset({"relay", "provisioner"})),
)


def plan_of(seed: int, *, faulty_s: float | None = None) -> Plan:
    """The run with this seed."""
    rng = random.Random(f"{seed}/plan")
    rate = rng.choice((0.2, 1.0, 1.0, 2.0))
    return Plan(
        seed=seed,
        processes=rng.choice(DEPLOYMENTS),
        clients=rng.randint(2, 4),
        zones=tuple(f"zone-{number}" for number in range(rng.randint(3, 5))),
        dpus_per_zone=rng.randint(1, 3),
        faulty_s=faulty_s or rng.choice((60.0, 90.0, 120.0, 240.0)),
        pause_s=rng.choice((0.1, 0.2, 0.5)),
        trouble_s=rng.choice((2.0, 4.0, 8.0)),
        log=hostile.LogFaults(
            duplicate=0.05 * rate,
            lost_answer=0.03 * rate,
            late=0.03 * rate,
            never=0.02 * rate,
            delay_max_s=rng.choice((0.5, 5.0, 30.0)),
            gap=rng.choice((1, 2, 5)),
            equal_timestamps=rng.choice((0.0, 0.2, 0.9)),
            backward_timestamps=rng.choice((0.0, 0.05, 0.3)),
        ),
        devices=simulated.Faults(
            latency_ms=rng.choice((0.0, 20.0, 200.0)),
            slow_share=0.2,
            slow_factor=10.0,
            hardware_ms=rng.choice((0.0, 100.0)),
            frame_loss=0.05 * rate,
            answer_loss=0.05 * rate,
            failures=0.03 * rate,
            lies=0.03 * rate,
            false_alarms=0.03 * rate,
            reboots_per_hour=rng.choice((0.0, 20.0, 60.0)),
            reboot_s=3.0,
        ),
        bmcs=simulated_bmc.BmcFaults(
            pace=rng.choice((0.2, 1.0, 5.0)),
            unreachable=0.03 * rate,
            mute=0.03 * rate,
            hang=0.005 * rate,
            fail=0.03 * rate,
            lie=0.03 * rate,
        ),
    )
