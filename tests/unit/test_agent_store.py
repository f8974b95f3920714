"""The table store of an agent loads the last saved table whole, or an empty one."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivers.agents.store import FileTableStore
from projections.rules.device_table import EMPTY_TABLE, DeviceTable, digest_of
from tests.support.rule_source import ALLOW, DROP, packed

RULES = {ALLOW: packed("10.0.0.0/8", "2001:db8::/32"), DROP: packed("10.1.2.3")}
TABLE = DeviceTable(2, 17, digest_of(RULES), RULES)


def test_a_saved_table_is_loaded(tmp_path: Path) -> None:
    store = FileTableStore(tmp_path / "table", "d1", "z")
    assert store.load() == EMPTY_TABLE
    store.save(TABLE)
    store.save(TABLE._replace(version=18))
    assert FileTableStore(tmp_path / "table", "d1", "z").load() == TABLE._replace(version=18)
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


def test_the_table_of_another_dpu_is_not_loaded(tmp_path: Path) -> None:
    FileTableStore(tmp_path / "table", "d1", "z").save(TABLE)
    assert FileTableStore(tmp_path / "table", "d2", "z").load() == EMPTY_TABLE


def test_the_table_of_another_zone_is_not_loaded(tmp_path: Path) -> None:
    """Versions of two zones cannot be compared."""
    FileTableStore(tmp_path / "table", "d1", "z").save(TABLE)
    assert FileTableStore(tmp_path / "table", "d1", "y").load() == EMPTY_TABLE


def test_a_torn_or_damaged_file_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "table"
    store = FileTableStore(path, "d1", "z")
    store.save(TABLE)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at])
        assert store.load() == EMPTY_TABLE
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :])
        assert store.load() == EMPTY_TABLE


def test_a_failed_save_does_not_replace_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileTableStore(tmp_path / "table", "d1", "z")
    store.save(TABLE)

    def no_space(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        store.save(TABLE._replace(version=99))
    assert store.load() == TABLE
