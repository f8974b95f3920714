"""A few faults on real processes, and one fresh pair: the short form of `make faults`.

The same seed draws the same victims and pairs; the exact time of each fault depends on the machine. The seed is fresh
for each state of the tree, and the same whenever CI tests it again.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.faults import sandbox
from tests.support.fresh_seeds import FRESH
from tests.support.requirements import missing_requirement

TIMEOUT_S = 600
TREE = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(TIMEOUT_S + 60)


@pytest.fixture(autouse=True, scope="module")
def _needs_sandbox() -> None:
    if reason := sandbox.unsupported_reason():
        missing_requirement(reason)


def _run_faults(engine: str, *faults: str) -> None:
    arguments = ("--engine", engine, "--seed", str(FRESH[0]), "--pairs", "1", "--only", *faults)
    print(f"python -m tests.faults {' '.join(arguments)}")
    with subprocess.Popen(
        sandbox.command("tests.faults", arguments), stdout=subprocess.PIPE, text=True, cwd=TREE
    ) as run:
        try:
            printed, _ = run.communicate(timeout=TIMEOUT_S)
        finally:
            run.kill()
    print(printed)
    assert run.returncode == 0, printed


def test_an_embedded_plane_survives_its_faults() -> None:
    _run_faults("embedded", "roles churned", "disk full")


@pytest.mark.kafka
def test_a_plane_on_kafka_survives_its_faults() -> None:
    _run_faults("kafka", "leader killed", "produce answers lost")
