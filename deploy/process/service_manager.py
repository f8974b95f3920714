"""Notifies systemd about this process: READY when it serves, STOPPING when it ends, WATCHDOG while the event loop runs.

The protocol is one datagram per message to the socket in NOTIFY_SOCKET (sd_notify(3)). It is implemented here because
it is smaller than any library for it. Without the variable nothing is sent. The watchdog runs on the event loop:
systemd restarts a process whose loop is blocked for longer than the WatchdogSec of its unit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"
FEEDS_PER_TIMEOUT = 3
"""Watchdog messages per timeout; systemd recommends at least two."""

logger = logging.getLogger(__name__)


@asynccontextmanager
async def service_notifications(environment: Mapping[str, str]) -> AsyncIterator[None]:
    """Send READY on entry, WATCHDOG while the context lasts, STOPPING at its end."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        yield
        return
    notify(address, READY)
    watchdog = asyncio.create_task(_feed(address, watchdog_s(environment)))
    try:
        yield
    finally:
        watchdog.cancel()
        with suppress(asyncio.CancelledError):
            await watchdog
        notify(address, STOPPING)


def watchdog_s(environment: Mapping[str, str]) -> float:
    """Seconds without a message after which systemd restarts this process; 0 if the watchdog is off."""
    of_another = environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid())
    timeout_us = environment.get("WATCHDOG_USEC", "0")
    return 0.0 if of_another or not timeout_us.isdecimal() else int(timeout_us) / 1_000_000


async def _feed(address: str, timeout_s: float) -> None:
    while timeout_s:
        notify(address, WATCHDOG)
        await asyncio.sleep(timeout_s / FEEDS_PER_TIMEOUT)


def notify(address: str, message: str) -> None:
    """Send one message. A failure is logged; systemd then treats the process by the rules of its unit."""
    path = f"\0{address[1:]}" if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sender:
            sender.sendto(message.encode(), path)
    except OSError as error:
        logger.warning("service manager not notified of %s: %s", message, error, extra={"socket": address})
