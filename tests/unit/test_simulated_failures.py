"""Injected failures of simulated devices: their syntax, the devices that they affect, and their number."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.settings.settings import BadSettings, load_settings
from drivers.backends.bmc import Bmc, NeedsOperator, TaskFailed, Unreachable
from drivers.backends.simulated_bmc import BmcFaults, SimulatedBmcs
from drivers.backends.simulated_failures import MAX_FAILURES, Failure, parse_failures
from projections.attempt_limits import FAILURE_KINDS, MAX_ATTEMPT_LIMIT
from projections.zones.dpus.phases import STEP_NAMES

pytestmark = pytest.mark.virtual_clock

FAILURES = st.builds(
    Failure,
    st.sampled_from(STEP_NAMES),
    st.sampled_from(FAILURE_KINDS),
    st.integers(1, MAX_ATTEMPT_LIMIT),
    st.sampled_from(["", "d-1"]),
)


@given(st.lists(FAILURES, max_size=5))
def test_a_printed_list_of_failures_parses_to_itself(failures: list[Failure]) -> None:
    assert parse_failures("fail", ",".join(map(str, failures))) == tuple(failures)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("install", "simulate_fail: 'install' must have the form STEP:KIND:TIMES[:DPU]"),
        ("install:device:1:d:e", "simulate_fail: 'install:device:1:d:e' must have the form STEP:KIND:TIMES[:DPU]"),
        ("install:device:1,", "simulate_fail: '' must have the form STEP:KIND:TIMES[:DPU]"),
        ("fly:device:1", "simulate_fail: step 'fly' must be one of drain, "),
        ("install:odd:1", "simulate_fail: kind 'odd' must be one of transient, device, operator"),
        ("install:device:0", "simulate_fail: times '0' must be a number from 1 to 100"),
        ("install:device:101", "simulate_fail: times '101' must be a number from 1 to 100"),
        ("install:device:²", "simulate_fail: times '²' must be a number"),
        (f"install:device:{'9' * 5_000}", "must be a number from 1 to 100"),
        ("install:device:1:", "simulate_fail: DPU: '' must be 1 to 253"),
        ("install:device:1:a b", "simulate_fail: DPU: 'a b' must be 1 to 253"),
        (",".join(["install:device:1"] * (MAX_FAILURES + 1)), "simulate_fail: 1001 failures are more than the 1000"),
    ],
)
def test_a_malformed_failure_is_refused_with_its_field(text: str, says: str) -> None:
    with pytest.raises(BadSettings) as caught:
        load_settings({"data": "d", "simulate": 1, "simulate_fail": text}, None, {})
    assert says in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("place", [{"data": "d"}, {"kafka": "h:1", "role": "provisioner"}])
def test_a_process_without_simulated_devices_injects_no_failures(place: dict[str, object]) -> None:
    with pytest.raises(BadSettings) as caught:
        load_settings({**place, "simulate_fail": "install:device:1"}, None, {})
    assert str(caught.value) == "simulate_fail needs simulate: failures are injected into simulated DPUs only"


def devices(text: str) -> SimulatedBmcs:
    now_s = asyncio.get_running_loop().time
    faults = BmcFaults(latency_s=0.0)
    return SimulatedBmcs(now_s=now_s, rng=Random(1), faults=faults, failures=parse_failures("fail", text))


async def attempted(bmc: Bmc, action: str, attempts: int) -> list[str]:
    """The state or error of each of these attempts at a step, each in its own session."""
    results: list[str] = []
    for token in range(1, attempts + 1):
        try:
            await bmc.open(token)
            task = await bmc.start(token, action, "i")
            results.append(task.state)
            await bmc.cancel(token, task.id)
        except (Unreachable, TaskFailed, NeedsOperator) as error:
            results.append(f"{type(error).__name__}: {error}")
    return results


async def test_the_first_attempts_at_the_step_fail_and_later_ones_succeed() -> None:
    bmcs = devices("install:transient:2:d,install:device:1,reboot:operator:1:d")
    assert await attempted(bmcs.device("d"), "install", 5) == [
        "Unreachable: simulated: injected transient failure of install, 1 of 2",
        "Unreachable: simulated: injected transient failure of install, 2 of 2",
        "TaskFailed: simulated: injected device failure of install, 1 of 1",
        "running",
        "running",
    ]
    assert await attempted(bmcs.device("e"), "install", 2) == [
        "TaskFailed: simulated: injected device failure of install, 1 of 1",
        "running",
    ]
    assert await attempted(bmcs.device("f"), "drain", 3) == ["running"] * 3
    assert await attempted(bmcs.device("g"), "reboot", 3) == ["running"] * 3


async def test_an_injected_failure_starts_no_task_on_the_device() -> None:
    device = devices("install:device:3").device("d")
    await attempted(device, "install", 3)
    assert device.begun == []
    assert (await device.read(3)).tasks == ()
