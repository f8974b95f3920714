"""Environment variables: unknown ones are reported, and each command reads the ones meant for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from deploy.cli import cli
from deploy.cli.operations.log_options import log_options
from deploy.host.storage import LogSource
from deploy.reference.commands import walk
from deploy.settings.environment import CLIENT_VARIABLES, known_variables, unknown_variables

SERVER_TLS = {f"DPUPLANE_TLS_{name}": f"{name}.pem" for name in ("CERT", "KEY", "CLIENT_CA")}


def options() -> Iterator[click.Option]:
    return (param for _, command in walk() for param in command.params if isinstance(param, click.Option))


def test_the_known_variables_include_those_of_all_options() -> None:
    own = {name for option in options() if (name := str(option.envvar or "")).startswith("DPUPLANE_")}
    declared = own | {"DPUPLANE_CACHE", "DPUPLANE_CLIENT_CONFIG"}
    assert declared <= known_variables()
    assert declared >= CLIENT_VARIABLES


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("DPUPLANE_TOPIC_PREFX", "DPUPLANE_TOPIC_PREFIX"),
        ("DPUPLANE_SERVERS", "DPUPLANE_SERVER"),
        ("DPUPLANE_KAFKA_PASSWORD", "DPUPLANE_KAFKA_SASL_PASSWORD_FILE"),
    ],
)
def test_an_unknown_variable_is_reported_with_the_nearest_known_one(name: str, nearest: str) -> None:
    (sentence,) = unknown_variables({name: "", "DPUPLANE_DATA": "plane", "DPUPLANEX": "", "PATH": ""})
    assert sentence == (
        f"environment: '{name}' is not a variable of dpuplane and was ignored; the most similar one is {nearest}"
    )


def test_service_variables_of_kubernetes_are_not_reported() -> None:
    of_services = (
        "DPUPLANE_SERVICE_HOST",
        "DPUPLANE_SERVICE_PORT",
        "DPUPLANE_SERVICE_PORT_GRPC",
        "DPUPLANE_PORT",
        "DPUPLANE_API_PORT_7080_TCP",
        "DPUPLANE_API_PORT_7080_TCP_ADDR",
    )
    assert unknown_variables(of_services) == []


def test_a_client_command_and_a_server_report_an_unknown_variable() -> None:
    for arguments in (["nodes", "list", "--server", "127.0.0.1:1"], ["serve", "--role", "boss"]):
        ran = CliRunner().invoke(cli, arguments, env={"DPUPLANE_TOPIC_PREFX": "x"})
        assert ran.stderr.count("'DPUPLANE_TOPIC_PREFX' is not a variable of dpuplane") == 1
        assert ran.stdout == ""


def test_a_client_ignores_the_server_certificate_in_the_environment() -> None:
    ran = CliRunner().invoke(cli, ["nodes", "list", "--server", "127.0.0.1:1"], env=SERVER_TLS)
    assert (ran.exit_code, "no process listens at 127.0.0.1:1" in ran.stderr) == (3, True)
    part = CliRunner().invoke(cli, ["nodes", "list"], env={"DPUPLANE_CLIENT_TLS_CERT": "ann.pem"})
    assert (part.exit_code, "--tls-cert, --tls-key and --tls-ca: give all three" in part.stderr) == (2, True)


@pytest.fixture
def reading_command() -> tuple[click.Command, list[LogSource | None]]:
    """A command that reads the log, and the log sources that it received."""
    sources: list[LogSource | None] = []

    @click.command()
    @click.option("--server", "servers", envvar="DPUPLANE_SERVER", default="127.0.0.1:7080")
    @log_options
    def command(servers: str, log_source: LogSource | None) -> None:
        sources.append(log_source)

    return command, sources


DATA, KAFKA = {"DPUPLANE_DATA": "plane"}, {"DPUPLANE_KAFKA": "h:1", "DPUPLANE_TOPIC_PREFIX": "lab"}
AT_DATA, AT_KAFKA = LogSource(Path("plane"), "", "dpuplane"), LogSource(None, "h:1", "lab")


@pytest.mark.parametrize(
    ("environment", "flags", "log_source"),
    [
        ({}, [], None),
        (DATA, [], AT_DATA),
        (KAFKA, [], AT_KAFKA),
        (KAFKA, ["--data", "plane"], AT_DATA._replace(topic_prefix="lab")),
        (DATA, ["--kafka", "h:1", "--topic-prefix", "lab"], AT_KAFKA),
        (DATA, ["--server", "h:7080"], None),
        (DATA, ["--server", "h:7080", "--data", "other"], AT_DATA._replace(data=Path("other"))),
        ({**DATA, "DPUPLANE_SERVER": "h:7080"}, [], AT_DATA),
    ],
)
def test_a_command_that_reads_the_log_uses_the_variables_of_serve(
    reading_command: tuple[click.Command, list[LogSource | None]],
    environment: dict[str, str],
    flags: list[str],
    log_source: LogSource | None,
) -> None:
    command, sources = reading_command
    ran = CliRunner().invoke(command, flags, env=environment)
    assert (ran.exit_code, ran.output, sources) == (0, "", [log_source])


def test_two_logs_from_the_same_source_are_refused(
    reading_command: tuple[click.Command, list[LogSource | None]],
) -> None:
    for environment, flags in ((DATA | KAFKA, []), ({}, ["--data", "plane", "--kafka", "h:1"])):
        ran = CliRunner().invoke(reading_command[0], flags, env=environment)
        assert (ran.exit_code, "give --data or --kafka, not both" in ran.output) == (2, True)


def test_a_command_that_reads_the_log_uses_the_config_file_of_serve(
    reading_command: tuple[click.Command, list[LogSource | None]], tmp_path: Path
) -> None:
    command, sources = reading_command
    file = tmp_path / "plane.yaml"
    variables = {"DPUPLANE_CONFIG": str(file)}
    file.write_text("kafka: h:1\ntopic_prefix: lab\nlisten: 0.0.0.0:7080\n")
    assert CliRunner().invoke(command, [], env=variables).exit_code == 0
    assert CliRunner().invoke(command, ["--topic-prefix", "other"], env=variables).exit_code == 0
    assert CliRunner().invoke(command, ["--data", "plane"], env=variables).exit_code == 0
    file.write_text("listen: 127.0.0.1:1\n")
    assert CliRunner().invoke(command, [], env=variables).exit_code == 0
    assert sources == [AT_KAFKA, AT_KAFKA._replace(topic_prefix="other"), AT_DATA._replace(topic_prefix="lab"), None]
    file.write_text("kafka: 7\n")
    ran = CliRunner().invoke(command, [], env=variables)
    assert (ran.exit_code, "kafka: 7 must be text" in ran.output) == (2, True)


@pytest.mark.parametrize("path", ["events tail", "events export", "verify", "replay", "history", "backup"])
def test_every_command_that_reads_the_log_has_the_variables(path: str) -> None:
    found = {" ".join(walked.path[1:]): walked.command for walked in walk()}[path]
    variables = {param.envvar for param in found.params if isinstance(param, click.Option)}
    names = ("DATA", "KAFKA", "TOPIC_PREFIX", "CONFIG", "KAFKA_SECURITY_PROTOCOL", "KAFKA_SASL_PASSWORD_FILE")
    assert {f"DPUPLANE_{name}" for name in names} <= variables
