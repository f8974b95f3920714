"""Servers of one file over TLS, each a process of its own: that of the image store, `http.server`, and nginx.

`python -m tests.bench.image_servers FILE CERT KEY` is the server of the image store, as a provisioner runs it. It
prints the URL of the file once it listens.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import uvloop

from deploy.process.image_store import on_thread
from deploy.process.run import tune_garbage_collector
from deploy.tls.self_signed import server_context
from drivers.images.installations import Content, Part
from drivers.images.server import ImageServer
from tests.bench.http_server import HOST

PLANE, HTTP_SERVER, NGINX = "plane", "http.server", "nginx"
STREAMS = 64
"""The default of the setting image_streams."""
STARTED_S = 20.0
STOP_S = 10.0
_NGINX = """
daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes auto;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen {host}:{port} ssl; ssl_certificate {cert}; ssl_certificate_key {key}; root {root};
  }}
}}
"""


class OneFile:
    """The content of one image, whatever is asked for."""

    def __init__(self, path: Path) -> None:
        self._content = Content([Part(path, b"", path.stat().st_size, None)], bytes(32))

    async def content(self, token: str, names: Sequence[str]) -> Content:
        return self._content


@contextmanager
def served(name: str, file: Path, cert: Path, key: Path) -> Iterator[tuple[int, str]]:
    """A server in a process of its own: its process id, and the URL of the file."""
    if name == NGINX:
        with _nginx(file, cert, key) as found:
            yield found
        return
    module = {PLANE: "tests.bench.image_servers", HTTP_SERVER: "tests.bench.http_server"}[name]
    words = [sys.executable, "-m", module, *map(str, (file, cert, key))]
    with _stopped(Popen(words, stdout=PIPE, text=True)) as process:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()


@contextmanager
def _nginx(file: Path, cert: Path, key: Path) -> Iterator[tuple[int, str]]:
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        about = {"folder": folder, "host": HOST, "port": port, "cert": cert, "key": key, "root": file.parent}
        config = Path(folder) / "nginx.conf"
        config.write_text(_NGINX.format(**about))
        with _stopped(Popen(["nginx", "-c", str(config)], stderr=DEVNULL, text=True)) as process:
            wait_until_listening(port)
            yield process.pid, f"https://{HOST}:{port}/{file.name}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def wait_until_listening(port: int) -> None:
    ends_at = time.monotonic() + STARTED_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        assert time.monotonic() < ends_at, f"nothing listens at port {port}"
        time.sleep(0.05)


@contextmanager
def _stopped(process: Popen[str]) -> Iterator[Popen[str]]:
    try:
        yield process
    finally:
        process.terminate()
        process.wait(STOP_S)


def has_nginx() -> bool:
    return which("nginx") is not None


async def _serve(file: Path, cert: Path, key: Path) -> None:
    tune_garbage_collector()
    installations: Any = OneFile(file)
    images: Any = None
    tls = server_context(cert, key)
    server = ImageServer((HOST, 0), installations, images, on_thread, ssl=tls, streams_at_once=STREAMS)
    _, port = await server.start()
    print(f"https://{HOST}:{port}/images/t/bfb/a.bfb", flush=True)
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    uvloop.run(_serve(*map(Path, sys.argv[1:])))
