"""Secrets in files: only their user can read them, they survive, and no fault quotes them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from deploy.host.secret_folder import SecretFolder
from eventstore.errors import PermanentError


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]}


def test_a_secret_is_kept_replaced_and_removed(tmp_path: Path) -> None:
    folder = SecretFolder(tmp_path / "secrets")
    assert folder.read("dpf", "bmc") is None
    folder.keep("dpf", "bmc", "Opaque", {"password": b"\x00one"})
    folder.keep("dpf", "bmc", "Opaque", {"password": b"two"})
    folder.keep("other", "bmc", "Opaque", {})
    assert SecretFolder(folder.path).read("dpf", "bmc") == {"password": b"two"}
    assert modes(folder.path) == {0o700, 0o600}
    assert folder.remove("dpf", "bmc")
    assert not folder.remove("dpf", "bmc")
    assert (folder.read("dpf", "bmc"), folder.read("other", "bmc")) == (None, {})


def test_a_damaged_or_unwritable_file_is_a_fault_without_its_content(tmp_path: Path) -> None:
    folder = SecretFolder(tmp_path / "secrets")
    folder.keep("dpf", "bmc", "Opaque", {"password": b"hidden"})
    (folder.path / "dpf" / "bmc.json").write_text('{"data": "hidden"')
    with pytest.raises(PermanentError, match="is damaged") as raised:
        folder.read("dpf", "bmc")
    assert "hidden" not in str(raised.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(PermanentError, match="cannot be written"):
        SecretFolder(tmp_path / "file" / "secrets").keep("dpf", "bmc", "Opaque", {})
