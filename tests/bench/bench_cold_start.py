"""From the start of a process to its `ready` line, with 200,000 nodes and DPUs: from saved state, and from the log."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path

from deploy.host.storage import STATE_FOLDER
from tests.bench.apart import apart, serving
from tests.bench.figures import Figure
from tests.bench.planes import fill

NODES = 200_000
ZONES = 200
DPUS_PER_ZONE = 1_000
RUNS = 5


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "plane"
        apart(fill, data, ZONES, NODES, DPUS_PER_ZONE)
        saved_s = statistics.median(_ready_s(data) for _ in range(RUNS))
        whole_s = statistics.median(_ready_without_state_s(data) for _ in range(RUNS))
    name = f"cold start, {NODES:,} nodes and {ZONES * DPUS_PER_ZONE:,} DPUs"
    stated = NODES + ZONES * DPUS_PER_ZONE
    return [
        Figure(f"{name}, from saved state", saved_s, "s", whole_s, "whole log", 5.0, "lower"),
        Figure(f"{name}, from the whole log", whole_s, "s", better="lower"),
        Figure("nodes and DPUs folded from the whole log, start of the process and all", stated / whole_s, "a second"),
    ]


def _ready_without_state_s(data: Path) -> float:
    shutil.rmtree(data / STATE_FOLDER)
    return _ready_s(data)


def _ready_s(data: Path) -> float:
    began = time.perf_counter()
    with serving("--data", str(data)):
        return time.perf_counter() - began
