"""Contradictory security settings of Kafka are refused by name, and grants are printed as shell commands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from deploy.cli import cli
from deploy.composition.topics import TOPICS
from deploy.kafka.acls import GRANTED_ROLES, grants_of
from deploy.kafka.security import InvalidKafkaSecurity, KafkaSecurity
from deploy.settings.settings import BadSettings, load_settings

SASL = {
    "kafka": "h:1",
    "kafka_security_protocol": "SASL_SSL",
    "kafka_sasl_mechanism": "PLAIN",
    "kafka_sasl_username": "u",
    "kafka_sasl_password_file": "p",
}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {**SASL, "kafka_security_protocol": "SASL_PLAINTEXT"},
            "kafka_security_protocol: 'SASL_PLAINTEXT' must be one of",
        ),
        ({**SASL, "kafka_sasl_mechanism": "GSSAPI"}, "kafka_sasl_mechanism: 'GSSAPI' must be one of"),
        ({**SASL, "kafka_sasl_password_file": None}, "kafka_sasl_password_file must be given"),
        ({**SASL, "kafka_security_protocol": "SSL"}, "is for kafka_security_protocol SASL_SSL, which is SSL"),
        ({**SASL, "kafka_cert_file": "c"}, "kafka_cert_file and kafka_key_file: give both"),
        ({**SASL, "kafka": None, "data": "d"}, "data is given"),
        ({"kafka": "h:1", "kafka_security_protocol": "SSL"}, "kafka_cert_file must be given"),
        ({"kafka": "h:1", "kafka_ca_file": "c"}, "kafka_ca_file is for kafka_security_protocol SSL or SASL_SSL"),
    ],
)
def test_contradictory_settings_are_named(flags: dict[str, object], message: str) -> None:
    with pytest.raises(BadSettings) as caught:
        load_settings(flags, None, {})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"), [(None, "No such file"), (b"", "holds no password"), (b"\xff", "must be text in UTF-8")]
)
def test_an_unusable_password_file_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidKafkaSecurity, match=f"kafka_sasl_password_file .*{message}"):
        KafkaSecurity("SASL_SSL", "PLAIN", "u", file).options()


def test_files_without_certificates_are_named(tmp_path: Path) -> None:
    file = tmp_path / "some.pem"
    file.write_text("nothing")
    with pytest.raises(InvalidKafkaSecurity, match="kafka_ca_file"):
        KafkaSecurity("SSL", ca_file=file, cert_file=file, key_file=file).options()
    with pytest.raises(InvalidKafkaSecurity, match=r"kafka_cert_file .* and kafka_key_file"):
        KafkaSecurity("SSL", cert_file=file, key_file=file).options()


def test_the_password_has_no_flag() -> None:
    options: list[Any] = [option for parameter in cli.get_command(None, "serve").params for option in parameter.opts]  # type: ignore[arg-type,union-attr]
    assert "--kafka-sasl-password-file" in options
    assert "--kafka-sasl-password" not in options


@pytest.mark.parametrize("role", GRANTED_ROLES)
def test_grants_are_limited_to_describe_read_write_and_create(role: str) -> None:
    operations = {operation for grant in grants_of(TOPICS, role) for operation in grant.operations}
    assert operations <= {"Describe", "DescribeConfigs", "Read", "Write", "Create"}
    assert ("Create" in operations) == (role in {"all", "api"})
    assert {topic for grant in grants_of(TOPICS, role) for topic in grant.topics} == set(TOPICS.names)


def test_grants_are_printed_as_commands_for_a_shell() -> None:
    ran = CliRunner().invoke(
        cli, ["topics", "acls", "--role", "provisioner", "--principal", "User:CN=it's me", "--topic-prefix", "lab"]
    )
    lines = [shlex.split(line) for line in ran.stdout.splitlines()]
    assert [line[0] for line in lines] == ["kafka-acls.sh"] * 3
    assert all(line[line.index("--allow-principal") + 1] == "User:CN=it's me" for line in lines)
    written = ["lab.zones", "lab.resources", "lab.replicas"]
    assert lines[2][-8:] == ["--operation", "Write", *(word for topic in written for word in ("--topic", topic))]


@pytest.mark.parametrize("principal", ["relay", "User:*", "User:", "User:a\nb"])
def test_an_invalid_principal_is_refused(principal: str) -> None:
    ran = CliRunner().invoke(cli, ["topics", "acls", "--role", "relay", "--principal", principal])
    assert ran.exit_code == 2
    assert "must be KIND:NAME of one principal" in ran.stderr
