"""A real Open vSwitch of a test, and its bridges as devices."""

from __future__ import annotations

import asyncio
import fcntl
import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path

from deploy.composition.device_backends import Bridge
from deploy.host import openvswitch
from deploy.host.openvswitch import Switch, missing_program
from drivers.backends.openvswitch import OpenVSwitch
from drivers.backends.openvswitch_network import OpenVSwitchNetwork
from drivers.openflow import messages as openflow
from drivers.openflow.rule_flows import FlowLayout
from tests.support.requirements import missing_requirement

START_S = 60.0
LAYOUT = FlowLayout(20, openflow.goto_table(30), 1_000, 30, openflow.apply_actions(openflow.output(openflow.NORMAL)))
"""That of an agent without options."""


@contextmanager
def packets_turn() -> Iterator[None]:
    """The turn to have an Open vSwitch that forwards packets: there can be one in a network namespace. The time limit
    of the test bounds the wait."""
    with (Path(tempfile.gettempdir()) / "dpuplane-tests-packets.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def open_vswitch(folder: Path, *, has_packets: bool = False) -> Iterator[Switch]:
    """A running Open vSwitch in this folder, whose path is short enough for sockets. With `has_packets`, it forwards
    the packets of network interfaces; its ports are to be added."""
    if missing := missing_program():
        missing_requirement(missing)
    with (
        packets_turn() if has_packets else nullcontext(),
        openvswitch.open_vswitch(folder, has_packets=has_packets) as switch,
    ):
        yield switch


@contextmanager
def switch_folder(*, has_packets: bool = False) -> Iterator[Switch]:
    """A running Open vSwitch in a folder of its own."""
    if missing := missing_program():
        missing_requirement(missing)
    with packets_turn() if has_packets else nullcontext(), openvswitch.switch_folder(has_packets=has_packets) as switch:
        yield switch


@asynccontextmanager
async def bridge_device(switch: Switch, bridge: str, layout: FlowLayout = LAYOUT) -> AsyncIterator[OpenVSwitch]:
    """A bridge as a device, connected."""
    async with connected_device(switch.socket(bridge), layout) as device:
        yield device


@asynccontextmanager
async def connected_device(socket: Path, layout: FlowLayout = LAYOUT) -> AsyncIterator[OpenVSwitch]:
    """The bridge at a socket as a device, connected."""
    device = OpenVSwitch(socket, layout, rng=random.Random(1))
    running = asyncio.create_task(device.run())
    try:
        async with asyncio.timeout(START_S):
            while device.fault:
                await asyncio.sleep(0.01)
        yield device
        assert not running.done(), "nothing ends the session"
    finally:
        running.cancel()
        await asyncio.wait({running})


@asynccontextmanager
async def bridge_network(switch: Switch, bridge: str) -> AsyncIterator[OpenVSwitchNetwork]:
    """A bridge as the network of a device, connected."""
    device = OpenVSwitchNetwork(Bridge(bridge, switch.folder, LAYOUT).network, rng=random.Random(1))
    running = asyncio.create_task(device.run())
    try:
        async with asyncio.timeout(START_S):
            while device.fault:
                await asyncio.sleep(0.01)
        yield device
        assert not running.done(), "nothing ends the sessions"
    finally:
        running.cancel()
        await asyncio.wait({running})
