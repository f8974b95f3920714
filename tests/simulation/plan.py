"""The length, the load and the fault rates of a run, drawn from its seed. Runs with a high load are short.

A plan also draws the number of processes, and whether the order of ready tasks is random. The load is between one
command in 30 s and ten per second and client. `standard` is a fixed plan that measures the speed of the simulation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import NamedTuple

from drivers.backends import simulated, simulated_bmc
from projections.kubernetes.clique_objects import Mode
from tests.support import faulty_log

FAULTLESS_LOG = faulty_log.LogFaults(
    duplicate=0.0, lost_answer=0.0, late=0.0, never=0.0, gap=0, equal_timestamps=0.0, backward_timestamps=0.0
)


class ClusterPlan(NamedTuple):
    """The load of a source cluster, and the faults of its API server."""

    pause_s: float
    """The mean pause between two changes of the cluster."""
    fault_interval_s: float
    """The mean time between two faults of the API server."""
    cliques: Mode | None = None
    """How the edges share the objects of cliques with upstream's daemons at first; None if there are no daemons."""
    switches_mode: bool = False
    """Whether the edges change that mode once."""
    is_away_for_an_hour: bool = False
    """Whether the only fault is an absence that begins early, and ends once the plane is at rest without the server."""


class Plan(NamedTuple):
    """The plan of one run."""

    seed: int
    processes: tuple[frozenset[str], ...]
    """The roles of each process; one entry per process."""
    clients: int
    zones: tuple[str, ...]
    dpus_per_zone: int
    faulty_s: float
    """The duration of the fault phase."""
    pause_s: float
    """A client's mean pause between commands."""
    fault_interval_s: float
    """The mean time between two faults of the nemesis."""
    shuffled: bool
    """Whether ready tasks run in a random order."""
    wire_slow_s: float
    """The maximum latency of the few slow messages between a process and the log."""
    log: faulty_log.LogFaults
    devices: simulated.DeviceFaults
    bmcs: simulated_bmc.BmcFaults
    edits_s: float = 0.0
    """The mean pause between two edits of custom resources; 0 if there are none."""
    cluster: ClusterPlan | None = None
    """The source cluster of the processes with the role `kubernetes`; None if there is none."""
    stages_s: float = 0.0
    """The mean pause between two requests about staged changes; 0 if there are none."""
    has_models: bool = False
    """Whether the DPUs of agents have a model of Open vSwitch, and a BMC that speaks Redfish."""


PARTITIONS = 3
HOUR_S = 3_600.0

ALL = frozenset({"api", "relay", "provisioner"})
DECISIONS = frozenset({"decisions"})
KUBERNETES = frozenset({"kubernetes"})
EDGES: tuple[tuple[frozenset[str], ...], ...] = ((KUBERNETES, KUBERNETES), (KUBERNETES, ALL | KUBERNETES))
"""The processes that a plan with a source cluster has besides those of its deployment."""
CLUSTER_SHARE = 0.5
"""The share of plans with a source cluster."""
STAGES_SHARE = 0.3
"""The share of plans with staged changes."""
MODELS_SHARE = 0.3
"""The share of plans in which the DPUs of agents have models of a switch and of a BMC."""
EDITS_SHARE = 0.3
"""The share of plans with edits of custom resources."""
DEPLOYMENTS: tuple[tuple[frozenset[str], ...], ...] = (
    (ALL, DECISIONS),
    (ALL, ALL, DECISIONS, DECISIONS),
    (ALL, ALL, ALL, DECISIONS),
    (frozenset({"api"}), frozenset({"relay"}), frozenset({"provisioner"}), DECISIONS),
    (frozenset({"api", "relay"}), frozenset({"api", "provisioner"}), frozenset({"relay", "provisioner"}), DECISIONS),
)


class Pace(NamedTuple):
    """The choices of load, fault rate and length that belong together."""

    pause_s: tuple[float, ...]
    fault_interval_s: tuple[float, ...]
    faulty_s: tuple[float, ...]


PACES = (
    Pace((0.1, 0.2, 0.5), (2.0, 4.0, 8.0), (60.0, 90.0, 120.0)),
    Pace((0.1, 0.2, 0.5), (2.0, 4.0, 8.0), (60.0, 90.0, 120.0)),
    Pace((1.0, 2.0, 4.0), (5.0, 10.0, 40.0), (120.0, 300.0)),
    Pace((10.0, 30.0), (20.0, 120.0), (600.0, 1_800.0)),
)


def plan_of(seed: int, *, faulty_s: float | None = None) -> Plan:
    """The plan of this seed."""
    rng = random.Random(f"{seed}/plan")
    rate, pace = rng.choice((0.2, 1.0, 1.0, 2.0)), rng.choice(PACES[:2] if faulty_s else PACES)
    plan = Plan(
        seed=seed,
        processes=rng.choice(DEPLOYMENTS),
        clients=rng.randint(2, 4),
        zones=_zones(rng.choice((1, 3, 4, 5, 5, 10))),
        dpus_per_zone=rng.randint(1, 3),
        faulty_s=faulty_s or rng.choice(pace.faulty_s),
        pause_s=rng.choice(pace.pause_s),
        fault_interval_s=rng.choice(pace.fault_interval_s),
        shuffled=rng.random() < 0.5,
        wire_slow_s=rng.choice((0.0, 1.0, 1.0, 3.0)),
        log=faulty_log.LogFaults(
            duplicate=0.05 * rate,
            lost_answer=0.03 * rate,
            late=0.03 * rate,
            never=0.02 * rate,
            delay_max_s=rng.choice((0.5, 5.0, 30.0)),
            gap=rng.choice((1, 2, 5)),
            equal_timestamps=rng.choice((0.0, 0.2, 0.9)),
            backward_timestamps=rng.choice((0.0, 0.05, 0.3)),
        ),
        devices=simulated.DeviceFaults(
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
    edits_rng = random.Random(f"{seed}/edits plan")
    if edits_rng.random() < EDITS_SHARE:
        plan = plan._replace(edits_s=max(plan.pause_s, 0.5) * edits_rng.choice((1.0, 4.0)))
    stages_rng = random.Random(f"{seed}/stages plan")
    if stages_rng.random() < STAGES_SHARE:
        plan = plan._replace(stages_s=max(plan.pause_s, 0.5) * stages_rng.choice((1.0, 4.0)))
    plan = plan._replace(has_models=random.Random(f"{seed}/models plan").random() < MODELS_SHARE)
    cluster_rng = random.Random(f"{seed}/cluster plan")
    return with_cluster(plan, cluster_rng) if cluster_rng.random() < CLUSTER_SHARE else plan


def with_cluster(plan: Plan, rng: random.Random) -> Plan:
    """The plan with a source cluster and two edges. Its rates are those of the plan's clients and faults."""
    cluster = ClusterPlan(max(plan.pause_s, 0.5) * rng.choice((1.0, 3.0)), plan.fault_interval_s)
    processes = (*plan.processes, *rng.choice(EDGES))
    modes: tuple[Mode | None, ...] = ("assign", "beside", "assign", "beside", None)
    cluster = cluster._replace(cliques=rng.choice(modes), switches_mode=rng.random() < 0.5)
    return plan._replace(processes=processes, cluster=cluster)


def with_an_hour_away(seed: int) -> Plan:
    """A small plan with a low load, in which the API server is away for more than an hour."""
    return standard(seed, HOUR_S, 0)._replace(
        processes=(ALL | KUBERNETES, KUBERNETES, DECISIONS),
        zones=_zones(3),
        dpus_per_zone=1,
        pause_s=60.0,
        fault_interval_s=600.0,
        cluster=ClusterPlan(pause_s=2.0, fault_interval_s=inf, is_away_for_an_hour=True),
    )


def with_rollouts(seed: int, faulty_s: float) -> Plan:
    """A small plan whose clients edit mostly custom resources, and whose DPUs are installed in few seconds, so that
    rollouts reach DPUs that serve.
    """
    plan = standard(seed, faulty_s, 2)
    return plan._replace(
        zones=_zones(3),
        dpus_per_zone=1,
        pause_s=10.0,
        fault_interval_s=10.0,
        edits_s=3.0,
        bmcs=plan.bmcs._replace(pace=0.2),
    )


def with_stages(seed: int, faulty_s: float) -> Plan:
    """A small plan with staged changes and few other commands, so that changes reach their later stages."""
    plan = standard(seed, faulty_s, 2)
    return plan._replace(zones=_zones(3), dpus_per_zone=3, pause_s=5.0, fault_interval_s=10.0, stages_s=4.0)


def with_network_stages(seed: int, faulty_s: float) -> Plan:
    """A small plan with staged changes of networks, whose DPUs are installed in few seconds."""
    return with_rollouts(seed, faulty_s)._replace(stages_s=3.0)


def with_models(seed: int, faulty_s: float) -> Plan:
    """A small plan in which the DPUs of agents have models of a switch and of a BMC, and are installed often."""
    plan = standard(seed, faulty_s, 2)
    return plan._replace(
        zones=_zones(2),
        dpus_per_zone=1,
        pause_s=0.5,
        fault_interval_s=4.0,
        bmcs=plan.bmcs._replace(pace=random.Random(f"{seed}/pace").choice((0.2, 1.0)), lie=0.1, fail=0.1),
        has_models=True,
    )


def without_cluster(plan: Plan) -> Plan:
    """The plan without a source cluster, and without the edges."""
    processes = tuple(roles - KUBERNETES for roles in plan.processes)
    return plan._replace(processes=tuple(filter(None, processes)), cluster=None)


def standard(seed: int, faulty_s: float, processes: int) -> Plan:
    """A fleet of ten zones and twenty DPUs, with `processes` processes of all roles: a command every 5 s, a fault every
    30 s, and device faults at the rate of unreliable hardware.
    """
    return without_cluster(plan_of(seed))._replace(
        processes=(*(ALL,) * processes, DECISIONS),
        clients=2,
        zones=_zones(10),
        dpus_per_zone=2,
        faulty_s=faulty_s,
        pause_s=10.0,
        fault_interval_s=30.0,
        edits_s=0.0,
        stages_s=0.0,
        has_models=False,
        devices=simulated.DeviceFaults(latency_ms=20.0, frame_loss=0.01, answer_loss=0.01, reboots_per_hour=1.0),
    )


REDUCTIONS: Mapping[str, Callable[[Plan], Plan]] = {
    "devices": lambda plan: plan._replace(devices=simulated.NO_DEVICE_FAULTS),
    "bmcs": lambda plan: plan._replace(bmcs=simulated_bmc.NO_BMC_FAULTS),
    "view": lambda plan: plan._replace(log=FAULTLESS_LOG),
    "order": lambda plan: plan._replace(shuffled=False),
    "wire": lambda plan: plan._replace(wire_slow_s=0.0),
    "dpus": lambda plan: plan._replace(dpus_per_zone=1),
    "cluster": without_cluster,
    "edits": lambda plan: plan._replace(edits_s=0.0),
    "stages": lambda plan: plan._replace(stages_s=0.0),
    "models": lambda plan: plan._replace(has_models=False),
    "processes": lambda plan: plan._replace(
        processes=(ALL, DECISIONS, *(roles for roles in plan.processes if roles >= KUBERNETES))
    ),
    "zones": lambda plan: plan._replace(zones=plan.zones[:2]),
}
"""Reductions of a plan that remove a source of faults, by name."""


def reduced(plan: Plan, names: Collection[str]) -> Plan:
    """The plan without these sources of faults."""
    for name in names:
        plan = REDUCTIONS[name](plan)
    return plan


def _zones(count: int) -> tuple[str, ...]:
    return tuple(f"zone-{number}" for number in range(count))
