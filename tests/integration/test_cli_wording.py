"""The output of commands for people and their exit statuses, where either was once misleading."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from commands.rpc.limits import Limits
from deploy.cli import cli
from deploy.composition.topics import TOPICS
from deploy.host.storage import LOG_FOLDER
from eventstore.avro.codec import encode
from eventstore.embedded.log import EmbeddedLog
from eventstore.ids import internal_envelope
from projections.rules.rule import Holdings
from schemas.api import dpuplane_pb2 as pb
from schemas.events import FoldVersionUpgraded
from tests.support.sample_log import ZONES_0, write_sample_log
from tests.support.served import Served, served


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "plane") as found:
        yield found


@pytest.fixture
async def impatient(tmp_path: Path) -> AsyncIterator[Served]:
    """A server whose timeout is much shorter than that of its callers."""
    async with served(tmp_path / "plane", limits=Limits(deadline_s_max=0.3)) as found:
        yield found


async def run(plane: Served, *arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, cli, [*arguments, "--server", plane.address])


async def test_one_rule_is_counted_in_the_singular(plane: Served) -> None:
    for name, address, said in (("n1", "10.0.0.1", ", 1 rule"), ("n2", "10.0.0.9", ", 2 rules")):
        joined = await plane.join("z1", pb.NodeSpec(name=name, addresses=[address]))
        ran = await run(plane, "rules", "show", "z1", "--min-position", joined.position)
        assert ran.stdout.splitlines()[0].endswith(said)


@pytest.mark.parametrize(
    ("at", "said"),
    [("1", "is before the first record of this log, at "), ("9999999999999", "is in the future: this host's time is ")],
)
async def test_a_replay_to_an_unknown_position_is_refused_as_a_query_is(at: str, said: str, tmp_path: Path) -> None:
    await write_sample_log(tmp_path, records=4)
    ran = await asyncio.to_thread(CliRunner().invoke, cli, ["replay", "--data", str(tmp_path), "--as-of", at])
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert said in ran.stderr


async def test_a_position_that_is_not_reached_is_not_reported_as_a_missing_server(impatient: Served) -> None:
    plane = impatient
    token = f"{plane.replica.log_id}:zones/0=999"
    elsewhere = f"127.0.0.1:1,{plane.address},127.0.0.1:2"
    for server in (plane.address, elsewhere):
        list_nodes = ["nodes", "list", "--min-position", token, "--server", server]
        ran = await asyncio.to_thread(CliRunner().invoke, cli, list_nodes)
        assert (ran.exit_code, ran.stdout) == (3, "")
        assert "position: zones/0 was not folded up to 999 within " in ran.stderr
        assert "no answer" not in ran.stderr
        assert "dpuplane serve" not in ran.stderr


async def test_the_times_of_a_dpu_are_printed_as_times(plane: Served) -> None:
    await plane.calls.RegisterDpu(pb.RegisterDpuRequest(zone="z1", dpu="d1"))
    shown = dict(line.split(maxsplit=1) for line in _lines(await run(plane, "dpus", "show", "d1")) if " " in line)
    assert shown["since"].startswith("20") and shown["since"].endswith("Z")
    assert not {"attempt_deadline_time", "deadline", "phase_start_time"} & shown.keys(), (
        "without a deadline no time is printed"
    )
    node = await run(plane, "nodes", "join", "n1", "--zone", "z1")
    assert node.exit_code == 0
    shown = dict(line.split(maxsplit=1) for line in _lines(await run(plane, "nodes", "show", "n1")) if " " in line)
    assert shown["created"].endswith("Z")


def _lines(ran: Result) -> list[str]:
    return ran.stdout.splitlines()


async def test_a_phase_is_accepted_in_upper_and_lower_case(plane: Served) -> None:
    await plane.calls.RegisterDpu(pb.RegisterDpuRequest(zone="z1", dpu="d1"))
    assert "d1" in (await run(plane, "dpus", "list", "--phase", "initializing")).stdout
    assert "d1" not in (await run(plane, "dpus", "list", "--phase", "ready")).stdout


async def test_ports_of_a_protocol_without_ports_are_refused(plane: Served, tmp_path: Path) -> None:
    file = tmp_path / "ping.yaml"
    file.write_text("{name: ping, action: allow, protocol: icmp, ports: [8]}")
    ran = await run(plane, "policies", "apply", str(file))
    assert (ran.exit_code, "must be empty with protocol 'icmp': only tcp and udp have ports" in ran.stderr) == (
        1,
        True,
    )


async def test_an_unknown_version_is_printed_in_words(plane: Served) -> None:
    await plane.calls.RegisterDpu(pb.RegisterDpuRequest(zone="z1", dpu="d1"))
    for name, address in (("n1", "10.0.0.1"), ("n2", "10.0.0.2")):  # two forwards before the first read of a table
        joined = await plane.join("z1", pb.NodeSpec(name=name, addresses=[address]))
        await run(plane, "budgets", "list", "--min-position", joined.position)
    head, row, *_ = _lines(await run(plane, "explain", "n1", "d1"))
    assert head.endswith("SINCE VERSION")
    assert row[head.index("SINCE VERSION") :] == "unknown: older than the kept history"
    joined = await plane.join("z1", pb.NodeSpec(name="n3", addresses=["10.0.0.9"]))
    head, row, *_ = _lines(await run(plane, "explain", "n3", "d1", "--min-position", joined.position))
    assert int(row[head.index("SINCE VERSION") :]) > 0


@pytest.mark.parametrize("command", [["replay"], ["events", "export"], ["backup", "--out", "copy"]], ids=" ".join)
def test_a_folder_without_a_log_is_named_as_it_was_given(command: list[str], tmp_path: Path) -> None:
    ran = CliRunner().invoke(cli, [*command, "--data", str(tmp_path / "nope")])
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert f"data: {tmp_path / 'nope'} holds no log; give the folder" in ran.stderr


@pytest.mark.parametrize(("output", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
async def test_an_export_in_json_or_yaml_is_one_value(output: str, load: Callable[[str], Any], tmp_path: Path) -> None:
    await write_sample_log(tmp_path, records=4)
    export = ["events", "export", "--data", str(tmp_path), "--output"]
    ran = await asyncio.to_thread(CliRunner().invoke, cli, [*export, "jsonl"])
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(lines) > 4
    ran = await asyncio.to_thread(CliRunner().invoke, cli, [*export, output])
    assert load(ran.stdout) == lines
    ran = await asyncio.to_thread(CliRunner().invoke, cli, [*export, output, "--subject", "nobody"])
    assert load(ran.stdout) == []


async def test_an_upgrade_dry_run_names_each_halt_once(plane: Served, tmp_path: Path) -> None:
    await write_sample_log(tmp_path / "log of its own", records=4)
    ran = await run(plane, "upgrade", "--version", "99", "--dry-run", "--data", str(tmp_path / "log of its own"))
    assert (ran.exit_code, "and this binary supports [1]" in ran.stdout) == (1, True), ran.output
    assert {line.partition(":")[0] for line in ran.stderr.splitlines()} == {"not ready"}


async def test_relays_without_a_timely_response_are_reported_as_unavailable(
    impatient: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = impatient

    async def never(_zones: frozenset[str]) -> Holdings:
        await asyncio.Event().wait()
        return {}

    await plane.calls.RegisterDpu(pb.RegisterDpuRequest(zone="z1", dpu="d1"))
    monkeypatch.setattr(plane, "devices", never)
    for arguments in (("explain", "n1", "d1"), ("verify",)):
        ran = await run(plane, *arguments)
        assert (ran.exit_code, "devices: not every relay responded within" in ran.stderr) == (3, True), ran.output


async def test_a_command_that_folds_logs_what_it_found(tmp_path: Path) -> None:
    clock = await write_sample_log(tmp_path, records=4)
    async with EmbeddedLog.open(TOPICS, tmp_path / LOG_FOLDER, now_ms=clock) as log:
        await log.append(ZONES_0, b"log", encode(FoldVersionUpgraded(internal_envelope("log", "ops", clock.ms), 99)))
    history = ["history", "node-0-0", "--data", str(tmp_path)]
    ran = await asyncio.to_thread(CliRunner().invoke, cli, history)
    (halted,) = [line for line in ran.stderr.splitlines() if "halted" in line]
    assert halted.startswith("time=") and "partition=zones/0" in halted


async def test_the_zone_of_many_dpus_is_printed_once(plane: Served) -> None:
    for dpu in ("d1", "d2"):
        await plane.calls.RegisterDpu(pb.RegisterDpuRequest(zone="z1", dpu=dpu))
    assert (await run(plane, "dpus", "provision", "d1", "d2", "--image", "i")).stderr == "looked up: zone z1\n"
