"""The demo in a script: one JSON object, every field of the contract, and equal tables at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.planes import run

SMALL = ("--dpus-per-zone", "4", "--provision", "2", "--json")
FIELDS = {
    "nodes",
    "zones",
    "dpus",
    "cliques",
    "rules_per_zone",
    "join_to_applied_ms",
    "joins_per_second",
    "log_records",
    "log_bytes",
    "replay_seconds",
    "replay_records_per_second",
    "converged",
    "digests_match",
}


def check(summary: dict[str, Any], **expected: int) -> None:
    assert set(summary) == FIELDS
    assert set(summary["join_to_applied_ms"]) == {"p50", "p99", "max"}
    assert summary["join_to_applied_ms"]["max"] >= summary["join_to_applied_ms"]["p50"] > 0
    assert (summary["converged"], summary["digests_match"]) == (True, True)
    assert {name: summary[name] for name in expected} == expected
    assert summary["log_records"] > summary["nodes"] + summary["dpus"]


async def test_the_demo_runs_with_a_generated_fleet(tmp_path: Path) -> None:
    data = tmp_path / "kept"
    ran = await run("demo", "--nodes", "120", "--zones", "3", *SMALL, "--data", str(data))
    assert ran.status == 0, ran.stderr
    check(ran.json(), nodes=120, zones=3, dpus=12, cliques=7)
    replayed = await run("replay", "--data", str(data), "--output", "json")
    assert replayed.json()["records"] >= ran.json()["log_records"]
    again = await run("demo", "--data", str(data))
    assert again.status == 2
    assert str(data) in again.stderr


async def test_the_demo_runs_with_a_fleet_that_is_ready_before_the_first_save() -> None:
    ran = await run("demo", "--nodes", "4", "--zones", "2", "--dpus-per-zone", "1", "--provision", "0", "--json")
    assert ran.status == 0, ran.stdout
    check(ran.json(), nodes=4, zones=2, dpus=2)


async def test_the_demo_runs_with_a_fleet_from_a_file(tmp_path: Path) -> None:
    inventory = tmp_path / "fleet.csv"
    rows = [f"gpu-{number},{'G2' if number % 2 else 'T4'}" for number in range(60)]
    inventory.write_text("\n".join(["sn,model", *rows]))
    reading = ("--zone-size", "20", "--address-pool", "10.9.0.0/24", "--clique-when", "model=G2")
    ran = await run("demo", "--inventory", str(inventory), *reading, "--clique-size", "10", *SMALL)
    assert ran.status == 0, ran.stderr
    check(ran.json(), nodes=60, zones=3, dpus=12, cliques=3)


@pytest.mark.kafka
async def test_the_demo_runs_on_kafka(kafka_cluster: str) -> None:
    ran = await run("demo", "--nodes", "60", "--zones", "3", *SMALL, "--kafka", kafka_cluster)
    assert ran.status == 0, ran.stderr
    check(ran.json(), nodes=60, zones=3, dpus=12)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--nodes", "3", "--zones", "4"), "zones"),
        (("--nodes", "10", "--zones", "2", "--cliques", "2"), "cliques"),
        (("--kafka", "h:1", "--data", "d"), "--kafka or --data"),
        (("--nodes", "0"), "--nodes"),
        (("--data", __file__), "is a file"),
        (("--inventory", "nowhere.csv"), "'nowhere.csv' does not exist"),
        (("--zone-size", "40"), "--inventory"),
        (("--kafka", "broker"), "'broker' must be HOST:PORT"),
    ],
)
async def test_invalid_sizes_are_refused(arguments: tuple[str, ...], says: str) -> None:
    ran = await run("demo", *arguments)
    assert ran.status == 2
    assert says in ran.stderr
