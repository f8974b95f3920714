"""The work of reads and plans of a large DPUSet, in calls of functions, which no busy machine changes.

A stretch of work between two slices holds up the event loop. At about ten million calls a second, 100,000 calls take 10
milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from projections.resources import views
from projections.resources.conditions.causes import blocked_by, conditions_of
from projections.resources.conditions.condition import BLAMES_MAX, MESSAGES_MAX
from projections.resources.conditions.world import World
from projections.resources.forecast import Forecast
from projections.resources.kinds import BFB, DPU, DPU_DEVICE, DPU_FLAVOR, DPU_NODE, DPU_SET
from projections.resources.live_derivation import LiveDerivation
from projections.resources.observation import Observation
from projections.resources.plan import Action
from projections.resources.state import Resource, ResourcesState
from tests.support.call_counts import count_calls
from tests.support.derivations import content, device, dpu_set, full, key, row

HOSTS = 3_000
CALLS_PER_SLICE = 40_000
CALLS_PER_DPU_OF_A_READ = 6
CALLS_PER_DPU_OF_A_PLAN = 300
ALL = key(DPU_SET, "all")


def objects(hosts: int = HOSTS) -> dict[str, Resource]:
    """Hosts with a DPU each, and a DPUSet of all of them."""
    rows = {key(BFB, "image"): row(), key(BFB, "newer"): row(), key(DPU_FLAVOR, "flavor"): row(), ALL: dpu_set()}
    for number in range(hosts):
        rows[key(DPU_NODE, f"h{number:05}")] = row(labels={"rack": f"{number % 10}"})
        rows[key(DPU_DEVICE, f"d{number:05}")] = device(f"h{number:05}")
    return rows


@pytest.fixture(scope="module")
def state() -> ResourcesState:
    found = ResourcesState()
    found.apply(objects())
    return found


def slices(advance: Callable[[], bool]) -> list[int]:
    """The calls of each slice until the work is done."""
    calls, done = [], False

    def step() -> None:
        nonlocal done
        done = advance()

    while not done:
        calls.append(count_calls(step))
    return calls


@pytest.mark.parametrize("selector", [{}, {"dpuNodeSelector": {"matchLabels": {"rack": "1"}}}])
def test_a_change_of_a_large_set_is_derived_in_slices(selector: dict[str, Any]) -> None:
    state, live = ResourcesState(), LiveDerivation()
    state.apply(objects())
    assert max(slices(lambda: live.advance(state))) < CALLS_PER_SLICE
    state.apply({ALL: dpu_set("newer", **selector)})
    calls = slices(lambda: live.advance(state))
    assert max(calls) < CALLS_PER_SLICE
    assert content(live.derivation) == content(full(state))


def test_changes_between_the_slices_of_a_large_change_are_taken_over() -> None:
    state, live = ResourcesState(), LiveDerivation()
    state.apply(objects(350))
    slices(lambda: live.advance(state))
    state.apply({ALL: dpu_set("newer")})
    for number in range(3):
        assert not live.advance(state)
        state.apply({key(DPU_NODE, f"h{number:05}"): None, key(DPU_DEVICE, f"d0030{number}"): None})
    state.apply({ALL: None})
    slices(lambda: live.advance(state))
    assert content(live.derivation) == content(full(state)) and not live.derivation.dpus.winners


@pytest.mark.parametrize("observed", [None, Observation(False, "OS Installing"), Observation(True, "Ready")])
def test_a_read_of_a_large_set_looks_at_each_dpu_once(state: ResourcesState, observed: Observation | None) -> None:
    derivation = full(state)
    world = World(state, derivation, dict.fromkeys(derivation.dpus.winners, observed) if observed else {})
    most = CALLS_PER_DPU_OF_A_READ * HOSTS + 10_000
    assert count_calls(lambda: conditions_of(ALL, world)) < most
    assert count_calls(lambda: views.children(ALL, world)) < most
    assert count_calls(lambda: blocked_by(ALL, world)) < most


def test_a_large_set_names_its_failed_dpus_first_and_counts_the_others(state: ResourcesState) -> None:
    derivation = full(state)
    failed, slow = key(DPU, "h02000-d02000"), key(DPU, "h01000-d01000")
    seen = {failed: Observation(False, "Error", "no space left"), slow: Observation(False, "Rebooting")}
    seen |= {key(BFB, "image"): Observation(is_ready=True)}
    ready = conditions_of(ALL, World(state, derivation, seen))[0]
    assert ready.status == "False" and len(ready.blames) == BLAMES_MAX and ready.more == HOSTS - BLAMES_MAX
    assert [blame.key for blame in ready.blames[:2]] == [failed, slow]
    assert ready.message.endswith(f"; and {HOSTS - MESSAGES_MAX} more")


EDITED = row({"sysctl": {"parameters": ["a=1"]}})


@pytest.mark.parametrize("change", [{ALL: dpu_set("newer")}, {key(DPU_FLAVOR, "flavor"): EDITED}])
def test_a_plan_of_a_large_change_compares_only_what_changes(
    state: ResourcesState, change: dict[str, Resource]
) -> None:
    forecast = Forecast(state.objects.rows, change)
    calls = slices(forecast.advance)
    assert max(calls) < CALLS_PER_SLICE
    assert sum(calls) < CALLS_PER_DPU_OF_A_PLAN * HOSTS
    steps = forecast.steps()
    assert {step.action for step in steps} == {Action.REFLASH} and len(steps) == HOSTS
    assert [step.key for step in steps] == sorted(step.key for step in steps)
