"""The images that objects want: phases in the log, retries without end, and what several replicas say."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drivers.images.images import Images
from drivers.images.pldm import made_package
from projections.resources.image_files import BMC_FIRMWARE, SHA256, files_of
from projections.resources.kinds import BLUEFIELD_SOFTWARE
from schemas.events import ResourcesObserved
from tests.support.derivations import row
from tests.support.image_planes import CONTENT, PARTITION, SETTINGS, image_plane, key
from tests.support.image_server import ServedFile


async def test_an_image_is_downloaded_and_reported(tmp_path: Path) -> None:
    async with image_plane(tmp_path) as (made, server, session):
        images = await made.process("r1", session)
        server.files["a.bfb"] = ServedFile(CONTENT)
        await made.apply("image", {"url": server.url("a.bfb")})
        assert await made.until_phase("image", "Ready") == {
            "ready": True,
            "phase": "Ready",
            "message": "",
            "size": len(CONTENT),
            "fileName": "dpf-image.bfb",
            "sha256": hashlib.sha256(CONTENT).hexdigest(),
            "versions": {"doca": "2.9.1", "bsp": "4.9"},
        }
        found = images.file_of(key("image"))
        assert found is not None
        assert (tmp_path / "r1" / "sha256" / found.kept.sha256).read_bytes() == CONTENT
        assert images.downloads == {"done": 1}
        records = made.count(PARTITION, ResourcesObserved)
        await asyncio.sleep(0.5)
        assert made.count(PARTITION, ResourcesObserved) == records <= 3, "nothing is reported twice"


async def test_a_wrong_url_is_a_condition_at_once_and_right_again_later(tmp_path: Path) -> None:
    async with image_plane(tmp_path) as (made, server, session):
        await made.process("r1", session)
        await made.apply("image", {"url": server.url("a.bfb")})
        await made.until_phase("image", "Error")
        assert made.seen("image")["message"] == f"{server.url('a.bfb')} returned HTTP status 404"
        records = made.count(PARTITION, ResourcesObserved)
        requests = len(server.requests)
        await made.until(lambda: len(server.requests) > requests + 3, timeout_s=60)
        assert made.count(PARTITION, ResourcesObserved) == records, "a retry that fails again says nothing new"
        server.files["a.bfb"] = ServedFile(b"<html>")
        await made.until(lambda: "is not a BFB" in made.seen("image").get("message", ""), timeout_s=60)
        server.files["a.bfb"] = ServedFile(CONTENT, breaks=[3_000, 30_000])
        await made.until_phase("image", "Ready")


async def test_a_fault_of_the_spec_is_reported_without_a_request(tmp_path: Path) -> None:
    async with image_plane(tmp_path) as (made, server, session):
        await made.process("r1", session)
        await made.apply("image", {"url": f"{server.url('a.bfb')}#sha256=1"})
        assert (await made.until_phase("image", "Error"))["message"] == (
            "spec.url: 'sha256=1' after # must be sha256= and 64 hexadecimal digits"
        )
        assert server.requests == []


async def test_an_image_that_is_deleted_is_forgotten_and_its_content_collected(tmp_path: Path) -> None:
    settings = SETTINGS._replace(collect_s=0.05, grace_s=-1e9)  # the clock of the plane is years behind the disk's
    async with image_plane(tmp_path) as (made, server, session):
        images = await made.process("r1", session, settings=settings)
        server.files["a.bfb"] = ServedFile(CONTENT)
        await made.apply("image", {"url": server.url("a.bfb")})
        await made.until_phase("image", "Ready")
        await made.delete("image")
        await made.until(lambda: made.seen("image") == {}, timeout_s=60)
        await made.until(lambda: [*(tmp_path / "r1" / "sha256").iterdir()] == [], timeout_s=60)
        assert images.images == {}
        assert [*(tmp_path / "r1" / "objects").iterdir()] == []


async def test_a_restart_downloads_nothing_again_and_says_nothing(tmp_path: Path) -> None:
    async with image_plane(tmp_path) as (made, server, session):
        await made.process("r1", session)
        server.files["a.bfb"] = ServedFile(CONTENT)
        await made.apply("image", {"url": server.url("a.bfb")})
        await made.until_phase("image", "Ready")
        records, requests = made.count(PARTITION, ResourcesObserved), len(server.requests)
        made.kill("r1")
        images = await made.process("r1", session)
        await made.until(lambda: images.file_of(key("image")) is not None, timeout_s=60)
        await asyncio.sleep(0.5)
        assert (made.count(PARTITION, ResourcesObserved), len(server.requests)) == (records, requests)


async def test_a_download_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with image_plane(tmp_path) as (made, server, session):
        await made.process("r1", session)
        server.files["a.bfb"] = ServedFile(CONTENT, stalls_after=40_000)
        await made.apply("image", {"url": server.url("a.bfb")})
        folder = tmp_path / "r1"
        await made.until(lambda: 40_000 in {each.stat().st_size for each in folder.rglob("*")}, timeout_s=60)
        made.kill("r1")
        await asyncio.sleep(0.05)
        server.files["a.bfb"].stalls_after = None
        await made.process("r1", session)
        await made.until_phase("image", "Ready")
        assert server.requests[-1][1] == "bytes=40000-"


async def test_content_that_is_lost_or_damaged_is_downloaded_again(tmp_path: Path) -> None:
    async with image_plane(tmp_path) as (made, server, session):
        images = await made.process("r1", session)
        server.files["a.bfb"] = ServedFile(CONTENT)
        await made.apply("image", {"url": server.url("a.bfb")})
        await made.until_phase("image", "Ready")
        found = images.file_of(key("image"))
        assert found is not None
        path = tmp_path / "r1" / "sha256" / found.kept.sha256
        path.chmod(0o600)
        path.write_bytes(b"damaged")
        images.lost_content(found.kept.sha256)
        await made.until(lambda: path.exists() and path.read_bytes() == CONTENT, timeout_s=60)
        await made.until(lambda: images.file_of(key("image")) is not None, timeout_s=60)


async def test_two_objects_with_one_file_keep_it_once(tmp_path: Path) -> None:
    async with image_plane(tmp_path) as (made, server, session):
        await made.process("r1", session)
        server.files["a.bfb"] = ServedFile(CONTENT)
        for name in ("one", "two"):
            await made.apply(name, {"url": server.url("a.bfb")})
        await made.until_phase("one", "Ready")
        await made.until_phase("two", "Ready")
        assert len([*(tmp_path / "r1" / "sha256").iterdir()]) == 1


async def test_the_replica_of_the_lowest_rank_speaks_and_the_next_one_after_it(tmp_path: Path) -> None:
    async with image_plane(tmp_path) as (made, server, session):
        await made.process("r1", session)
        second = await made.process("r2", session)
        server.files["a.bfb"] = ServedFile(CONTENT)
        await made.apply("image", {"url": server.url("a.bfb")})
        await made.until_phase("image", "Ready")
        await made.until(lambda: second.file_of(key("image")) is not None, timeout_s=60)
        assert {made.state.observed.rows[key("image")].observer} == {"images/r1"}
        records = made.count(PARTITION, ResourcesObserved)
        made.kill("r1")
        await asyncio.sleep(0.3)
        assert made.count(PARTITION, ResourcesObserved) == records, "the same phase needs no report"
        await made.apply("other", {"url": server.url("b.bfb")})
        await made.until_phase("other", "Error")
        assert made.state.observed.rows[key("other")].observer == "images/r2"


async def test_replicas_with_a_shared_folder_download_once(tmp_path: Path) -> None:
    async with image_plane(tmp_path) as (made, server, session):
        both = [await made.process(name, session, folder="shared") for name in ("r1", "r2")]
        server.files["a.bfb"] = ServedFile(CONTENT)
        await made.apply("image", {"url": server.url("a.bfb")})
        for images in both:
            await made.until(_has(images), timeout_s=60)
        assert len(server.requests) == 1


def _has(images: Images) -> Callable[[], bool]:
    return lambda: images.file_of(key("image")) is not None


async def test_all_files_of_a_bluefield_software_are_downloaded(tmp_path: Path) -> None:
    async with image_plane(tmp_path) as (made, server, session):
        await made.process("r1", session)
        server.files |= {"os.iso": ServedFile(b"iso" * 1000), "fw.bin": ServedFile(b"fw" * 10)}
        spec = {"osIso": server.url("os.iso"), "pldmFwBundle": server.url("fw.bin")}
        await made.apply("software", spec, kind=BLUEFIELD_SOFTWARE)
        found = await made.until_phase("software", "Ready", kind=BLUEFIELD_SOFTWARE)
        assert found["downloadedComponents"] == {
            "osIso": "dpf-software-osIso",
            "pldmFwBundle": "dpf-software-pldmFwBundle",
        }
        assert found["size"] == 3020


async def test_the_firmware_of_each_psid_is_downloaded(tmp_path: Path) -> None:
    async with image_plane(tmp_path) as (made, server, session):
        await made.process("r1", session)
        server.files |= {f"{name}.bin": ServedFile(name.encode()) for name in ("os", "a", "bb")}
        bundles = {"MT_0000001665": server.url("a.bin"), "MT_0000000884": server.url("bb.bin")}
        await made.apply("software", {"osIso": server.url("os.bin"), "pldmFwBundle": bundles}, kind=BLUEFIELD_SOFTWARE)
        found = await made.until_phase("software", "Ready", kind=BLUEFIELD_SOFTWARE)
        assert found["downloadedComponents"] == {
            "osIso": "dpf-software-osIso",
            "pldmFwBundle": {psid: f"dpf-software-pldmFwBundle-{psid}" for psid in bundles},
        }
        assert found["size"] == 5


async def test_a_bfb_may_name_firmware_of_bmcs(tmp_path: Path) -> None:
    async with image_plane(tmp_path) as (made, server, session):
        images = await made.process("r1", session)
        package = made_package("26.10", [(1, "BF-26.10")])
        server.files |= {"a.bfb": ServedFile(CONTENT), "bmc.fwpkg": ServedFile(package)}
        annotations = {BMC_FIRMWARE: server.url("bmc.fwpkg")}
        await made.apply("image", {"url": server.url("a.bfb")}, annotations=annotations)
        found = await made.until_phase("image", "Ready")
        assert (found["fileName"], found["versions"]["bsp"]) == ("dpf-image.bfb", "4.9")
        ready = images.images[key("image")].ready
        assert [*ready] == ["url", BMC_FIRMWARE]
        assert ready[BMC_FIRMWARE].kept.versions == {"package": "26.10", "component-0-0x0001": "BF-26.10"}


async def test_the_version_of_a_bundle_is_reported(tmp_path: Path) -> None:
    async with image_plane(tmp_path) as (made, server, session):
        await made.process("r1", session)
        server.files |= {"os.iso": ServedFile(b"iso"), "fw.bin": ServedFile(made_package("26.10", [(1, "BF-26.10")]))}
        spec = {"osIso": server.url("os.iso"), "pldmFwBundle": server.url("fw.bin")}
        await made.apply("software", spec, kind=BLUEFIELD_SOFTWARE)
        found = await made.until_phase("software", "Ready", kind=BLUEFIELD_SOFTWARE)
        assert found["versions"] == {"fwBundleVersion": "26.10"}


async def test_progress_is_reported_now_and_then(tmp_path: Path) -> None:
    async with image_plane(tmp_path) as (made, server, session):
        await made.process("r1", session)
        server.files["a.bfb"] = ServedFile(CONTENT, stalls_after=50_000)
        await made.apply("image", {"url": server.url("a.bfb")})
        found = await made.until_phase("image", "Downloading")
        assert found["message"].endswith("% of 0.1 MB received")


@pytest.mark.parametrize(
    ("spec", "annotations", "fault"),
    [
        ({"url": "ftp://x/a.bfb"}, {}, "spec.url: 'ftp://x/a.bfb' must be a URL that begins with http:// or https://"),
        (
            {"url": "http://x/a"},
            {BMC_FIRMWARE: "ftp://x"},
            f"metadata.annotations.{BMC_FIRMWARE}: 'ftp://x' must be a URL that begins with http:// or https://",
        ),
        ({"url": "http://x/a"}, {SHA256: "7"}, f"metadata.annotations[{SHA256}]: '7' must be 64 hexadecimal digits"),
        (
            {"url": f"http://x/a#sha256={'1' * 64}"},
            {SHA256: "2" * 64},
            f"metadata.annotations[{SHA256}]: differs from the checksum in spec.url",
        ),
        ({"url": "http://x/a", "fileName": "-rf.bfb"}, {}, None),
        ({"url": "http://x/a", "fileName": "../x.bfb"}, {}, None),
        ({"url": 7}, {}, "spec: Expected `str`, got `int` - at `$.url`"),
    ],
)
def test_a_spec_that_names_no_file_is_a_fault(
    spec: dict[str, Any], annotations: dict[str, str], fault: str | None
) -> None:
    found = files_of(key("image"), row(spec, annotations=annotations))
    assert isinstance(found, str)
    assert found == fault or (fault is None and found.startswith("spec.fileName: "))


@pytest.mark.parametrize("psid", ["", "../x", "a b"])
def test_a_bundle_needs_a_psid_that_may_be_in_a_file_name(psid: str) -> None:
    spec = {"osIso": "http://x/os", "pldmFwBundle": {psid: "http://x/a"}}
    found = files_of(key("software", BLUEFIELD_SOFTWARE), row(spec))
    assert isinstance(found, str) and found.startswith("spec.pldmFwBundle: ")
