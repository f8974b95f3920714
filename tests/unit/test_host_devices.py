"""The agent of a host finds DPUs in sysfs, and what it cannot know stays empty."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.host_agent.boot import Boot, read_boot
from deploy.host_agent.devices import find_devices, rshim_of, vpd_fields
from deploy.host_agent.features import features_text, write_features
from eventstore.errors import FatalError
from projections.resources.host_tasks import FoundDevice
from tests.support.host_trees import host_tree, vpd


def test_dpus_are_found_once_per_card_with_serial_psid_interface_and_rshim(tmp_path: Path) -> None:
    tree = host_tree(tmp_path)
    tree.other("0000:01:00.0")
    tree.other("0000:02:00.0", "0x15b3", "0x101d")  # a network card of the same vendor, without a DPU
    tree.card("0000:83:00", "MT2438XZ025W", functions=1)
    tree.card("0000:03:00", "MT2438XZ025V")
    tree.rshim("rshim0", "0000:83:00")
    tree.rshim("rshim1", "0000:03:00")
    assert find_devices(tree.sys, tree.dev) == [
        FoundDevice("0000:03:00.0", "a2dc", "MT2438XZ025V", "MT_0000000884", "p0_03", 2, "rshim1"),
        FoundDevice("0000:83:00.0", "a2dc", "MT2438XZ025W", "MT_0000000884", "p0_83", 1, "rshim0"),
    ]
    assert find_devices(tree.sys, tree.dev, ["101d"]) == [FoundDevice("0000:02:00.0", "101d")]


def test_a_card_without_vpd_driver_or_rshim_is_found_without_them(tmp_path: Path) -> None:
    tree = host_tree(tmp_path)
    tree.card("0000:03:00", "", psid="", device="0xa2d6")
    assert find_devices(tree.sys, tree.dev) == [FoundDevice("0000:03:00.0", "a2d6", pf0_name="p0_03", pf_count=2)]
    assert find_devices(tmp_path / "none", tmp_path / "none") == []


def test_virtual_functions_are_not_counted(tmp_path: Path) -> None:
    tree = host_tree(tmp_path)
    tree.card("0000:03:00", "S", functions=1)
    tree.card("0000:04:00", "T", functions=3)
    for number in (1, 2):
        (tree.sys / f"bus/pci/devices/0000:04:00.{number}/physfn").touch()
    assert [each.pf_count for each in find_devices(tree.sys, tree.dev)] == [1, 1]


def test_an_rshim_belongs_to_a_card_only_at_its_whole_slot(tmp_path: Path) -> None:
    tree = host_tree(tmp_path)
    tree.rshim("rshim0", "0000:13:00")
    tree.rshim("rshim_backup", "0000:03:00")
    assert rshim_of(tree.dev, "0000:03:00") == ""
    tree.rshim("rshim7", "0000:03:00")
    assert rshim_of(tree.dev, "0000:03:00") == "rshim7"


def test_the_fields_of_vital_product_data() -> None:
    assert vpd_fields(vpd(PN="900", SN="MT1  ")) == {"PN": "900", "SN": "MT1", "RV": ""}
    assert vpd_fields(b"") == {}


@given(st.binary(max_size=80), st.integers(0, 60))
def test_damaged_vital_product_data_is_no_error(noise: bytes, cut: int) -> None:
    whole = vpd(SN="MT1", PN="900")
    for data in (noise, whole[:cut] + noise, whole[cut:]):
        assert all(isinstance(text, str) for text in vpd_fields(data).values())


def test_the_boot_is_read_from_procfs(tmp_path: Path) -> None:
    tree = host_tree(tmp_path)
    tree.boot("7c1e", 3.25)
    assert read_boot(tree.proc) == Boot("7c1e", 3_250)
    (tree.proc / "uptime").write_text("")
    with pytest.raises(FatalError, match=r"^proc: the boot id and uptime cannot be read from "):
        read_boot(tree.proc)


def test_the_feature_file_has_the_lines_of_dpf_and_is_written_only_when_they_change(tmp_path: Path) -> None:
    devices = [
        FoundDevice("0000:03:00.0", psid="MT_0000000884", pf0_name="ens1f0np0"),
        FoundDevice("0000:83:00.0"),
    ]
    text = features_text(devices, has_bridge=True)
    assert text.splitlines() == [
        "dpu-0-pci-address=0000-03-00",
        "dpu-0-ps-id=MT_0000000884",
        "dpu-0-pf0-name=ens1f0np0",
        "dpu-1-pci-address=0000-83-00",
        "dpu-enabled=true",
        "dpu-oob-bridge-configured=",
    ]
    assert features_text([], has_bridge=False) == ""
    path = tmp_path / "dpu"
    write_features(path, text)
    before = path.stat().st_ino
    write_features(path, text)
    assert (path.read_text(), path.stat().st_ino) == (text, before)
    write_features(path, "")
    assert path.read_text() == ""
