"""Backends of agents by name: a new backend is a module of drivers/backends, and a row here.

A backend without a network device takes no network documents: its agents are served rule tables only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

from drivers.backends.device import Device, NetworkDevice
from drivers.backends.openvswitch import OpenVSwitch
from drivers.backends.openvswitch_network import NetworkBridge, OpenVSwitchNetwork
from drivers.backends.simulated import SimulatedDevice
from drivers.backends.simulated_network import SimulatedNetwork
from drivers.openflow.chain_flows import ChainLayout
from drivers.openflow.rule_flows import FlowLayout

DATABASE_SOCKET = "db.sock"


class Bridge(NamedTuple):
    """A bridge of Open vSwitch, the folder of the switch's sockets, and where the flows of the bridge go."""

    name: str
    run_folder: Path
    layout: FlowLayout

    @property
    def socket(self) -> Path:
        """The OpenFlow socket."""
        return self.run_folder / f"{self.name}.mgmt"

    @property
    def database(self) -> Path:
        """The socket of the switch's database."""
        return self.run_folder / DATABASE_SOCKET

    @property
    def network(self) -> NetworkBridge:
        """The bridge as the network of its DPU. The hooks of its chains come after those of the rules."""
        layout = ChainLayout(self.layout.chains, self.layout.hook_priority - 1)
        return NetworkBridge(self.name, self.socket, self.database, layout)


class DeviceContext(NamedTuple):
    """The parameters of a backend for the device of one DPU. `bridge` is for backends in BRIDGED."""

    rng: Random
    bridge: Bridge | None = None


def _simulated(context: DeviceContext) -> Device:
    return SimulatedDevice(rng=context.rng)


def _openvswitch(context: DeviceContext) -> Device:
    assert context.bridge is not None, "the command line requires it"
    return OpenVSwitch(context.bridge.socket, context.bridge.layout, rng=context.rng)


def _simulated_network(context: DeviceContext) -> NetworkDevice:
    return SimulatedNetwork(rng=context.rng)


def _openvswitch_network(context: DeviceContext) -> NetworkDevice:
    assert context.bridge is not None, "the command line requires it"
    return OpenVSwitchNetwork(context.bridge.network, rng=context.rng)


DEVICE_BACKENDS: Mapping[str, Callable[[DeviceContext], Device]] = {
    "simulated": _simulated,
    "openvswitch": _openvswitch,
}
NETWORK_BACKENDS: Mapping[str, Callable[[DeviceContext], NetworkDevice]] = {
    "simulated": _simulated_network,
    "openvswitch": _openvswitch_network,
}
BRIDGED = frozenset({"openvswitch"})
"""Backends whose devices are bridges."""
