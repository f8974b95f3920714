"""The process that writes decisions beside a process with every role."""

from __future__ import annotations

from random import Random

import pytest

from deploy.process.decisions_process import DecisionsProcess
from deploy.settings.settings import load_settings


@pytest.mark.parametrize(
    "simulated", [{"simulate": 2}, {"simulate_hosts": "2x1"}, {"simulate_hosts": "3x2", "simulate": 1}]
)
def test_it_takes_the_settings_of_a_process_with_simulated_devices(simulated: dict[str, object]) -> None:
    """It has none itself: settings that ask for some are refused without role `all`."""
    failures = {"simulate_fail": "install:transient:1"}
    settings = load_settings({"kafka": "127.0.0.1:9", **simulated, **failures}, None, {})
    assert settings.is_simulated
    assert DecisionsProcess(settings, "plane-1", rng=Random(1)).written == 0
