"""An agent's saved network document: whole, or ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivers.agents.network_store import NO_NETWORK, FileNetworkStore, HeldNetwork

NETWORK = HeldNetwork(2, 7, bytes(range(16)), b'{"bridge":"br-sfc"}')


def store(path: Path, dpu: str = "d", zone: str = "z") -> FileNetworkStore:
    return FileNetworkStore(path / "d.network", dpu, zone)


def test_a_saved_document_is_read_back_by_the_next_process(tmp_path: Path) -> None:
    assert store(tmp_path).load() == NO_NETWORK
    store(tmp_path).save(NETWORK)
    store(tmp_path).save(NETWORK._replace(version=8))
    assert store(tmp_path).load() == NETWORK._replace(version=8)
    assert [each.name for each in tmp_path.iterdir()] == ["d.network"]


@pytest.mark.parametrize("kept", [0, 10, 40])
def test_a_torn_file_is_ignored(tmp_path: Path, kept: int) -> None:
    store(tmp_path).save(NETWORK)
    path = tmp_path / "d.network"
    path.write_bytes(path.read_bytes()[:kept])
    assert store(tmp_path).load() == NO_NETWORK


def test_a_file_of_another_dpu_or_zone_is_ignored(tmp_path: Path) -> None:
    store(tmp_path).save(NETWORK)
    assert store(tmp_path, dpu="other").load() == store(tmp_path, zone="other").load() == NO_NETWORK
