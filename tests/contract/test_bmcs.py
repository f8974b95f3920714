"""Runs the contract of BMCs on a simulated one."""

from __future__ import annotations

import asyncio
from random import Random

from drivers.backends.simulated_bmc import BmcFaults, SimulatedBmcs
from tests.contract.bmc import PLAIN, BmcContract, Scenario, within_timeout
from tests.simulation.network import WiredBmc
from tests.support.virtual_loop import run_virtual


def simulated(faults: BmcFaults) -> SimulatedBmcs:
    clock = asyncio.get_running_loop().time
    return SimulatedBmcs(now_s=clock, rng=Random(1), faults=faults, serial_of=lambda name: f"SN-{name}")


class TestSimulatedBmc(BmcContract):
    def connected(self, scenario: Scenario, faults: BmcFaults = PLAIN) -> None:
        async def run() -> None:
            await within_timeout(scenario(WiredBmc(simulated(faults).connect("simulated:d"))))

        run_virtual(run())
