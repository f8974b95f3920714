"""`doctor` on the command line: beside a plane, on Kafka with a changed setting, and without any plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kafka import KafkaUnderTest
from tests.support.planes import Ran, run, serving


def lines(ran: Ran) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for finding in ran.json()["findings"]:
        found[finding["check"]] = found.get(finding["check"], True) and finding["ok"]
    return found


async def test_a_running_plane_has_no_findings(tmp_path: Path) -> None:
    async with serving("--data", str(tmp_path / "plane")) as plane:
        at = [
            f"--{name}={plane.address(key)}"
            for name, key in (("listen", "api"), ("http", "http"), ("agents", "agents"))
        ]
        ran = await run("doctor", "--data", str(tmp_path / "plane"), *at, "--output", "json")
        assert (ran.status, ran.json()["ok"]) == (0, True), ran.stdout
        assert lines(ran)["data lock"]
        other = await run("doctor", "--data", str(tmp_path / "other"), *at, "--output", "json")
        assert other.status == 1
        assert {name for name, ok in lines(other).items() if not ok} == {"listen", "http", "agents"}


async def test_brokers_that_do_not_respond_are_named() -> None:
    ran = await run("doctor", "--kafka", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--output", "table")
    assert ran.status == 1
    assert "WRONG  broker 127.0.0.1:1: " in ran.stdout
    assert "       -> start it" in ran.stdout
    assert (await run("doctor")).status == 2


@pytest.mark.kafka
async def test_each_topic_and_replica_on_kafka_is_checked(kafka_log: KafkaUnderTest, tmp_path: Path) -> None:
    on = ("--kafka", kafka_log.bootstrap, "--topic-prefix", kafka_log.prefix)
    ports = ("--listen=127.0.0.1:0", "--http=127.0.0.1:0", "--agents=127.0.0.1:0")

    async def doctor() -> Ran:
        return await run("doctor", *on, *ports, "--output", "json")

    before = await doctor()
    assert (before.status, lines(before)["topics"]) == (0, True), before.stdout
    async with serving(*on, "--partitions", "3", "--role", "api", "--name", "api-1", stderr=tmp_path / "api"):
        well = await doctor()
        assert (well.status, lines(well)["replica api-1"]) == (0, True), well.stdout
        assert "clock against brokers" in lines(well)
        await kafka_log.operator.alter("zones", {"retention.ms": "1000"})
        ill = await doctor()
    assert ill.status == 1
    [wrong] = [finding for finding in ill.json()["findings"] if not finding["ok"]]
    assert (wrong["check"], wrong["found"]) == (f"topic {kafka_log.prefix}.zones", "retention.ms=1000")
    assert wrong["advice"].endswith("--add-config retention.ms=-1")
