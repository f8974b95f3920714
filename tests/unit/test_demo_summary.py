"""The numbers that a script gets of a demo."""

from __future__ import annotations

import re
from pathlib import Path

from deploy.demo.platform.run import write_manifests
from deploy.demo.summary import Latency, Summary
from drivers.simulators.bmc_network import NetworkSizes


def test_floats_have_digits_that_mean_something() -> None:
    summary = Summary(
        nodes=20,
        zones=2,
        dpus=10,
        cliques=1,
        rules_per_zone=3,
        join_to_applied_ms=Latency(p50=1.23456789, p99=17.0000001, max=0.0),
        joins_per_second=12_345.6789,
        log_records=1_234_567,
        log_bytes=123_456_789,
        replay_seconds=0.0123456,
        replay_records_per_second=1_234.5678,
        converged=True,
        digests_match=False,
    )
    found = summary.as_json()
    assert found["join_to_applied_ms"] == {"p50": 1.235, "p99": 17.0, "max": 0.0}
    assert (found["joins_per_second"], found["replay_seconds"]) == (12_346.0, 0.01235)
    assert (found["replay_records_per_second"], found["log_bytes"]) == (1_235.0, 123_456_789)
    assert (found["converged"], found["digests_match"]) == (True, False)


def test_the_manifests_of_the_platform_demo_have_no_anchors(tmp_path: Path) -> None:
    """Their readers take them as a form to write their own by."""
    write_manifests(tmp_path, NetworkSizes(3, 5))
    for path in tmp_path.iterdir():
        assert not re.search(r"[&*]id\d", path.read_text()), path
