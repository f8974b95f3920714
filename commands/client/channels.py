"""Channels to the servers of a plane, with or without TLS."""

from __future__ import annotations

from typing import Any, Protocol

import grpc

OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
"""Short reconnect pauses: by default, the library waits up to two minutes before it connects again to an unreachable
server."""


class CertificateSource(Protocol):
    """The certificates of a client; a new version needs a new channel."""

    version: int

    def grpc_channel(self) -> grpc.ChannelCredentials: ...


class Channels:
    """One channel per server, opened when it is first used. `library` is grpc or grpc.aio."""

    def __init__(self, library: Any, certificates: CertificateSource | None) -> None:
        self._library = library
        self._certificates = certificates
        self._version = 0
        self._open: dict[str, Any] = {}

    @property
    def is_secure(self) -> bool:
        return self._certificates is not None

    def __getitem__(self, server: str) -> Any:
        if server not in self._open:
            self._open[server] = self._dial(server)
        return self._open[server]

    def outdated(self) -> list[Any]:
        """Take out the channels of earlier certificates; the caller closes them after their running calls."""
        if self._certificates is None or self._version == self._certificates.version:
            return []
        self._version = self._certificates.version
        return self.take()

    def take(self) -> list[Any]:
        """Take out all channels, for the caller to close."""
        taken = [*self._open.values()]
        self._open.clear()
        return taken

    def _dial(self, server: str) -> Any:
        if self._certificates is None:
            return self._library.insecure_channel(server, options=OPTIONS)
        return self._library.secure_channel(server, self._certificates.grpc_channel(), options=OPTIONS)
