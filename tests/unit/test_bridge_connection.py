"""The sessions of a device with its bridge: how often they are dialed, and when a device counts as connected."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from drivers.backends.connection import LASTING_S, RECONNECT_FIRST_S, RECONNECT_LAST_S, Connection, ConnectionState
from drivers.backends.device import DeviceFailed, DeviceNotReady
from drivers.backends.openvswitch import OpenVSwitch
from drivers.backends.openvswitch_network import NetworkBridge, OpenVSwitchNetwork
from drivers.openflow import messages as of
from drivers.openflow.chain_flows import ChainLayout
from tests.support.memory_transport import Listener
from tests.support.model_switch import ModelSwitch
from tests.support.openvswitch import LAYOUT
from tests.support.virtual_loop import current_loop

SOCKET, DATABASE = Path("/br0.mgmt"), Path("/db.sock")
HOUR_S = 3600.0


class ClosesAfterHello(asyncio.Protocol):
    """A switch that closes each connection after its Hello."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(of.hello(1))
        transport.close()


class Dialed:
    """A listener, and the times at which it was dialed."""

    def __init__(self, accept: Callable[[], asyncio.Protocol]) -> None:
        self.at: list[float] = []
        self._accept = accept
        self.listener = Listener(self._accepted, lambda: 0.001)

    def _accepted(self) -> asyncio.Protocol:
        self.at.append(asyncio.get_running_loop().time())
        return self._accept()


@asynccontextmanager
async def running(device: OpenVSwitch | OpenVSwitchNetwork) -> AsyncIterator[None]:
    task = asyncio.create_task(device.run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait({task})


def rules_of() -> OpenVSwitch:
    return OpenVSwitch(SOCKET, LAYOUT, rng=random.Random(1))


def network_of() -> OpenVSwitchNetwork:
    return OpenVSwitchNetwork(NetworkBridge("br0", SOCKET, DATABASE, ChainLayout(30, 999)), rng=random.Random(1))


@pytest.mark.virtual_clock
@pytest.mark.parametrize(("make", "path"), [(rules_of, SOCKET), (network_of, DATABASE)], ids=["rules", "network"])
async def test_a_peer_that_closes_each_session_is_dialed_at_growing_intervals(
    make: Callable[[], OpenVSwitch | OpenVSwitchNetwork], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    dialed = Dialed(ClosesAfterHello)
    current_loop().listeners[path] = dialed.listener
    device = make()
    async with running(device):
        await asyncio.sleep(HOUR_S)
        assert HOUR_S / RECONNECT_LAST_S <= len(dialed.at) < 2 * HOUR_S / RECONNECT_LAST_S + 10
        assert device.counts.connections == 0 and device.fault
        connected = [each for each in caplog.records if "connected" in each.getMessage()]
        assert len(connected) == 1, "one warning"


@pytest.mark.virtual_clock
async def test_a_session_that_has_lasted_is_dialed_again_soon() -> None:
    switch = ModelSwitch(lambda: 0.001)
    dialed = Dialed(switch.listener.accept)
    current_loop().listeners[SOCKET] = dialed.listener
    async with running(rules_of()):
        for _ in range(5):
            await asyncio.sleep(2 * LASTING_S)
            switch.stop()
            switch.is_up = True
            lost_at = asyncio.get_running_loop().time()
            await asyncio.sleep(LASTING_S)
            assert lost_at < dialed.at[-1] < lost_at + RECONNECT_FIRST_S + 0.1
        assert len(dialed.at) == 6


def test_the_wait_grows_until_a_session_lasts() -> None:
    connection: Connection[str] = Connection(random.Random(1))
    now, waits = 100.0, []
    for number in range(10):
        if number % 2:
            connection.opened("session", now)
        connection.lost("closed", now + LASTING_S / 2)
        waits.append(connection.wait_s())
        now += 10.0
    for number, wait_s in enumerate(waits):
        ceiling_s = min(RECONNECT_LAST_S, RECONNECT_FIRST_S * 2 ** (number + 1))
        assert ceiling_s / 2 <= wait_s <= ceiling_s
    connection.opened("session", now)
    connection.lost("closed", now + LASTING_S)
    assert connection.wait_s() <= RECONNECT_FIRST_S


def test_a_device_that_was_not_tried_is_not_ready_and_a_lost_one_has_failed() -> None:
    connection: Connection[str] = Connection(random.Random(1))
    with pytest.raises(DeviceNotReady, match="the bridge is not connected: no session yet"):
        connection.required()
    assert connection.lost("the switch closed the connection", 1.0)
    assert not connection.lost("the switch closed the connection", 2.0), "the same fault"
    with pytest.raises(DeviceFailed, match="the bridge is not connected: the switch closed") as raised:
        connection.required()
    assert not isinstance(raised.value, DeviceNotReady)
    connection.opened("session", 3.0)
    assert (connection.required(), connection.fault, connection.state) == ("session", "", ConnectionState.CONNECTED)
    assert connection.lost("the switch closed the connection", 4.0), "the same fault after a session is a new one"
