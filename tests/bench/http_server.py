"""Python's own `http.server` with threads and TLS: `python -m tests.bench.http_server FILE CERT KEY` prints the URL of
the file. It imports only what such a server needs, because its memory is measured.
"""

from __future__ import annotations

import ssl
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128


def main(file: Path, cert: Path, key: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with _Server((HOST, 0), partial(_Quiet, directory=str(file.parent))) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        print(f"https://{HOST}:{server.server_port}/{file.name}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
