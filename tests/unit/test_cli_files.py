"""Refusals of the command line about invalid files, and about options that exclude each other."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from deploy.atomic_files import atomic_write
from deploy.cli import cli
from deploy.cli.fleet.wait import _let_through
from deploy.cli.shared.client import Client
from deploy.host.storage import log_source_of, open_log, open_log_to_read
from deploy.operations.audit import backups
from deploy.operations.audit.audit_checkpoints import FORMAT, CheckpointContent, load, new_keys, signed
from deploy.operations.doctor.log import check_log
from deploy.settings.settings import load_settings
from eventstore.errors import FatalError, PermanentError
from projections.field_checks import quoted
from schemas.api import dpuplane_pb2 as pb
from tests.support.sample_log import write_sample_log


def test_a_key_with_a_password_is_refused_in_one_sentence(tmp_path: Path) -> None:
    key = tmp_path / "key"
    locked = serialization.BestAvailableEncryption(b"secret")
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key.write_bytes(Ed25519PrivateKey.generate().private_bytes(pem, pkcs8, locked))
    content = CheckpointContent(format=FORMAT, log_id="log", generation=1, made_at_ms=0, partitions={})
    with pytest.raises(PermanentError, match=r"in PEM, without a password$"):
        signed(content, key)


def test_a_signature_that_is_not_base64_is_refused_as_damage(tmp_path: Path) -> None:
    key, public, file = tmp_path / "key", tmp_path / "key.pub", tmp_path / "checkpoint"
    new_keys(key, public)
    content = CheckpointContent(format=FORMAT, log_id="log", generation=1, made_at_ms=0, partitions={})
    file.write_text(signed(content, key).decode().replace('"signature": "', '"signature": "é'))
    with pytest.raises(PermanentError, match="is not a valid checkpoint: "):
        load(file, public)


@pytest.mark.parametrize(
    "command",
    [
        ["replay", "--data", ""],
        ["demo", "--data", ""],
        ["certs", "init", "--dir", ""],
        ["backup", "--out", ""],
        ["restore", "--from", "copy", "--data", ""],
        ["agent", "--relay", "127.0.0.1:1", "--zone", "z", "--dpu", "d", "--state", ""],
    ],
    ids=" ".join,
)
def test_an_empty_folder_option_does_not_mean_the_working_directory(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(cli, command)
    assert (ran.exit_code, f"Invalid value for '{command[-2]}': must not be empty" in ran.stderr) == (2, True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("wait zone z --timeout nan", "'nan' must be from 0 to 86400 seconds"),
        ("nodes list --timeout nan", "'nan' must be from 0.1 to 30 seconds"),
        ("simulator --relay 127.0.0.1:1 --dpus-per-zone 1 --loss NaN", "nan is not a number"),
        ("certs issue operator ann --days nan", "nan is not a number"),
    ],
)
def test_nan_is_refused_for_number_options(command: str, said: str) -> None:
    words = command.split()
    ran = CliRunner().invoke(cli, words)
    assert (ran.exit_code, f"Invalid value for '{words[-2]}': {said}" in ran.stderr) == (2, True), ran.stderr


def test_invalid_zone_names_for_simulated_devices_are_refused() -> None:
    simulate = ["simulator", "--relay", "127.0.0.1:1", "--dpus-per-zone", "1", "--zones"]
    for zones, says in (("a,b c", "zones: 'b c' must be 1 to 63"), (",", "zones: ',' must name a zone")):
        ran = CliRunner().invoke(cli, [*simulate, zones])
        assert (ran.exit_code, says in ran.stderr) == (2, True), ran.output


def test_a_folder_of_simulated_bmcs_without_a_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    simulate = ["simulator", "--relay", "127.0.0.1:1", "--dpus-per-zone", "1", "--bmc-folder", str(tmp_path)]
    ran = CliRunner().invoke(cli, simulate)
    assert (ran.exit_code, f"Error: bmc-folder: {tmp_path}/ca.key cannot be used" in ran.stderr) == (2, True), (
        ran.output
    )


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--device-id", "zz", "'zz' must be four hexadecimal digits, such as a2dc"),
        ("--device-id", "a2dc1", "'a2dc1' must be four hexadecimal digits"),
        ("--bridge", "a-bridge-of-a-host", "'a-bridge-of-a-host' must be a name of 1 to 15 letters"),
        ("--bridge", "..", "'..' must be a name of 1 to 15 letters"),
    ],
)
def test_a_host_agent_refuses_what_no_host_can_have(option: str, value: str, says: str) -> None:
    ran = CliRunner().invoke(cli, ["host-agent", "--node", "n1", option, value, "--server", "127.0.0.1:1"])
    assert (ran.exit_code, f"Invalid value for '{option}': {says}" in ran.stderr) == (2, True), ran.output


def test_an_invalid_name_is_refused_with_its_option() -> None:
    ran = CliRunner().invoke(cli, ["freeze", "--all", "--as", "a b", "--server", "127.0.0.1:1"])
    assert (ran.exit_code, "Invalid value for '--as': 'a b' must be 1 to 128" in ran.stderr) == (2, True), ran.output


@pytest.mark.parametrize("host", ["", "not a host", "a:1", "bücher.example", "a..b", "http://a", "a" * 64, "-a"])
def test_a_certificate_has_only_valid_host_names(host: str, tmp_path: Path) -> None:
    issue = ["certs", "issue", "plane", "p", "--dir", str(tmp_path)]
    assert CliRunner().invoke(cli, ["certs", "init", "--dir", str(tmp_path)]).exit_code == 0
    ran = CliRunner().invoke(cli, [*issue, "--dns", "*.a-1.example", "--dns", "::1", "--dns", "10.0.0.1"])
    assert ran.exit_code == 0, ran.stderr
    (tmp_path / "plane@p.pem").unlink()
    ran = CliRunner().invoke(cli, [*issue, "--dns", host])
    assert (ran.exit_code, f"Invalid value for '--dns': {quoted(host)} must be a host's name" in ran.stderr) == (
        2,
        True,
    )
    assert not (tmp_path / "plane@p.pem").exists()


@pytest.mark.parametrize("place", [("--data", "plane"), ("--kafka", "127.0.0.1:9092")])
def test_an_upgrade_of_a_log_given_by_a_flag_is_refused(place: tuple[str, str]) -> None:
    ran = CliRunner().invoke(cli, ["upgrade", *place, "--server", "127.0.0.1:1"])
    assert (ran.exit_code, "--data and --kafka need --dry-run" in ran.stderr) == (2, True), ran.output


@pytest.mark.parametrize(
    ("option", "given", "says"),
    [
        ("--zone-size", "0", "0 is not in the range x>=1"),
        ("--clique-size", "0", "0 is not in the range 1<=x<=4096"),
        ("--zone-column", "", "must not be empty"),
        ("--address-pool", "", "must not be empty"),
    ],
)
def test_empty_import_options_are_refused(option: str, given: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "fleet.csv"
    file.write_text("name,zone,address\nn,z,10.0.0.1\n")
    ran = CliRunner().invoke(cli, ["import", str(file), option, given, "--server", "127.0.0.1:1"])
    assert (ran.exit_code, f"Invalid value for '{option}': {says}" in ran.stderr) == (2, True), ran.stderr


def test_a_file_that_does_not_fit_on_the_disk_leaves_no_part_of_it(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with (
        pytest.raises(PermanentError, match=r"file: cannot be written: No space left on device$"),
        atomic_write(tmp_path / "file"),
    ):
        raise full
    with pytest.raises(TimeoutError), atomic_write(tmp_path / "file"):  # an error while the content is read
        raise TimeoutError
    assert not list(tmp_path.iterdir())


def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    asyncio.run(write_sample_log(tmp_path / "plane", records=4))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "stdout").symlink_to(pipe)
    for out in (pipe, tmp_path / "stdout"):
        ran = CliRunner().invoke(cli, ["events", "export", "--data", str(tmp_path / "plane"), "--out", str(out)])
        assert (ran.exit_code, ran.stdout) == (1, "")
        assert ran.stderr == f"Error: {out}: must be a regular file or absent; the existing entry is not overwritten\n"
        assert out.is_fifo()


def test_a_backup_that_does_not_fit_on_the_disk_is_one_error_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def copy(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    asyncio.run(write_sample_log(tmp_path / "plane", records=4))
    monkeypatch.setattr(backups, "copy", copy)
    out = tmp_path / "copy"
    ran = CliRunner().invoke(cli, ["backup", "--data", str(tmp_path / "plane"), "--out", str(out)])
    assert (ran.exit_code, f"Error: out: {out} cannot be written: No space left on device\n" in ran.stderr) == (1, True)


async def test_a_folder_without_read_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exists(path: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    settings = load_settings({"data": str(tmp_path)}, None, {})
    monkeypatch.setattr(Path, "exists", exists)
    [finding] = await check_log(settings, random.Random(1))
    assert (finding.ok, finding.found) == (False, f"{tmp_path}: Permission denied")
    for opening in (
        open_log(settings, now_ms=lambda: 0, rng=random.Random(1)),
        open_log_to_read(log_source_of(settings), rng=random.Random(1)),
    ):
        with pytest.raises(FatalError, match=r"data: .* cannot be read: Permission denied$"):
            await opening.__aenter__()


def test_a_certificate_of_a_host_agent_names_the_namespace_of_the_host(tmp_path: Path) -> None:
    folder = ["--dir", str(tmp_path)]
    assert CliRunner().invoke(cli, ["certs", "init", *folder]).exit_code == 0
    ran = CliRunner().invoke(cli, ["certs", "issue", "host-agent", "dpf/node-1", *folder])
    assert (ran.exit_code, ran.stdout.endswith(": spiffe://dpuplane.local/host-agent/dpf/node-1\n")) == (0, True)
    assert (tmp_path / "host-agent@dpf@node-1.pem").exists()
    ran = CliRunner().invoke(cli, ["certs", "issue", "host-agent", "node-1", *folder])
    assert (ran.exit_code, "name: 'node-1' must be NAMESPACE/HOST for role host-agent" in ran.stderr) == (2, True)


def test_an_authority_that_cannot_be_written_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = CliRunner().invoke(cli, ["certs", "init", "--dir", str(tmp_path / "file" / "certs")])
    assert (ran.exit_code, ran.stderr) == (
        1,
        f"Error: {tmp_path / 'file' / 'certs'}: cannot be created: Not a directory\n",
    )
    assert CliRunner().invoke(cli, ["certs", "init", "--dir", str(tmp_path)]).exit_code == 0
    ran = CliRunner().invoke(cli, ["certs", "issue", "operator", "a" * 250, "--dir", str(tmp_path)])
    assert (ran.exit_code, ran.stderr.endswith(".key: cannot be written: File name too long\n")) == (1, True)


@pytest.mark.parametrize(
    ("action", "protocol", "ports", "is_through"),
    [("drop", "tcp", [(23, 23)], True), ("drop", "any", [], False), ("drop", "tcp", [], True)],
)
def test_a_node_is_allowed_by_rules_that_permit_some_of_its_traffic(
    action: str, protocol: str, ports: list[tuple[int, int]], is_through: bool
) -> None:
    first = pb.Rule(
        prefix="10.0.0.0/24",
        priority=5,
        action=action,
        protocol=protocol,
        ports=[pb.PortRange(first=first, last=last) for first, last in ports],
    )
    then = pb.Rule(prefix="10.0.0.0/24", priority=0, action="allow", protocol="any")
    node = pb.Node(addresses=["10.0.0.7", "10.0.1.7"])
    assert _let_through(node, [pb.Rules(rules=[first, then])]) == ({"10.0.0.7"} if is_through else set())


@pytest.mark.parametrize("content", [b"no certificate", b"-----BEGIN CERTIFICATE-----\n!\n"])
def test_a_file_that_is_not_a_certificate_is_refused_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    ran = CliRunner().invoke(cli, ["certs", "show", str(file)])
    assert (ran.exit_code, ran.stderr) == (1, f"Error: file: {file} must be a certificate in PEM or DER\n")


@pytest.mark.parametrize("option", ["--nodes", "--zones", "--cliques"])
def test_options_that_an_inventory_replaces_are_refused(option: str, tmp_path: Path) -> None:
    file = tmp_path / "fleet.csv"
    file.write_text("name,zone,address\nn,z,10.0.0.1\n")
    ran = CliRunner().invoke(cli, ["demo", "--inventory", str(file), option, "3"])
    assert (ran.exit_code, f"{option} must not be given with --inventory" in ran.stderr) == (2, True)


def test_a_hosts_file_that_is_not_text_is_refused_in_one_sentence(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_bytes(b"10.0.0.9 \xff\n")
    ran = CliRunner().invoke(cli, ["cliques", "config", "d", "c", "--merge", str(hosts)])
    assert ran.exit_code == 2
    assert f"{str(hosts)!r} must be text in UTF-8" in ran.stderr


def test_a_hosts_file_is_printed_whole_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("10.0.0.9 mine\n")
    answers = [pb.CliqueConfig(hosts=f"10.0.0.{last}\tcompute-domain-daemon-1\n") for last in (1, 2)]

    def asked(_client: Client, _method: str, _request: object) -> pb.CliqueConfig:
        if not answers:
            raise KeyboardInterrupt
        return answers.pop(0)

    monkeypatch.setattr(Client, "query", asked)
    monkeypatch.setattr("deploy.cli.shared.watch.EVERY_S", 0.0)
    with pytest.raises(SystemExit) as ended:  # a real stdout: whether its reader has gone is looked at
        cli.main(["cliques", "config", "d", "c", "--merge", str(hosts), "--watch", "--server", "127.0.0.1:1"])
    quoted = capfd.readouterr().out
    assert ended.value.code == 130
    assert quoted.count("10.0.0.9 mine\n") == quoted.count("compute-domain-daemon-1\n") == 2
