"""The notifications of a serving process to systemd, over a socket like systemd's own."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.process.service_manager import READY, STOPPING, WATCHDOG, notify, service_notifications, watchdog_s
from tests.support.planes import serving

HEARD_S = 60.0


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(HEARD_S)
        yield listener


def notification_of(manager: socket.socket) -> str:
    return manager.recv(1024).decode()


async def test_a_process_notifies_readiness_watchdog_and_stop(
    manager: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    async with serving("--data", str(tmp_path / "plane")) as plane:
        assert [await asyncio.to_thread(notification_of, manager) for _ in range(4)] == [READY, *[WATCHDOG] * 3]
        assert await plane.stop() == 0
    manager.setblocking(False)
    rest: list[str] = []
    while not rest or rest[-1] != STOPPING:
        rest.append(notification_of(manager))
    assert set(rest[:-1]) <= {WATCHDOG}
    with pytest.raises(BlockingIOError):
        notification_of(manager)


async def test_a_blocked_loop_does_not_notify_the_watchdog(manager: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "30000"}
    async with service_notifications(environment):
        await asyncio.sleep(0)
        assert [notification_of(manager), notification_of(manager)] == [READY, WATCHDOG]
        manager.settimeout(0.3)
        with pytest.raises(TimeoutError):  # block the loop for ten times the timeout of the watchdog
            notification_of(manager)


async def test_an_abstract_socket_works_and_no_socket_is_required(caplog: pytest.LogCaptureFixture) -> None:
    name = f"dpuplane-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        listener.settimeout(HEARD_S)
        async with service_notifications({"NOTIFY_SOCKET": f"@{name}"}):
            assert notification_of(listener) == READY
        assert notification_of(listener) == STOPPING
    async with service_notifications({}):
        assert not caplog.records
    notify(f"@{name}", READY)
    assert "service manager not notified of READY=1" in caplog.text


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
    ],
)
def test_a_watchdog_of_another_process_is_ignored(environment: dict[str, str], seconds: float) -> None:
    assert watchdog_s(environment) == seconds
