"""Durations of Go in specs, and the settings that are given as such."""

from __future__ import annotations

import json

import pytest

from projections.resources.durations import duration_ms
from projections.resources.kinds import DPF_OPERATOR_CONFIG
from projections.resources.state import ResourcesState
from projections.resources.step_facts import DEFAULT_SYNC_MS, limits_of, mtu_of
from tests.support.resources import LOCAL, DeliveredResources


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h", 3_600_000),
        ("1h30m", 5_400_000),
        ("1m30s", 90_000),
        ("1.5m", 90_000),
        (".5s", 500),
        ("250ms", 250),
        ("2000us", 2),
        ("0", 0),
        ("0s", 0),
        ("9" * 98 + "h", int(float("9" * 98) * 3_600e3)),
        ("9" * 100 + "h", None),
        ("1", None),
        ("", None),
        ("1d", None),
        ("x5m", None),
        ("5m ", None),
    ],
)
def test_durations_are_those_of_go(text: str, expected: int | None) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    ("given", "expected"), [("1.5m", 90_000), ("0s", 0), ("nonsense", DEFAULT_SYNC_MS), (None, DEFAULT_SYNC_MS)]
)
def test_the_wait_for_other_dpus_of_a_host_is_a_duration_with_a_default(given: str | None, expected: int) -> None:
    log = DeliveredResources()
    controller = {"maxUnavailableDPUNodes": 3} | ({} if given is None else {"multiDPUOperationsSyncWaitTime": given})
    log.apply(DPF_OPERATOR_CONFIG, "config", json.dumps({"provisioningController": controller}))
    assert limits_of(log.state, LOCAL) == (expected, 3)
    assert limits_of(ResourcesState(), LOCAL) == (DEFAULT_SYNC_MS, 50)


@pytest.mark.parametrize(("networking", "expected"), [({"highSpeedMTU": 9_000}, 9_000), ({}, 1_500), (None, 1_500)])
def test_the_mtu_of_the_ports_of_dpus_has_a_default(networking: dict[str, int] | None, expected: int) -> None:
    log = DeliveredResources()
    spec: dict[str, object] = {"provisioningController": {}} | (
        {} if networking is None else {"networking": networking}
    )
    log.apply(DPF_OPERATOR_CONFIG, "config", json.dumps(spec))
    assert mtu_of(log.state, LOCAL) == expected
    assert mtu_of(ResourcesState(), LOCAL) == 1_500
