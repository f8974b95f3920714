"""Downloads from real HTTP servers that break, lie, change the file or stall: what arrives is the file or nothing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import aiohttp
import pytest
from yarl import URL

from drivers.images.bfb import BadImage, made_bfb
from drivers.images.content_store import ContentStore
from drivers.images.download import Download, Downloaded, DownloadFailed, DownloadSettings, Request
from drivers.images.offload import in_place
from drivers.images.sources import AllowedHosts, CheckedResolver, RefusedAddress, parse_hosts
from tests.support.image_server import ImageServer, ServedFile, content_of, image_server

CONTENT = made_bfb([(1, content_of(150_000)), (62, content_of(90_001, 1))], {"DOCA": "2.9.1001"})
SETTINGS = DownloadSettings(block_bytes=10_000)
LOOPBACK = AllowedHosts(["127.0.0.1"])


class Downloads:
    """Downloads of one object to a folder."""

    def __init__(self, session: aiohttp.ClientSession, store: ContentStore) -> None:
        self.store = store
        self.session = session
        self.settings = SETTINGS
        self.received = 0

    def _count(self, count: int) -> None:
        self.received += count

    async def attempt(
        self, url: str, *, sha256: str = "", is_bfb: bool = True, allowed: AllowedHosts = LOOPBACK
    ) -> Downloaded:
        partial = self.store.partial("key", url)
        assert partial is not None
        download = Download(
            self.session, self.store, allowed, in_place, count_bytes=self._count, settings=self.settings
        )
        try:
            return await download.run(Request(URL(url), sha256, is_bfb), partial)
        finally:
            partial.close()

    async def until_done(self, url: str, attempts: int = 200) -> Downloaded:
        for _ in range(attempts):
            try:
                return await self.attempt(url)
            except (DownloadFailed, BadImage):
                continue
        raise AssertionError("the download was never complete")

    def check(self, found: Downloaded, content: bytes = CONTENT) -> None:
        """The folder has exactly this content, and no download in progress."""
        assert found[:2] == (hashlib.sha256(content).hexdigest(), len(content))
        assert self.store.path(found.sha256).read_bytes() == content
        assert found.hash.hexdigest() == found.sha256
        assert [path for path in (self.store.folder / "partial").iterdir() if path.stat().st_size] == []


@pytest.fixture
async def server() -> AsyncIterator[ImageServer]:
    async with image_server() as found:
        yield found


@pytest.fixture
async def downloads(tmp_path: Path) -> AsyncIterator[Downloads]:
    store = ContentStore(tmp_path)
    store.open()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        yield Downloads(session, store)


async def test_a_file_is_downloaded_verified_and_kept_by_content(server: ImageServer, downloads: Downloads) -> None:
    server.files["a.bfb"] = ServedFile(CONTENT)
    found = await downloads.attempt(server.url("a.bfb"))
    downloads.check(found)
    assert found.versions == {"doca": "2.9.1"}


@pytest.mark.parametrize("seed", range(5))
async def test_a_transfer_that_breaks_anywhere_is_resumed_there(
    server: ImageServer, downloads: Downloads, seed: int
) -> None:
    rng = Random(seed)
    breaks = [rng.randrange(1, 60_000) for _ in range(6)]
    file = server.files["a.bfb"] = ServedFile(CONTENT, breaks=[*breaks], sends_etag=True)
    downloads.check(await downloads.until_done(server.url("a.bfb")))
    assert file.breaks == [] or len(server.requests) < len(breaks) + 2
    assert all(asked for _, asked in server.requests[1:]), "each later request asks for the rest only"
    assert downloads.received == len(CONTENT), "no byte was received twice"


async def test_a_server_without_ranges_or_validators_is_asked_for_the_whole_file(
    server: ImageServer, downloads: Downloads
) -> None:
    server.files["a.bfb"] = ServedFile(CONTENT, breaks=[40_000], honors_ranges=False)
    downloads.check(await downloads.until_done(server.url("a.bfb")))
    server.files["b.bfb"] = ServedFile(CONTENT, breaks=[40_000], sends_etag=False)
    downloads.check(await downloads.until_done(server.url("b.bfb")))
    assert [asked for name, asked in server.requests if name == "b.bfb"] == ["", ""]


@pytest.mark.parametrize("honors_if_range", [True, False])
async def test_a_file_that_changes_midway_is_never_mixed(
    server: ImageServer, downloads: Downloads, honors_if_range: bool
) -> None:
    other = made_bfb([(1, content_of(150_000, 5)), (62, content_of(90_001, 6))], {"DOCA": "2.9.1001"})
    assert len(other) == len(CONTENT)
    server.files["a.bfb"] = ServedFile(CONTENT, [50_000], changes_to=other, honors_if_range=honors_if_range)
    downloads.check(await downloads.until_done(server.url("a.bfb")), other)


@pytest.mark.parametrize("lie", [-7, 7, 100_000])
async def test_a_false_length_gives_no_image(server: ImageServer, downloads: Downloads, lie: int) -> None:
    server.files["a.bfb"] = ServedFile(CONTENT, lies_about_size=lie)
    with pytest.raises((DownloadFailed, BadImage)):
        await downloads.attempt(server.url("a.bfb"))
    assert [*(downloads.store.folder / "sha256").iterdir()] == []
    server.files["a.bfb"] = ServedFile(CONTENT)
    downloads.check(await downloads.until_done(server.url("a.bfb")))


async def test_a_transfer_without_a_length_is_complete_only_with_all_images(
    server: ImageServer, downloads: Downloads
) -> None:
    server.files["a.bfb"] = ServedFile(CONTENT[:-20], is_chunked=True)
    with pytest.raises(BadImage, match="cut off"):
        await downloads.attempt(server.url("a.bfb"))
    server.files["a.bfb"] = ServedFile(CONTENT, is_chunked=True)
    downloads.check(await downloads.attempt(server.url("a.bfb")))


async def test_a_server_that_stalls_does_not_hold_the_download(server: ImageServer, downloads: Downloads) -> None:
    server.files["a.bfb"] = ServedFile(CONTENT, stalls_after=30_000)
    downloads.settings = SETTINGS._replace(read_s=1.0)
    with pytest.raises(DownloadFailed, match="sent nothing within the time limit"):
        await downloads.attempt(server.url("a.bfb"))
    downloads.settings = SETTINGS
    server.files["a.bfb"].stalls_after = None
    downloads.check(await downloads.attempt(server.url("a.bfb")))
    assert server.requests[-1] == ("a.bfb", "bytes=30000-")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 429, 500, 503])
async def test_a_status_is_named(server: ImageServer, downloads: Downloads, status: int) -> None:
    server.files["a.bfb"] = ServedFile(CONTENT, status=status)
    with pytest.raises(DownloadFailed) as failed:
        await downloads.attempt(f"{server.url('a.bfb')}?token=secret")
    assert str(failed.value) == f"{server.url('a.bfb')} returned HTTP status {status}"


async def test_what_cannot_be_reached_is_named(downloads: Downloads, server: ImageServer) -> None:
    with pytest.raises(DownloadFailed, match=r"no connection: "):
        await downloads.attempt("http://127.0.0.1:1/a.bfb")
    with pytest.raises(DownloadFailed, match="the name of the host cannot be resolved"):
        await downloads.attempt("http://no-such-host.invalid/a.bfb")
    with pytest.raises(DownloadFailed, match="TLS: "):
        await downloads.attempt(server.url("a.bfb").replace("http://", "https://"))


async def test_a_page_in_place_of_an_image_is_refused_at_its_beginning(
    server: ImageServer, downloads: Downloads
) -> None:
    server.files["a.bfb"] = ServedFile(b"<html>Not found</html>" * 100_000)
    with pytest.raises(BadImage, match="is not a BFB"):
        await downloads.attempt(server.url("a.bfb"))
    assert downloads.received == 0
    server.files["b.iso"] = ServedFile(b"<html>")
    assert (await downloads.attempt(server.url("b.iso"), is_bfb=False)).size == 6
    server.files["c.iso"] = ServedFile(b"")
    with pytest.raises(BadImage, match="is empty"):
        await downloads.attempt(server.url("c.iso"), is_bfb=False)


async def test_a_checksum_decides(server: ImageServer, downloads: Downloads) -> None:
    server.files["a.bfb"] = ServedFile(CONTENT)
    right = hashlib.sha256(CONTENT).hexdigest()
    with pytest.raises(BadImage, match=f"has the SHA-256 checksum {right}, not {'0' * 64}"):
        await downloads.attempt(server.url("a.bfb"), sha256="0" * 64)
    downloads.check(await downloads.attempt(server.url("a.bfb"), sha256=right))


async def test_a_complete_part_is_not_downloaded_again(server: ImageServer, downloads: Downloads) -> None:
    server.files["a.bfb"] = ServedFile(CONTENT, breaks=[len(CONTENT)])
    downloads.check(await downloads.until_done(server.url("a.bfb")))
    assert downloads.received == len(CONTENT)


async def test_a_full_disk_is_named_before_the_transfer(
    server: ImageServer, downloads: Downloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["a.bfb"] = ServedFile(CONTENT)
    monkeypatch.setattr(downloads.store, "free_bytes", lambda: 1000)
    with pytest.raises(
        DownloadFailed, match=f"too little space: {len(CONTENT)} bytes are needed, and 1000 may be used"
    ):
        await downloads.attempt(server.url("a.bfb"))
    assert downloads.received == 0


async def test_one_process_downloads_a_file_of_a_shared_folder(server: ImageServer, downloads: Downloads) -> None:
    partial = downloads.store.partial("key", server.url("a.bfb"))
    assert partial is not None
    assert ContentStore(downloads.store.folder).partial("key", server.url("a.bfb")) is None
    partial.close()
    again = downloads.store.partial("key", server.url("a.bfb"))
    assert again is not None
    again.close()


REFUSED = (
    "http://127.0.0.1:1/x.bfb",
    "http://127.9.9.9/x.bfb",
    "http://[::1]:2379/x.bfb",
    "http://[::ffff:127.0.0.1]/x.bfb",
    "http://169.254.169.254/latest/meta-data/?x=.bfb",
    "http://[fe80::1]/x.bfb",
    "http://0.0.0.0/x.bfb",
    "http://224.0.0.1/x.bfb",
    "http://localhost:1/x.bfb",
    "http://user:secret@10.0.0.1/x.bfb",
    "ftp://10.0.0.1/x.bfb",
)


@pytest.mark.parametrize("url", REFUSED)
async def test_local_addresses_are_refused_unless_allowed(downloads: Downloads, url: str) -> None:
    allowed = AllowedHosts()
    resolver = CheckedResolver(aiohttp.ThreadedResolver(), allowed)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=resolver)) as session:
        downloads.session = session
        with pytest.raises(RefusedAddress) as refused:
            await downloads.attempt(url, allowed=allowed)
    assert "secret" not in str(refused.value)


async def test_each_redirection_is_checked(server: ImageServer, downloads: Downloads) -> None:
    server.files["a.bfb"] = ServedFile(b"", redirects_to="http://169.254.169.254/x.bfb")
    with pytest.raises(RefusedAddress, match=r"169\.254\.169\.254"):
        await downloads.attempt(server.url("a.bfb"))
    server.files["b.bfb"] = ServedFile(b"", redirects_to="/c.bfb")
    server.files["c.bfb"] = ServedFile(CONTENT)
    downloads.check(await downloads.attempt(server.url("b.bfb")))
    server.files["d.bfb"] = ServedFile(b"", redirects_to="/d.bfb")
    with pytest.raises(DownloadFailed, match="redirects more than 5 times"):
        await downloads.attempt(server.url("d.bfb"))


def test_hosts_may_be_allowed_by_name_network_or_exclusively() -> None:
    hosts, is_exclusive = parse_hosts("only: *.images.example, 10.0.0.0/8")
    allowed = AllowedHosts(hosts, is_exclusive=is_exclusive)
    allowed.check_address("a.images.example", "127.0.0.1")
    allowed.check_address("other", "10.1.2.3")
    with pytest.raises(RefusedAddress, match="not among those that images may come from"):
        allowed.check_address("other", "11.1.2.3")


def test_a_collection_keeps_what_is_needed_or_young(tmp_path: Path) -> None:
    store = ContentStore(tmp_path)
    store.open()
    for name in ("kept", "old", "young"):
        store.path(name).write_bytes(b"x" * 10)
    for name in ("kept", "old"):
        os.utime(store.path(name), (1, 1))
    now = store.path("young").stat().st_ctime + 10
    assert store.collect(["kept"], [], now).files == 2
    assert [path.name for path in (tmp_path / "sha256").iterdir()] == ["kept"]


def test_content_that_was_damaged_on_the_disk_is_set_aside(tmp_path: Path) -> None:
    store = ContentStore(tmp_path)
    store.open()
    digest = hashlib.sha256(b"good").hexdigest()
    store.path(digest).write_bytes(b"good")
    found = store.hashed(digest)
    assert found is not None
    assert found.hexdigest() == digest
    store.path(digest).write_bytes(b"evil")
    assert store.hashed(digest) is None
    assert not store.path(digest).exists()


def test_the_signing_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    store = ContentStore(tmp_path)
    store.open()
    assert store.signing_key(b"first") == b"first"
    assert ContentStore(tmp_path).signing_key(b"second") == b"first"
    assert (tmp_path / "token.key").stat().st_mode & 0o777 == 0o600


async def test_a_download_that_begins_while_the_process_ends_fails_as_any_other(
    server: ImageServer, downloads: Downloads
) -> None:
    server.files["a.bfb"] = ServedFile(CONTENT)
    await downloads.session.close()
    with pytest.raises(DownloadFailed, match="the process is ending"):
        await downloads.attempt(server.url("a.bfb"))
