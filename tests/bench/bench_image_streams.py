"""One image to 50 clients at once over TLS: the server of the image store against `http.server`, and against nginx
where it is installed.

The file, the certificate and the clients are the same, one server after the other. The clients are 50 transfers of one
curl, which throws away what it gets; they share the machine with the server, so the CPU time of the server says more
than the elapsed time.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from deploy.tls.self_signed import self_signed
from tests.bench.figures import Figure
from tests.bench.http_server import HOST
from tests.bench.image_servers import HTTP_SERVER, NGINX, PLANE, has_nginx, served
from tests.bench.memory import cpu_seconds, peak_bytes, resident_bytes

CLIENTS, MEGABYTES = 50, 100
PATIENCE_S = 300.0


class Served(NamedTuple):
    """What the transfers took: elapsed time, CPU time of the server, and the memory that they added at its peak."""

    took_s: float
    cpu_s: float
    added_bytes: int


def figures() -> list[Figure]:
    return list(compared(CLIENTS, MEGABYTES))


def compared(clients: int, megabytes: int) -> Iterator[Figure]:
    """The figures of so many clients, and a file of this size."""
    servers = [PLANE, HTTP_SERVER, *([NGINX] if has_nginx() else [])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # nginx reads the file as another user
        cert, key = self_signed(folder, [HOST], datetime.now(UTC))
        file = folder / "root" / "image.bfb"
        file.parent.mkdir()
        file.write_bytes(os.urandom(megabytes * 1_000_000))
        found = {server: _served(server, file, cert, key, clients) for server in servers}
    ours, name = found.pop(PLANE), f"an image of {megabytes} MB to {clients} clients at once over TLS"
    total = clients * megabytes
    for peer, theirs in found.items():
        memory = (ours.added_bytes / 1e6, theirs.added_bytes / 1e6)
        yield Figure(name, total / ours.took_s, "MB/s", total / theirs.took_s, peer)
        yield Figure(f"{name}: CPU of the server", ours.cpu_s, "s", theirs.cpu_s, peer, better="lower")
        yield Figure(f"{name}: memory that they add to the server", memory[0], "MB", memory[1], peer, better="lower")


def _served(server: str, file: Path, cert: Path, key: Path, clients: int) -> Served:
    with served(server, file, cert, key) as (pid, url):
        _fetch(url, file.stat().st_size, 1)  # warms up
        processes = [pid, *_children(pid)]
        before_bytes = sum(map(resident_bytes, processes))
        cpu_s, began = sum(map(cpu_seconds, processes)), time.perf_counter()
        _fetch(url, file.stat().st_size, clients)
        took_s = time.perf_counter() - began
        return Served(took_s, sum(map(cpu_seconds, processes)) - cpu_s, sum(map(peak_bytes, processes)) - before_bytes)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _fetch(url: str, size: int, clients: int) -> None:
    """Fetch a file so many times at once. Each transfer must be whole."""
    words = ["curl", "--silent", "--show-error", "--fail", "--insecure", "--http1.1"]
    words += ["--parallel", "--parallel-immediate", "--parallel-max", str(clients), "--write-out", "%{size_download}\n"]
    for _ in range(clients):
        words += ["--output", "/dev/null", url]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout.split() == [str(size)] * clients, done.stdout
