"""An install interface, a backend of BMCs and a backend of agents that exist only for tests. Each needs this file and
one line in `extension.build`.
"""

from __future__ import annotations

import time
from random import Random

from deploy.composition.bmc_backends import BmcContext
from deploy.composition.device_backends import DeviceContext
from drivers.backends.bmc import Connect
from drivers.backends.device import Device
from drivers.backends.simulated import SimulatedDevice
from drivers.backends.simulated_bmc import BmcFaults, SimulatedBmcs
from projections.zones.dpus.install_interfaces import InstallInterface

LAB = "lab"
"""The scheme of the addresses, and the name of the backend of agents."""

INTERFACE = InstallInterface("NAME")

FAST = BmcFaults(pace=0.01)


def bmc_backend(context: BmcContext) -> Connect:
    """BMCs in this process; in the simulator, those of its world."""
    bmcs = context.simulated or SimulatedBmcs(now_s=time.monotonic, rng=Random(1), faults=FAST)
    return lambda address: bmcs.device(address.removeprefix(f"{LAB}:"))


def device_backend(context: DeviceContext) -> Device:
    return SimulatedDevice(rng=context.rng)
