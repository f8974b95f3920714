"""Runs the contract of agent links within a process, in the simulation, and over WebSocket."""

from __future__ import annotations

import asyncio
import random

from drivers.wire.agent_listener import AgentListener
from drivers.wire.links import Link, memory_link_pair
from drivers.wire.websocket import Dialer
from tests.contract.link import LinkContract, Scenario, within_timeout
from tests.simulation.network import link_pair
from tests.support.virtual_loop import run_virtual


class TestLinkWithinAProcess(LinkContract):
    def connected(self, scenario: Scenario) -> None:
        async def run() -> None:
            await within_timeout(scenario(*memory_link_pair("relay", "agent")))

        asyncio.run(run())


class TestSimulatedLink(LinkContract):
    def connected(self, scenario: Scenario) -> None:
        async def run() -> None:
            await within_timeout(scenario(*link_pair("relay", "agent", random.Random(1))))

        run_virtual(run())


def accept_all(who: str, *, is_one_dpu: bool) -> float:
    """Accept every link."""
    return 0.0


class TestWebSocketLink(LinkContract):
    def connected(self, scenario: Scenario) -> None:
        asyncio.run(within_timeout(self._over_a_socket(scenario)))

    async def _over_a_socket(self, scenario: Scenario) -> None:
        accepted: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        over = asyncio.Event()

        async def serve(link: Link, _dpu: str) -> None:
            accepted.set_result(link)
            await over.wait()

        async with AgentListener(serve, accept_all, host="127.0.0.1", port=0) as listener, Dialer() as dialer:
            agent = await dialer.dial(f"127.0.0.1:{listener.port}")
            try:
                await scenario(await accepted, agent)
            finally:
                over.set()
                await agent.close()
