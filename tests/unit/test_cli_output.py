"""Output for scripts: one value on stdout in snake_case with defaults, and an exit status for the outcome."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from google.protobuf.timestamp_pb2 import Timestamp

from deploy.cli import _ending, cli
from deploy.cli.changes.policies import PolicyDocument, read_policies
from deploy.cli.fleet.zones import fields_of
from deploy.cli.operations.status import heading_of
from deploy.cli.shared.client import Client
from deploy.cli.shared.errors import Refused
from deploy.cli.shared.output import FORMATS, Column, Output, Table, print_table, print_value
from deploy.cli.shared.results import exit_status, finish, merged_position, merged_result, sentence
from deploy.reference.commands import walk
from deploy.serialization import message_to_dict, yaml_text
from eventstore.ids import issued_at_ms, part_id
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import outcome_name
from tests.support.sample_log import write_sample_log

ID = "0197b2a4-7c00-7000-8000-000000000001"


def run(answer: pb.CommandResult, output: str) -> Result:
    @click.command()
    def command() -> None:
        finish(answer, output)

    return CliRunner().invoke(command)


NODES = [pb.Node(name="n1", zone="rack7", uid="u1"), pb.Node(name="n2", zone="rack8", uid="u2")]
TABLE = Table(lambda n: n.name, (Column("name", lambda n: n.name), Column("uid", lambda n: n.uid, wide=True)))


def leaves() -> list[tuple[tuple[str, ...], click.Command]]:
    return [(w.path[1:], w.command) for w in walk() if not isinstance(w.command, click.Group)]


def listed(output: Output) -> str:
    @click.command()
    def command() -> None:
        output.print_list(pb.ListNodesResponse(nodes=NODES, position="log:zones/0=2"), NODES, TABLE)

    return CliRunner().invoke(command).stdout


def test_a_list_has_the_formats_table_wide_name_and_one_value() -> None:
    assert listed(Output("table")) == "NAME\nn1\nn2\n"
    assert listed(Output("wide")) == "NAME  UID\nn1    u1\nn2    u2\n"
    assert listed(Output("name")) == "n1\nn2\n"
    found = json.loads(listed(Output("json")))
    assert ([node["name"] for node in found["nodes"]], found["position"]) == (["n1", "n2"], "log:zones/0=2")
    assert yaml.safe_load(listed(Output("yaml"))) == found


def test_a_list_without_headers_has_its_rows_only() -> None:
    assert listed(Output("wide", headers=False)) == "n1  u1\nn2  u2\n"
    assert json.loads(listed(Output("json", headers=False))) == json.loads(listed(Output("json")))


@pytest.mark.parametrize(("output", "said"), [("table", "text\n"), ("wide", "text\n"), ("name", "n1\n")])
def test_one_object_is_printed_as_text_or_as_its_name(output: str, said: str) -> None:
    @click.command()
    def command() -> None:
        Output(output).print_one(NODES[0], "n1", lambda: click.echo("text"))

    assert CliRunner().invoke(command).stdout == said


def test_every_list_and_show_command_has_every_format() -> None:
    for path, command in leaves():
        options = {parameter.name: parameter for parameter in command.params}
        if path[-1] in ("list", "show", "get-contexts", "explain", "status") and path[0] != "certs":
            kind = options["output"].type
            assert isinstance(kind, click.Choice) and kind.choices == FORMATS, path
        assert ("no_headers" in options) == (path[-1] in ("list", "get", "get-contexts")), path
        assert ("limit" in options) == (path[-1] in ("list", "get")), path


def test_a_message_becomes_plain_data_with_defaults() -> None:
    clique = pb.Clique(
        domain="d",
        clique="c",
        capacity=18,
        members=[pb.CliqueMember(index=0, node="n", create_time=Timestamp(seconds=1_700_000_000, nanos=250_000_000))],
    )
    assert message_to_dict(clique) == {
        "domain": "d",
        "clique": "c",
        "capacity": 18,
        "members": [
            {
                "index": 0,
                "node": "n",
                "ready": False,
                "address": "",
                "uid": "",
                "create_time": "2023-11-14T22:13:20.250Z",
                "session_alive": False,
            }
        ],
        "waiting": [],
        "position": "",
    }
    assert message_to_dict(pb.Node(labels={"b": "2", "a": "1"}))["labels"] == {"a": "1", "b": "2"}
    supports = {"zones": pb.FoldVersions(versions=[1, 2])}
    assert message_to_dict(pb.Replica(supports=supports))["supports"] == {"zones": {"versions": [1, 2]}}


def test_text_of_several_lines_is_a_literal_block_in_yaml() -> None:
    value = {"script": 'a: "b"\n\n  c\n', "plain": "x", "control": "a\x1b\nb", "number": "1"}
    text = yaml_text(value)
    assert 'script: |\n  a: "b"\n\n    c\nplain: x\n' in text and "\x1b" not in text
    assert yaml.safe_load(text) == value


def test_only_a_response_has_a_position_and_not_its_items() -> None:
    listed = message_to_dict(pb.ListNodesResponse(nodes=[pb.Node(name="n")], position="log:zones/0=1"))
    assert "position" not in listed["nodes"][0] and listed["position"] == "log:zones/0=1"
    assert message_to_dict(pb.Node(name="n"))["position"] == ""
    partition = pb.Replica(partitions=[pb.PartitionStatus(partition="zones/0")])
    assert message_to_dict(partition)["partitions"][0]["position"] == 0


def test_index_zero_is_printed_and_an_absent_index_is_not() -> None:
    assert message_to_dict(pb.CommandResult(outcome=pb.OUTCOME_DONE, index=0))["index"] == 0
    assert {"index", "queue_position", "hold"}.isdisjoint(message_to_dict(pb.CommandResult(outcome=pb.OUTCOME_DONE)))


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (pb.CommandResult(outcome=pb.OUTCOME_DONE, index=0), 0),
        (
            pb.CommandResult(outcome=pb.OUTCOME_WAITING, queue_position=1, reason="no available indices within c (18)"),
            0,
        ),
        (pb.CommandResult(outcome=pb.OUTCOME_HELD, hold=3), 0),
        (pb.CommandResult(outcome=pb.OUTCOME_REFUSED, reason="zone: no"), 1),
        (
            pb.CommandResult(
                outcome=pb.OUTCOME_DONE, items=[pb.ItemResult(name="n", outcome=pb.OUTCOME_REFUSED, reason="no")]
            ),
            1,
        ),
        (pb.CommandResult(outcome=pb.OUTCOME_UNKNOWN, command_id=ID, reason="no answer in time"), 3),
    ],
)
def test_a_response_is_one_value_and_an_exit_status(answer: pb.CommandResult, status: int) -> None:
    assert exit_status(answer) == status
    as_json = run(answer, "json")
    assert as_json.exit_code == status
    assert json.loads(as_json.stdout) == message_to_dict(answer)
    assert bool(as_json.stderr) == (status != 0)
    as_yaml = run(answer, "yaml")
    assert (as_yaml.exit_code, yaml.safe_load(as_yaml.stdout)) == (status, message_to_dict(answer))
    as_table = run(answer, "table")
    assert as_table.exit_code == status
    assert (as_table.stderr if status else as_table.stdout).startswith(outcome_name(answer.outcome))


def test_the_sentence_about_a_result_has_its_fields() -> None:
    assert (
        sentence(pb.CommandResult(outcome=pb.OUTCOME_WAITING, queue_position=2, reason="full"))
        == "waiting, queue position 2: full"
    )
    assert sentence(pb.CommandResult(outcome=pb.OUTCOME_DONE, index=0)) == "done, index 0"
    assert f"dpuplane commands show {ID}" in sentence(pb.CommandResult(outcome=pb.OUTCOME_UNKNOWN, command_id=ID))


def test_results_of_several_commands_are_merged() -> None:
    done = pb.CommandResult(command_id=ID, outcome=pb.OUTCOME_DONE, position="log:zones/1=5,zones/2=1")
    held = pb.CommandResult(outcome=pb.OUTCOME_HELD, hold=7, reason="over the budget", position="log:zones/2=9")
    whole = merged_result([(["a"], done), (["b", "c"], held)])
    assert outcome_name(whole.outcome) == "held"
    assert (whole.command_id, whole.reason) == (ID, "over the budget")
    assert [(item.name, item.outcome) for item in whole.items] == [("a", pb.OUTCOME_DONE)]
    assert whole.position == "log:zones/1=5,zones/2=9"
    assert merged_result([(["a"], done)]) is done


def test_unknown_and_refused_parts_determine_the_exit_status() -> None:
    done, refused = pb.CommandResult(outcome=pb.OUTCOME_DONE), pb.CommandResult(outcome=pb.OUTCOME_REFUSED, reason="no")
    unknown = pb.CommandResult(outcome=pb.OUTCOME_UNKNOWN)
    assert exit_status(merged_result([(["a"], done), (["b"], refused)])) == 1
    assert exit_status(merged_result([(["a"], refused), (["b"], unknown)])) == 3


def test_merged_positions_have_the_later_offset_of_each_partition() -> None:
    assert merged_position(["", "l:a/0=3,b/1=2", "l:a/0=1,c/0=4"]) == "l:a/0=3,b/1=2,c/0=4"
    assert merged_position([""]) == ""


def test_ids_of_parts_are_reproducible_and_have_the_time_of_the_whole() -> None:
    parts = [part_id(ID, number) for number in range(1, 50)]
    assert parts == [part_id(ID, number) for number in range(1, 50)]
    assert len(set(parts) | {ID}) == 50
    assert {issued_at_ms(part) for part in parts} == {issued_at_ms(ID)}


def test_json_is_one_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_value({"a": {"b": [1, 2]}}, "json")
    assert capsys.readouterr().out == '{"a": {"b": [1, 2]}}\n'


def test_tables_align_and_have_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("zone", "nodes"), [("rack1", 5), ("r", 1_000)])
    assert capsys.readouterr().out == "ZONE   NODES\nrack1  5\nr      1000\n"


def test_the_heading_of_a_replica_omits_absent_fields() -> None:
    assert heading_of(pb.Replica(name="r", roles=["relay"], version="0.1.0")) == "r: relay; version 0.1.0"
    assert heading_of(pb.Replica(name="r", roles=["api", "relay"])) == "r: api, relay"
    assert heading_of(pb.Replica(name="r", roles=["api"], addresses={"api": "h:1"})) == "r: api; api=h:1"


def test_a_zone_lists_the_dpus_that_refused_a_table_or_regressed() -> None:
    refused = pb.DpuException(dpu="d-2", version=-1, reason="full", report_time=Timestamp(seconds=1_700_000_000))
    gone_back = pb.DpuException(dpu="d-3", version=7, report_time=Timestamp(seconds=1_700_000_000))
    lost = pb.DpuException(dpu="d-4", version=-1, reason="DRIFT: gone", report_time=Timestamp(seconds=1_700_000_000))
    shown = dict(fields_of(pb.Zone(zone="rack7", lagging=["d-1"], exceptions=[refused, gone_back, lost])))
    assert shown["lagging"] == "d-1"
    assert shown["exception d-2"] == "refused its table at 2023-11-14T22:13:20.000Z: full"
    assert shown["exception d-3"] == "went back to version 7 at 2023-11-14T22:13:20.000Z"
    assert shown["exception d-4"] == "lost its table at 2023-11-14T22:13:20.000Z: DRIFT: gone"


def test_policy_files_accept_documents_lists_and_several_forms_of_ports() -> None:
    text = """
name: web
action: allow
priority: 10
protocol: tcp
ports: [443, "8000-8080", {first: 1, last: 2}]
sources: {tier: web}
---
- {name: a, action: drop}
- {name: b, action: allow, zones: {row: "7"}}
"""
    found = read_policies(text, "file")
    assert [policy.name for policy in found] == ["web", "a", "b"]
    assert found[0].message() == pb.PolicySpec(
        name="web",
        action="allow",
        priority=10,
        protocol="tcp",
        ports=[{"first": 443, "last": 443}, {"first": 8000, "last": 8080}, {"first": 1, "last": 2}],
        sources={"tier": "web"},
    )
    assert read_policies('{"name": "j", "action": "drop"}', "file") == [PolicyDocument(name="j", action="drop")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ("file", "0 policies", "1 to 1000")),
        ("name: [", ("file", "YAML")),
        ("just text", ("policy 1", "mapping", "is text")),
        ("{name: a}", ("policy 1", "action")),
        ("{name: a, action: permit}", ("policy 1", "action", "'permit'")),
        ("{name: a, action: allow, priority: high}", ("policy 1", "priority", "'high'")),
        ("{name: a, action: allow, priority: 2000000}", ("policy 1", "priority", "2000000")),
        ("{name: a, action: allow, ports: [x]}", ("policy 1", "ports.0", "'x'", "FIRST-LAST")),
        ("{name: a, action: allow, protocol: tcp, ports: [-1]}", ("policy 1", "ports", "0 to 65535")),
        ("{name: a, action: allow, protocol: udp, ports: ['9-99999']}", ("policy 1", "ports", "0 to 65535")),
        (
            "{name: a, action: allow, sources: {rack: 7}}",
            (
                "policy 1",
                "sources.rack: 7 must be text",
            ),
        ),
        ("{name: a, action: allow, color: red}", ("policy 1", "color", "not a known field")),
        ("{name: a, action: allow}\n---\n{name: a, action: drop}", ("name", "'a'", "2 times")),
        ("&a [*a, *a]", ("YAML", "line 1", "anchor that is complete")),
    ],
)
def test_a_policy_file_with_an_error_is_refused_whole(text: str, said: tuple[str, ...]) -> None:
    with pytest.raises(Refused) as caught:
        read_policies(text, "file")
    assert caught.value.exit_code == 1
    assert "\n" not in caught.value.message
    for part in said:
        assert part in caught.value.message


def test_a_policy_file_may_override_a_merged_field() -> None:
    text = "- &one {name: a, action: allow, sources: {tier: web}}\n- &two {<<: *one, name: b}\n- {<<: *two, name: c}\n"
    assert [(each.name, each.sources) for each in read_policies(text, "file")] == [
        (name, {"tier": "web"}) for name in "abc"
    ]
    with pytest.raises(Refused, match="'tier' is given twice, again in line 1"):
        read_policies("{name: a, action: allow, sources: {tier: web, tier: db}}", "file")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["policies", "apply", "/dev/zero"], "/dev/zero: must be at most 1048576 characters"),
        (["certs", "show", "/dev/zero"], "file: /dev/zero must be a certificate in PEM or DER"),
    ],
    ids=["policies", "certs"],
)
def test_an_endless_file_is_refused(command: list[str], said: str) -> None:
    ran = CliRunner().invoke(cli, command)
    assert (ran.exit_code, ran.stderr) == (1, f"Error: {said}\n")


def test_an_endless_file_to_merge_into_is_refused() -> None:
    ran = CliRunner().invoke(cli, ["cliques", "config", "d", "c", "--merge", "/dev/zero"])
    assert ran.exit_code == 2
    assert ran.stderr.endswith("'/dev/zero' must be at most 8388608 characters\n")


def test_a_missing_policy_file_is_wrong_usage(tmp_path: Path) -> None:
    from deploy.cli import cli

    result = CliRunner().invoke(cli, ["policies", "apply", str(tmp_path / "missing.yaml")])
    assert result.exit_code == 2


def test_the_tables_of_a_zone_name_the_dpus_that_have_each_version(monkeypatch: pytest.MonkeyPatch) -> None:
    install = pb.Install(version=4, dpus=10, received=10, applied=9)
    for permille, seconds in ((500, 0.007), (900, 0.02)):
        install.milestones.add(level="received", permille=permille).latency.FromMilliseconds(round(seconds * 1_000))
    monkeypatch.setattr(Client, "query", lambda *_: pb.Zone(zone="z", installs=[install]))
    shown = CliRunner().invoke(cli, ["zones", "show", "z"]).stdout
    assert (
        "received by 10 of 10 DPUs (50, 90 % after 7, 20 ms); applied by 9 of 10 DPUs; in hardware on 0 of 10 DPUs"
        in shown
    )


def test_the_queue_of_a_clique_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    clique = pb.Clique(domain="d", clique="c", capacity=1)
    clique.members.add(index=0, node="n0")
    clique.waiting.add(queue_position=1, node="n1")
    monkeypatch.setattr(Client, "query", lambda *_: clique)
    lines = CliRunner().invoke(cli, ["cliques", "show", "d", "c"]).stdout.splitlines()
    assert lines[3].split() == ["queue", "1", "n1", "waiting"]


def test_the_list_of_holds_has_zones_and_principals(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pb.Hold(hold=8, zones=["a", "b", "c"], requested_by="ann", approved_by=["bob", "eve"])
    wide = pb.Hold(hold=9, zones=[f"z{number}" for number in range(7)], requested_by="ann")
    monkeypatch.setattr(Client, "query", lambda *_: pb.ListHoldsResponse(holds=[asked, wide]))
    lines = CliRunner().invoke(cli, ["holds", "list"]).stdout.splitlines()
    assert lines[0].split()[4:10] == ["ZONES", "ASKED", "BY", "COMMAND", "APPROVED", "BY"]
    assert lines[1].split()[3:] == ["a,b,c", "ann", "bob,eve"]
    assert lines[2].split()[3:] == ["z0,z1,z2,z3,z4,...", "ann"]


def test_an_interrupted_command_is_not_reported_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "_call_first_available", pressed)
    for command in (["nodes", "list"], ["wait", "zone", "z"]):
        ran = CliRunner().invoke(cli, command)
        assert (ran.exit_code, ran.output) == (130, "")
    ran = CliRunner().invoke(cli, ["freeze", "--all", "--command-id", ID])
    assert (
        ran.exit_code,
        f"the command may still take effect: check it with `dpuplane commands show {ID}`" in ran.stderr,
    ) == (130, True)


def test_an_interrupted_import_reports_that_a_part_may_be_applied(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    empty = {"ListHolds": pb.ListHoldsResponse(), "ListNodes": pb.ListNodesResponse()}
    monkeypatch.setattr(Client, "query", lambda _, method, __: empty[method])
    monkeypatch.setattr(Client, "stream", pressed)
    file = tmp_path / "fleet.csv"
    file.write_text("name,zone,address\nn,z,10.0.0.1\n")
    ran = CliRunner().invoke(cli, ["import", str(file)])
    assert (ran.exit_code, ran.stdout) == (130, "")
    assert ran.stderr == "interrupted; part of the file may be applied: repeat the import to apply the rest\n"


@pytest.mark.parametrize("command", [["certs", "issue", "--help"], ["--help"]], ids=" ".join)
def test_a_closed_pipe_is_not_an_error(command: list[str]) -> None:
    program = [sys.executable, "-c", "from deploy.cli import main; main()", *command]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = subprocess.run(program, stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.parametrize("command", [["--help"], ["completion", "bash"], ["events", "export"]], ids=" ".join)
def test_output_to_a_full_disk_is_one_error_line(command: list[str], tmp_path: Path) -> None:
    if command[0] == "events":
        asyncio.run(write_sample_log(tmp_path / "plane", records=1))
        command = [*command, "--data", str(tmp_path / "plane")]
    program = [sys.executable, "-c", "from deploy.cli import main; main()", *command]
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (ran.returncode, ran.stderr) == (3, b"Error: stdout: cannot be written: No space left on device\n")


@pytest.mark.parametrize("count", [1, 2, 9])
def test_a_result_that_cannot_be_printed_names_its_command(
    count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "policies.json"
    file.write_text(json.dumps([{"name": f"p{number}", "action": "allow"} for number in range(count)]))
    ids = [ID, *(part_id(ID, number) for number in range(1, count))]

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Client, "_call_first_available", lambda *_: pb.CommandResult(outcome=pb.OUTCOME_DONE))
    monkeypatch.setattr("deploy.cli.shared.output.print_value", full)
    monkeypatch.setattr("deploy.cli._print_no_more", lambda: None)
    given = ["policies", "apply", str(file), "--command-id", ID, "--output", "json"]
    ran = CliRunner().invoke(cli, given)
    said = {
        1: f"the command may have taken effect: check it with `dpuplane commands show {ID}`, or repeat the command with"
        f" --command-id {ID}",
        2: f"2 commands may have taken effect: check them with `dpuplane commands show` {', '.join(ids[:2])}",
        9: "9 commands may have taken effect: check them with `dpuplane commands show`"
        f" {', '.join(ids[:5])} and 4 more",
    }[count]
    assert (ran.exit_code, ran.stderr) == (3, f"Error: stdout: cannot be written: No space left on device; {said}\n")
    monkeypatch.setattr("deploy.cli.shared.output.print_value", full)
    looked = CliRunner().invoke(cli, [*given, "--dry-run"])
    assert looked.stderr == "Error: stdout: cannot be written: No space left on device\n"


@pytest.mark.parametrize(("command", "status"), [("--help", 0), ("nope", 2)])
def test_closed_stdout_and_stderr_are_not_an_error(command: str, status: int) -> None:
    program = f"exec {shlex.quote(sys.executable)} -c 'from deploy.cli import main; main()' {command} >&- 2>&-"
    assert subprocess.run(["sh", "-c", program], check=False).returncode == status


def test_an_opened_file_never_takes_the_place_of_a_closed_stdout(tmp_path: Path) -> None:
    """Otherwise the output would be written into that file."""
    code = "import deploy.cli as c; c._with_streams(); f = open('kept', 'w'); print('printed'); assert f.fileno() > 2"
    ran = subprocess.run(["sh", "-c", f'exec {shlex.quote(sys.executable)} -c "{code}" >&-'], cwd=tmp_path, check=False)
    assert ran.returncode == 0 and not (tmp_path / "kept").read_text()


def test_a_forgotten_outcome_has_no_advice_to_check_it_again() -> None:
    forgotten = pb.CommandResult(
        command_id=ID, outcome=pb.OUTCOME_UNKNOWN, reason="old", reason_code="OUTCOME_FORGOTTEN"
    )
    assert sentence(forgotten) == f"unknown: {forgotten.reason}"
    late = pb.CommandResult(command_id=ID, outcome=pb.OUTCOME_UNKNOWN, reason="no answer in time")
    assert sentence(late).endswith(f"; check it with `dpuplane commands show {ID}`")


def test_an_error_of_another_file_is_not_reported_as_stdout() -> None:
    with pytest.raises(ConnectionResetError), _ending():
        raise ConnectionResetError(errno.ECONNRESET, "reset by peer")
