"""What the command line says of files that are not what it was told they are, and of options that they rule out."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from deploy.audit.checkpoints import FORMAT, Statement, signed
from deploy.cli import cli
from eventstore.errors import PermanentError


def test_a_key_with_a_password_is_refused_without_a_librarys_words(tmp_path: Path) -> None:
    key = tmp_path / "key"
    locked = serialization.BestAvailableEncryption(b"secret")
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key.write_bytes(Ed25519PrivateKey.generate().private_bytes(pem, pkcs8, locked))
    said = Statement(format=FORMAT, log_id="log", generation=1, made_at_ms=0, partitions={})
    with pytest.raises(PermanentError, match=r"in PEM, without a password$"):
        signed(said, key)


@pytest.mark.parametrize("content", [b"no certificate", b"-----BEGIN CERTIFICATE-----\n!\n"])
def test_what_is_no_certificate_is_refused_in_one_sentence_of_ours(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    ran = CliRunner().invoke(cli, ["certs", "show", str(file)])
    assert (ran.exit_code, ran.stderr) == (1, f"Error: file: {file} must be a certificate in PEM or DER\n")


@pytest.mark.parametrize("option", ["--nodes", "--zones", "--cliques"])
def test_what_an_inventory_says_cannot_be_said_beside_it(option: str, tmp_path: Path) -> None:
    file = tmp_path / "fleet.csv"
    file.write_text("name,zone,address\nn,z,10.0.0.1\n")
    ran = CliRunner().invoke(cli, ["demo", "--inventory", str(file), option, "3"])
    assert (ran.exit_code, f"{option} goes without --inventory" in ran.stderr) == (2, True)
