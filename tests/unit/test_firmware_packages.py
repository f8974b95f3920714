"""Firmware packages of PLDM: their versions are read from the header, and other files have none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.images.pldm import PACKAGE, PackageReader, made_package

COMPONENTS = [(0xFF00, "BF-26.10"), (0x10, "4.9.0")]
MADE = made_package("bundle-26.10", COMPONENTS, b"firmware" * 1_000)
VERSIONS = {PACKAGE: "bundle-26.10", "component-0-0xff00": "BF-26.10", "component-1-0x0010": "4.9.0"}


def versions(data: bytes, piece: int = 1_000_000) -> dict[str, str]:
    reader = PackageReader()
    for at in range(0, len(data), piece):
        reader.feed(data[at : at + piece])
    reader.finish()
    return reader.versions()


@pytest.mark.parametrize("piece", [1, 7, 1_000_000])
def test_the_versions_of_a_package_are_read_however_it_arrives(piece: int) -> None:
    assert versions(MADE, piece) == VERSIONS


@given(st.integers(0, 120), st.integers(1, 255))
def test_a_damaged_header_has_no_versions_but_those_that_were_written(at: int, change: int) -> None:
    damaged = bytearray(MADE)
    damaged[at] ^= change
    assert versions(bytes(damaged)) in ({}, VERSIONS)


@given(st.binary(max_size=300), st.integers(0, 130))
def test_any_other_file_has_no_versions(data: bytes, cut: int) -> None:
    assert versions(data) == {}
    assert versions(MADE[:cut] + data) in ({}, VERSIONS)


def test_a_version_that_could_not_be_shown_is_left_out() -> None:
    assert versions(made_package("a\nb", [(1, "1.0"), (2, "x" * 65)])) == {"component-0-0x0001": "1.0"}
