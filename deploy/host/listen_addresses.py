"""Checks of the addresses that a process listens on, before it creates or opens a log."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from deploy.settings.addresses import Address
from eventstore.errors import FatalError


def check_free(listeners: Mapping[str, Address]) -> None:
    """Raise FatalError that names the setting, unless all addresses are available at once.

    Without this check, a process would find the conflict only after it has created an unwanted log, or folded a log
    for nothing.
    """
    with ExitStack() as held:
        for setting, address in listeners.items():
            with listen_errors(setting, address):
                held.enter_context(bind_listener(address))


@contextmanager
def listen_errors(setting: str, address: Address) -> Iterator[None]:
    """A context for the start of a listener: an OSError becomes a FatalError that names the setting."""
    try:
        yield
    except OSError as error:
        raise FatalError(f"{setting}: {address} cannot be listened on: {os_error_text(error)}") from error


def bind_listener(address: Address) -> socket.socket:
    """A socket bound to this address. Raises OSError."""
    found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    probe = socket.socket(found[0][0], socket.SOCK_STREAM)
    try:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(found[0][4])
        probe.listen(1)
    except OSError:
        probe.close()
        raise
    return probe


def os_error_text(error: OSError) -> str:
    """The operating system's message, without the additions of libraries."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
