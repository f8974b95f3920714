"""BFB files: their structure is checked however they arrive, and their versions are found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.images.bfb import BadImage, BfbReader, doca_version, made_bfb

VERSIONS = {"BF3_ATF": "v2.2", "BF3_BSP": "4.9.1", "BF3_UEFI": "4.9.1-13", "DOCA": "2.9.3008-1", "NIC": "32.43"}
FOUND = {"atf": "v2.2", "bsp": "4.9.1", "uefi": "4.9.1-13", "doca": "2.9.3"}


def read(data: bytes, size: int = 1 << 20) -> BfbReader:
    reader = BfbReader()
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size])
    reader.finish()
    return reader


images = st.lists(st.tuples(st.integers(1, 62), st.binary(max_size=100)), min_size=1, max_size=5)


@given(images, st.integers(1, 200))
def test_pieces_of_any_size_give_the_same(parts: list[tuple[int, bytes]], size: int) -> None:
    found = read(made_bfb(parts, VERSIONS), size)
    assert found.images == len(parts) + 1
    assert found.versions() == FOUND


@given(images, st.data())
def test_a_file_that_is_cut_off_is_refused(parts: list[tuple[int, bytes]], data: st.DataObject) -> None:
    whole = made_bfb(parts)
    ends = [len(made_bfb(parts[:count])) for count in range(1, len(parts))]
    cut = data.draw(st.integers(0, len(whole) - 1).filter(lambda at: at not in ends))
    with pytest.raises(BadImage, match="cut off"):
        read(whole[:cut])


@given(images.filter(lambda parts: any(content for _, content in parts)), st.data())
def test_a_changed_byte_of_an_image_is_found(parts: list[tuple[int, bytes]], data: st.DataObject) -> None:
    whole = bytearray(made_bfb(parts))
    number = data.draw(st.sampled_from([at for at, (_, content) in enumerate(parts) if content]))
    begin = len(made_bfb(parts[:number])) + 24
    at = data.draw(st.integers(begin, begin + len(parts[number][1]) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BadImage, match=f"image {number + 1} of the BFB does not have its checksum"):
        read(bytes(whole))


@pytest.mark.parametrize("data", [b"<html>404</html>", b"B", b"\0" * 100, b"Bf\x02\x14" + b"\0" * 20])
def test_another_file_is_no_bfb_at_its_first_byte_that_differs(data: bytes) -> None:
    with pytest.raises(BadImage, match=r"not a BFB|cut off"):
        read(data)


def test_an_unknown_version_of_the_format_is_refused() -> None:
    data = bytearray(made_bfb([(1, b"x")]))
    data[4] = 2
    with pytest.raises(BadImage, match="version that is not supported"):
        read(bytes(data))


def test_bytes_after_the_last_image_are_allowed() -> None:
    assert read(made_bfb([(62, b"kernel")]) + b"ubuntu_PASSWORD='x'\n").images == 1


def test_a_file_without_a_readable_inventory_has_no_versions() -> None:
    assert read(made_bfb([(62, b"kernel")])).versions() == {}
    broken = b'\n"//": "This JSON represents nothing",\n"Members": [1],\n"Members@odata.count": 1\n'
    assert read(made_bfb([(63, broken)])).versions() == {}
    endless = b'\n"//": "This JSON represents nothing",\n' + b"x" * 1_000_000
    assert read(made_bfb([(63, endless)]), 1000).versions() == {}


@pytest.mark.parametrize(
    ("version", "documented"), [("3.0.0058", "3.0.0"), ("2.9.3008-x", "2.9.3"), ("x", ""), ("", "")]
)
def test_the_version_of_doca_is_the_documented_one(version: str, documented: str) -> None:
    assert doca_version(version) == documented
