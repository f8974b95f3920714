"""Each fault that a machine can have: `doctor` names it and gives advice."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.x509.oid import NameOID

from deploy.composition.topics import TOPICS
from deploy.host.storage import LOG_FOLDER
from deploy.operations.doctor.host import (
    Finding,
    check_certificates,
    check_folder,
    check_host,
    check_ports,
    check_program,
    is_running,
)
from deploy.operations.doctor.log import check_clock, check_replica, check_topic
from deploy.settings.settings import Settings
from eventstore.kafka.admin import Topic
from eventstore.kafka.topics import settings_of
from eventstore.log import Partition
from eventstore.replicas.beacons import Beacon
from eventstore.replicas.status import PartitionStatus

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def wrong(findings: Iterable[Finding]) -> list[Finding]:
    """The failed findings. Checks that each has advice, and that no other finding has."""
    found = list(findings)
    assert all(bool(finding.advice) != finding.ok for finding in found)
    return [finding for finding in found if not finding.ok]


def test_this_program_has_no_findings() -> None:
    assert not wrong(check_program())


def test_a_folder_that_exists_or_can_be_created_passes(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert not wrong(check_folder("data", tmp_path))
    assert not wrong(check_folder("data", tmp_path / "some" / "more"))
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_folder_is_a_finding(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    (hidden / "data").mkdir(parents=True)
    hidden.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        [finding] = wrong(check_folder("data", hidden / "data"))
    finally:
        os.seteuid(user)
        hidden.chmod(0o700)
    assert "is not readable by user" in finding.found


def test_a_plane_is_running_if_its_log_is_locked_and_the_check_takes_no_lock(tmp_path: Path) -> None:
    at = settings(tmp_path)
    assert not is_running(at)
    lock = tmp_path / LOG_FOLDER / "LOCK"
    lock.parent.mkdir()
    lock.touch(0o444)
    assert not is_running(at)
    holds = (
        f"import fcntl; held = open({str(lock)!r}, 'r+b'); fcntl.lockf(held, fcntl.LOCK_EX); print(flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as plane:
        assert plane.stdout is not None and plane.stdout.readline()
        assert is_running(at)
        plane.communicate(b"\n")
    assert not is_running(at)


def test_a_file_or_a_folder_writable_by_all_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    [finding] = wrong(check_folder("data", tmp_path / "file" / "data"))
    assert "is not a folder" in finding.found
    tmp_path.chmod(0o777)
    [finding] = wrong(check_folder("data", tmp_path))
    assert (finding.check, finding.advice) == ("data permissions", f"chmod 700 {tmp_path}")


def settings(tmp_path: Path, **more: object) -> Settings:
    free = dict.fromkeys(("listen", "http", "agents"), "127.0.0.1:0")
    return Settings.model_validate({"data": tmp_path, **free, **more})


def test_a_port_in_use_is_a_finding_unless_the_plane_runs(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        at = settings(tmp_path, http=f"127.0.0.1:{taken.getsockname()[1]}")
        [finding] = wrong(check_ports(at, running=False))
        assert (finding.check, "already in use" in finding.found) == ("http", True)
        assert not wrong(check_ports(at, running=True))
    assert not wrong(check_ports(settings(tmp_path), running=False))


def certificate(path: Path, *, begin: timedelta, end: timedelta) -> Path:
    key, name = generate_private_key(SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW + begin, NOW + end).sign(key, hashes.SHA256())
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.parametrize(
    ("begin", "end", "said"),
    [(-30, 30, ""), (-30, 1, "until 2026-11-22"), (-30, -1, "it has expired"), (1, 30, "but only from 2026-11-22")],
)
def test_certificates_are_checked(tmp_path: Path, begin: int, end: int, said: str) -> None:
    (tmp_path / "password").write_text("secret")
    at = settings(
        tmp_path,
        data=None,
        kafka="broker:9092",
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="SCRAM-SHA-512",
        kafka_sasl_username="api",
        kafka_sasl_password_file=tmp_path / "password",
        kafka_ca_file=certificate(tmp_path / "ca.pem", begin=timedelta(days=begin), end=timedelta(days=end)),
    )
    findings = wrong(check_certificates(at, NOW))
    assert [said in finding.found for finding in findings] == ([True] if said else [])
    (tmp_path / "ca.pem").write_text("no certificate")
    assert {finding.check for finding in wrong(check_certificates(at, NOW))} == {"kafka access", "kafka_ca_file"}


@pytest.mark.parametrize(
    ("lines", "said"),
    [(b"0a:1b  # operator/ann\n", ""), (b"0a1b\nnonsense\n", "line 2: 'nonsense' must be"), (None, "No such file")],
)
def test_a_list_of_revoked_certificates_must_be_valid(tmp_path: Path, lines: bytes | None, said: str) -> None:
    listed, pem = tmp_path / "revoked.txt", tmp_path / "no.pem"
    if lines is not None:
        listed.write_bytes(lines)
    at = settings(tmp_path, tls_revoked=listed, tls_cert=pem, tls_key=pem, tls_client_ca=pem)
    [found] = [finding for finding in check_host(at, 0) if finding.check == "tls_revoked"]
    assert [said in finding.found for finding in wrong([found])] == ([True] if said else [])


def zones_topic(*, partitions: int = 3, replicas: int = 3, leader: int = 1) -> Topic:
    return Topic("plane.zones", bytes(16), replicas, dict.fromkeys(range(partitions), leader))


GOOD = {setting.name: setting.value for setting in settings_of(TOPICS["zones"], 3)}


@pytest.mark.parametrize(
    ("topic", "changed", "said"),
    [
        (zones_topic(), {}, ""),
        (zones_topic(partitions=2), {}, "2 partitions"),
        (zones_topic(replicas=1), {"min.insync.replicas": "1"}, "1 copies"),
        (zones_topic(leader=-1), {}, "a partition has no leader"),
        *((zones_topic(), {name: "other"}, f"{name}=other") for name in GOOD),
    ],
)
def test_each_wrong_setting_of_a_topic_is_a_finding(topic: Topic, changed: dict[str, str], said: str) -> None:
    found = wrong(check_topic("zones", topic, {**GOOD, **changed}, 3, 3))
    assert [finding.found for finding in found] == ([said] if said else [])
    if "=" in said:
        assert "kafka-configs.sh --alter --topic plane.zones --add-config" in found[0].advice


def beacon(*, halted: str = "", zones: int = 1) -> Beacon:
    part = PartitionStatus(Partition("zones", 0), 5, 5, "", "", (), 1, halted, 0, 0, 0)
    return Beacon(replica="r", roles=[], addresses={}, version="1", supports={"zones": [zones]}, partitions=[part])


def test_a_halted_replica_or_one_with_other_fold_versions_is_a_finding() -> None:
    ours = {"zones": {1}}
    assert not wrong([check_replica("r", beacon(), ours)])
    assert "zones/0: broken" in wrong([check_replica("r", beacon(halted="broken"), ours)])[0].found
    assert "folds zones by [2], this program by [1]" in wrong([check_replica("r", beacon(zones=2), ours)])[0].found


def test_a_clock_behind_the_log_is_a_finding() -> None:
    assert not wrong([check_clock("clock", 900), check_clock("clock", -(10**9))])
    assert "60.0 s behind the last record" in wrong([check_clock("clock", 60_000)])[0].found
