"""Runs the contract of BMCs on direct calls, as in the simulation, and over HTTP, as in production."""

from __future__ import annotations

import asyncio
from random import Random

import aiohttp
from aiohttp import web

from drivers.backends.http_bmc import application, http_connect
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


class TestHttpBmc(BmcContract):
    def connected(self, scenario: Scenario, faults: BmcFaults = PLAIN) -> None:
        asyncio.run(within_timeout(self._over_http(scenario, faults)))

    async def _over_http(self, scenario: Scenario, faults: BmcFaults) -> None:
        runner = web.AppRunner(application(simulated(faults).device))
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            async with aiohttp.ClientSession() as session:
                await scenario(http_connect(session)(f"http://{host}:{port}/d"))
        finally:
            await runner.cleanup()
