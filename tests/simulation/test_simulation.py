"""The plane keeps its invariants in simulation, with a few pinned seeds and a few random ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from tests.simulation.__main__ import main
from tests.simulation.checkers import INVARIANTS
from tests.simulation.device_nemesis import COUNTED
from tests.simulation.figures import MUST_HAPPEN, figures
from tests.simulation.plan import (
    HOUR_S,
    plan_of,
    standard,
    with_an_hour_away,
    with_models,
    with_network_stages,
    with_rollouts,
    with_stages,
)
from tests.simulation.run import Result, simulate, simulate_plan
from tests.simulation.seeds import FAULTY_S, KNOWN, MODELS, MODELS_S, NETWORK_STAGES, ROLLOUTS, ROLLOUTS_S, STAGES
from tests.support.fresh_seeds import FRESH

SAME_SEEDS = (9, 12)
RUNS = f"from tests.simulation.run import simulate; print([simulate(s, faulty_s=20.0).digest for s in {SAME_SEEDS}])"

IN_DPU_CLUSTERS = {
    "control plane Ready": 8,
    "control plane NotReady": 4,
    "control plane Upgrading": 1,
    "Service of a control plane deleted": 4,
    "DPU joined its cluster": 8,
    "heartbeats stopped": 8,
    "Node of a DPU not ready": 4,
    "Node of a DPU with another boot": 8,
    "Node of a DPU deleted": 4,
}
"""The least number of events in DPU clusters in all seeds with rollouts."""


@cache
def result_of(seed: int) -> Result:
    """The result of a pinned seed, computed once."""
    return simulate(seed, faulty_s=FAULTY_S)


@cache
def rollouts_of(seed: int) -> Result:
    """The result of a pinned seed with rollouts, computed once."""
    return simulate_plan(with_rollouts(seed, ROLLOUTS_S))


@cache
def network_stages_of(seed: int) -> Result:
    """The result of a pinned seed with staged changes of networks, computed once."""
    return simulate_plan(with_network_stages(seed, ROLLOUTS_S))


@cache
def stages_of(seed: int) -> Result:
    """The result of a pinned seed with staged changes, computed once."""
    return simulate_plan(with_stages(seed, FAULTY_S))


@cache
def models_of(seed: int) -> Result:
    """The result of a pinned seed with models of switches and of BMCs, computed once."""
    return simulate_plan(with_models(seed, MODELS_S))


@pytest.mark.parametrize("seed", KNOWN)
def test_a_known_seed(seed: int) -> None:
    result = result_of(seed)
    assert not [*result.faults, *result.invalid], "\n".join([*result.faults, *result.invalid])


@pytest.mark.parametrize("seed", FRESH)
def test_a_fresh_seed(seed: int) -> None:
    print(f"python -m tests.simulation --seed {seed} --seconds {FAULTY_S:g} --verbose")
    result = simulate(seed, faulty_s=FAULTY_S)
    assert not result.faults, "\n".join(result.faults)


def test_the_known_seeds_have_all_expected_events() -> None:
    """Runs without the expected events would prove nothing."""
    missing = [what for what in MUST_HAPPEN if not any(result_of(seed).counts[what] for seed in KNOWN)]
    assert not missing


@pytest.mark.parametrize("seed", ROLLOUTS)
def test_a_seed_with_rollouts(seed: int) -> None:
    assert not rollouts_of(seed).faults, "\n".join(rollouts_of(seed).faults)


def test_rollouts_take_working_dpus_out_of_service_and_reboot_hosts() -> None:
    """Otherwise the checkers of limits, of installations and of drained hosts would prove nothing."""
    counts: Counter[str] = Counter()
    for seed in ROLLOUTS:
        counts.update(rollouts_of(seed).counts)
    assert counts["working DPUs released"] >= 8
    assert counts["hosts rebooted"] >= 20
    assert counts["DPUs deleted"] >= 8
    assert counts["Application degraded"] >= 3


def test_control_planes_and_kubelets_of_rollouts_act_and_fail() -> None:
    """Otherwise the checkers of DPU clusters would prove nothing."""
    counts: Counter[str] = Counter()
    for seed in ROLLOUTS:
        counts.update(rollouts_of(seed).counts)
    missing = [what for what, least in IN_DPU_CLUSTERS.items() if counts[what] < least]
    assert not missing, f"{missing} of {counts}"


def test_dpus_of_rollouts_take_network_documents_and_lose_them() -> None:
    """Otherwise the checkers of network documents would prove nothing."""
    counts: Counter[str] = Counter()
    for seed in ROLLOUTS:
        counts.update(rollouts_of(seed).counts)
    assert counts["network document"] >= 20
    assert counts["lost network document"] >= 8


@pytest.mark.parametrize("seed", STAGES)
def test_a_seed_with_staged_changes(seed: int) -> None:
    result = stages_of(seed)
    assert not [*result.faults, *result.invalid], "\n".join([*result.faults, *result.invalid])


def test_staged_changes_reach_later_stages() -> None:
    """Otherwise the checkers of stages would prove nothing."""
    counts: Counter[str] = Counter()
    for seed in STAGES:
        counts.update(stages_of(seed).counts)
    assert counts["stages released"] >= 12
    assert counts["staged changes undone"] >= 2


@pytest.mark.parametrize("seed", NETWORK_STAGES)
def test_a_seed_with_staged_changes_of_networks(seed: int) -> None:
    result = network_stages_of(seed)
    assert not [*result.faults, *result.invalid], "\n".join([*result.faults, *result.invalid])


def test_staged_changes_of_networks_reach_all_dpus_and_are_rolled_back() -> None:
    """Otherwise the checkers of their stages would prove nothing."""
    counts: Counter[str] = Counter()
    for seed in NETWORK_STAGES:
        counts.update(network_stages_of(seed).counts)
    assert counts["network stages released"] >= 12
    assert counts["network changes everywhere"] >= 3
    assert counts["network changes undone"] >= 4


@pytest.mark.parametrize("seed", MODELS)
def test_a_seed_with_models_of_switches_and_bmcs(seed: int) -> None:
    assert not models_of(seed).faults, "\n".join(models_of(seed).faults)


def test_switches_and_bmcs_fail_in_every_way_and_images_are_installed() -> None:
    """Otherwise the checkers of tables and of images would prove nothing."""
    counts: Counter[str] = Counter()
    for seed in MODELS:
        counts.update(models_of(seed).counts)
    missing = [what for what in (*COUNTED, "updates completed", "updates that were lies") if not counts[what]]
    assert not missing, f"{missing} of {counts}"


def test_a_seed_is_the_same_run_in_any_process() -> None:
    """Neither string hashes nor memory addresses influence a run."""
    digests = {_digest_with(hash_seed) for hash_seed in ("0", "4242")}
    assert len(digests) == 1
    assert digests != {""}


def test_seeds_differ() -> None:
    assert len({plan_of(seed) for seed in range(20)}) == 20


def test_the_standard_fleet_has_no_faults_and_reports_its_load() -> None:
    plan = standard(1, 120.0, 3)
    result = simulate_plan(plan)
    assert not result.faults, "\n".join(result.faults)
    assert f"{result.counts['invoke'] / result.virtual_s:.2f} commands per simulated second" in figures(plan, result)


def test_without_an_api_server_for_an_hour_the_plane_goes_on_and_on_return_writes_each_status_once() -> None:
    result = simulate_plan(with_an_hour_away(1))
    assert not [*result.faults, *result.invalid], "\n".join([*result.faults, *result.invalid])
    assert result.virtual_s > HOUR_S
    assert result.counts["statuses written on return"]


def test_a_batch_prints_its_counts_and_the_checked_invariants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "14", "--seeds", "2", "--seconds", "5", "--processes", "2"]) == 0
    output = capsys.readouterr().out
    assert [line.split(":")[0] for line in output.splitlines()[:2]] == ["seed 14", "seed 15"], "in order"
    for what in ("2 seeds, 0 failed", "simulated commands", "times real time per core", "faults: ", "never happened: "):
        assert what in output
    assert f"checked: {', '.join(invariant.id for invariant in INVARIANTS)}" in output


def test_a_run_without_faults_is_not_reported_as_ok(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "12", "--seeds", "1", "--seconds", "0.5", "--processes", "1"]) == 0
    output = capsys.readouterr().out
    assert "seed 12: proves nothing" in output
    assert "no fault took effect" in output
    assert "1 seeds, 0 failed; 1 prove nothing" in output


def _digest_with(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", RUNS]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()
