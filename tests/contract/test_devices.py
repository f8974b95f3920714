"""The contracts of forwarding devices and of their networks, on simulated ones, on bridges of Open vSwitch, and
on the model of one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest

from deploy.host.openvswitch import Switch
from drivers.backends.device import Device, NetworkDevice
from drivers.backends.openvswitch import OpenVSwitch
from drivers.backends.openvswitch_network import OpenVSwitchNetwork
from drivers.backends.simulated import SimulatedDevice
from drivers.backends.simulated_network import NetworkFaults, SimulatedNetwork
from tests.contract.device import DeviceContract, Scenario
from tests.contract.network_device import NetworkDeviceContract, NetworkScenario
from tests.support.model_switch import ModelSwitch
from tests.support.openvswitch import bridge_device, bridge_network, connected_device, switch_folder
from tests.support.virtual_loop import current_loop, run_virtual

MODEL = Path("/model.mgmt")


class TestSimulatedDevice(DeviceContract):
    def with_device(self, scenario: Scenario) -> None:
        async def run() -> None:
            await scenario(SimulatedDevice(rng=random.Random(1)))

        asyncio.run(run())

    def forget(self, device: Device) -> None:
        """Nothing is remembered."""


class TestOpenVSwitch(DeviceContract):
    _names: ClassVar = count(1)

    @pytest.fixture(autouse=True)
    def _with_switch(self, switch: Switch) -> None:
        self._switch = switch

    def with_device(self, scenario: Scenario) -> None:
        async def run() -> None:
            bridge = f"br{next(self._names)}"
            self._switch.add_bridge(bridge)
            async with bridge_device(self._switch, bridge) as device:
                await scenario(device)

        asyncio.run(run())

    def forget(self, device: Device) -> None:
        assert isinstance(device, OpenVSwitch)
        device.forget()


class TestModelSwitch(DeviceContract):
    def with_device(self, scenario: Scenario) -> None:
        async def run() -> None:
            current_loop().listeners[MODEL] = ModelSwitch(lambda: 0.001).listener
            async with connected_device(MODEL) as device:
                await scenario(device)

        run_virtual(run())

    def forget(self, device: Device) -> None:
        assert isinstance(device, OpenVSwitch)
        device.forget()


class TestSimulatedNetwork(NetworkDeviceContract):
    def with_network(self, scenario: NetworkScenario) -> None:
        async def run() -> None:
            await scenario(SimulatedNetwork(NetworkFaults(ports_s=0.1), rng=random.Random(1)))

        run_virtual(run())

    def add_port_of_web(self, device: NetworkDevice) -> None:
        """It appears by itself, as its pod starts."""

    async def lose(self, device: NetworkDevice) -> bool:
        assert isinstance(device, SimulatedNetwork)
        device.lose()
        return False


class TestOpenVSwitchNetwork(NetworkDeviceContract):
    _names: ClassVar = count(1)

    @pytest.fixture(autouse=True)
    def _with_switch(self, switch: Switch) -> Iterator[None]:
        self._switch, self._bridge = switch, f"net{next(self._names)}"
        switch.add_bridge(self._bridge)
        yield
        switch.vsctl("del-br", self._bridge)  # its ports have the same names as those of the next

    def with_network(self, scenario: NetworkScenario) -> None:
        async def run() -> None:
            async with bridge_network(self._switch, self._bridge) as device:
                await scenario(device)

        asyncio.run(run())

    def add_port_of_web(self, device: NetworkDevice) -> None:
        ids = "external_ids:dpf-id=dpf/web-x7/web_if"
        self._switch.vsctl("add-port", self._bridge, "veth-web", "--", "set", "interface", "veth-web", ids)

    async def lose(self, device: NetworkDevice) -> bool:
        self._switch.kill("ovs-vswitchd")
        self._switch.start_daemon("ovs-vswitchd")
        assert isinstance(device, OpenVSwitchNetwork)
        async with asyncio.timeout(60):
            while device.counts.connections < 2:
                await asyncio.sleep(0.02)
        return True


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with switch_folder() as found:
        yield found
