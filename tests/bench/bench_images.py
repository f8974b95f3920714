"""Images: hashing against `sha256sum`, downloads against `curl`, serving over HTTPS to `curl`, and rendering.

The peers read and write the same files in the same run. A download of the store also verifies the format and the hash
while it writes; curl only writes. The peer of the server is `openssl s_server`, which sends files over TLS in C.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from deploy.process.image_store import on_thread
from deploy.tls.self_signed import self_signed, server_context
from drivers.images.bfb import made_bfb
from drivers.images.content_store import ContentStore
from drivers.images.download import Download, Request
from drivers.images.installations import Content, Part
from drivers.images.server import ImageServer
from drivers.images.sources import AllowedHosts
from projections.resources.configuration.flavor import FlavorSpec
from projections.resources.configuration.inputs import Inputs, Join
from projections.resources.configuration.render import rendered
from tests.bench.figures import Figure, median_seconds

MEGABYTES = 256
FLAVOR = {
    "grub": {"kernelParameters": ["console=hvc0", "isolcpus=1-3"]},
    "sysctl": {"parameters": ["net.core.rmem_max=134217728"]},
    "nvconfig": [{"device": "p0", "parameters": ["PF_TOTAL_SF=20", "LINK_TYPE_P1=ETH"]}],
    "ovs": {"rawConfigScript": "ovs-vsctl add-br br-sfc\n" * 40},
    "bfcfgParameters": ["UPDATE_ATF_UEFI=yes", "ubuntu_PASSWORD='x'"],
    "configFiles": [{"path": "/etc/a", "raw": "a=1\n" * 100}],
}


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_figures(Path(folder)))


async def _figures(folder: Path) -> list[Figure]:
    data = made_bfb([(62, b"0123456789abcdef" * (MEGABYTES << 16))])
    size, digest = len(data) / 1e6, hashlib.sha256(data).hexdigest()
    store = ContentStore(folder / "store")
    store.open()
    path = store.path(digest)
    path.write_bytes(data)
    hashing, peer_hashing = _elapsed(lambda: store.hashed(digest)), _elapsed(lambda: _run("sha256sum", str(path)))
    download, peer_download = await _download(store, path)
    serving, peer_serving = await _serve(folder, path, digest)
    return [
        Figure("configurations rendered", 1 / _rendering_s(), "/s"),
        Figure("hash a kept image", size / hashing, "MB/s", size / peer_hashing, "sha256sum"),
        Figure("download, verify and keep an image", size / download, "MB/s", size / peer_download, "curl"),
        Figure("serve an image over HTTPS", size / serving, "MB/s", size / peer_serving, "openssl s_server"),
    ]


def _rendering_s() -> float:
    flavor, join = msgspec.convert(FLAVOR, FlavorSpec), Join("10.0.0.1:6443", "sha256:0", "a.b")
    count = 50

    def render() -> None:
        for number in range(count):
            rendered(Inputs(f"worker-{number}", flavor, join))

    return median_seconds(render, runs=3) / count


async def _download(store: ContentStore, path: Path) -> tuple[float, float]:
    """The times in which the store and curl download a file from one server in another process."""
    port = _free_port()
    words = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(path.parent)]
    async with _process(words, port), aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}/{path.name}"
        partial = store.partial("key", url)
        assert partial is not None
        download = Download(session, store, AllowedHosts(["127.0.0.1"]), on_thread, count_bytes=lambda _: None)
        began = time.perf_counter()
        found = await download.run(Request(URL(url), path.name, is_bfb=True), partial)
        ours = time.perf_counter() - began
        partial.close()
        assert found.sha256 == path.name
        return ours, await on_thread(lambda: _elapsed(lambda: _curl(url, store.folder / "curl")))


class _OneFile:
    """The content of one image, whatever is asked for."""

    def __init__(self, path: Path, digest: str) -> None:
        self._content = Content([Part(path, b"", path.stat().st_size, None)], bytes.fromhex(digest))

    async def content(self, token: str, names: Sequence[str]) -> Content:
        return self._content


async def _serve(folder: Path, path: Path, digest: str) -> tuple[float, float]:
    """The times in which curl gets a file from the image server and from openssl, over TLS."""
    cert, key = self_signed(folder, ["127.0.0.1"], datetime.now(UTC))
    installations: Any = _OneFile(path, digest)
    images: Any = None
    tls = server_context(cert, key)
    server = ImageServer(("127.0.0.1", 0), installations, images, on_thread, ssl=tls, streams_at_once=4)
    host, port = await server.start()
    target = folder / "curl"
    url = f"https://{host}:{port}/images/t/bfb/a.bfb"
    ours = await on_thread(lambda: _elapsed(lambda: _curl(url, target)))
    await server.stop()
    assert await on_thread(lambda: target.read_bytes() == path.read_bytes())
    other = _free_port()
    words = ["openssl", "s_server", "-accept", str(other), "-cert", str(cert), "-key", str(key), "-HTTP", "-quiet"]
    async with _process(words, other, cwd=path.parent):
        peer = f"https://127.0.0.1:{other}/{path.name}"
        return ours, await on_thread(lambda: _elapsed(lambda: _curl(peer, target, "--http0.9")))


@asynccontextmanager
async def _process(words: Sequence[str], port: int, cwd: Path | None = None) -> AsyncIterator[None]:
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*words, cwd=cwd, stdout=quiet, stderr=quiet)
    try:
        async with asyncio.timeout(20):
            while not _listens(port):
                await asyncio.sleep(0.05)
        yield
    finally:
        process.terminate()
        await process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _curl(url: str, target: Path, *options: str) -> None:
    _run("curl", "--silent", "--insecure", "--output", str(target), *options, url)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=120)


def _elapsed(work: Callable[[], object]) -> float:
    """The shortest time of three runs."""
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)
