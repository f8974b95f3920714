"""The contract of an agent link with both of its ends. It runs unchanged against every implementation."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from drivers.wire.links import Link, LinkClosed

MESSAGES = [b"message %d" % number for number in range(300)]
Scenario = Callable[[Link, Link], Awaitable[None]]
TIMEOUT_S = 60.0


class LinkContract(ABC):
    """Each scenario gets the relay's and the agent's end of an open link."""

    @abstractmethod
    def connected(self, scenario: Scenario) -> None:
        """Run a scenario with an open link."""

    def test_messages_arrive_whole_and_in_order_in_both_directions(self) -> None:
        async def scenario(relay: Link, agent: Link) -> None:
            for message in MESSAGES:
                relay.send(message)
                agent.send(message[::-1])
            assert [await agent.receive() for _ in MESSAGES] == MESSAGES
            assert [await relay.receive() for _ in MESSAGES] == [message[::-1] for message in MESSAGES]
            assert (relay.backlog, agent.backlog) == (0, 0)

        self.connected(scenario)

    def test_empty_and_large_messages_arrive(self) -> None:
        async def scenario(relay: Link, agent: Link) -> None:
            for message in (b"", bytes(3_000_000), b"end"):
                relay.send(message)
            assert [len(await agent.receive()) for _ in range(3)] == [0, 3_000_000, 3]

        self.connected(scenario)

    def test_messages_of_any_length_arrive_unchanged(self) -> None:
        async def scenario(relay: Link, agent: Link) -> None:
            for size in (0, 1, 2, 3, 125, 126, 127, 65_535, 65_536, 1_000_003):
                message = bytes(number % 251 for number in range(size))
                relay.send(message)
                agent.send(message)
                assert await agent.receive() == message
                assert await relay.receive() == message

        self.connected(scenario)

    def test_messages_sent_before_a_close_arrive(self) -> None:
        async def scenario(relay: Link, agent: Link) -> None:
            relay.send(b"one")
            relay.send(b"goodbye")
            closing = asyncio.create_task(_close(relay))
            assert [await agent.receive(), await agent.receive()] == [b"one", b"goodbye"]
            for _ in range(2):
                with pytest.raises(LinkClosed):
                    await agent.receive()
            await closing

        self.connected(scenario)

    @pytest.mark.parametrize("aborting", ["relay", "agent"])
    def test_an_abort_ends_the_receives_of_both_ends(self, aborting: str) -> None:
        async def scenario(relay: Link, agent: Link) -> None:
            waiting = [asyncio.create_task(end.receive()) for end in (relay, agent)]
            await asyncio.sleep(0.01)
            (relay if aborting == "relay" else agent).abort()
            for found in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(found, LinkClosed)

        self.connected(scenario)

    def test_a_send_on_an_aborted_link_is_refused(self) -> None:
        async def scenario(relay: Link, agent: Link) -> None:
            for end in (relay, agent):
                end.abort()
                end.abort()
                await asyncio.sleep(0.05)
                with pytest.raises(LinkClosed, match="closed"):
                    end.send(b"too late")

        self.connected(scenario)

    def test_a_sender_notices_that_the_other_end_is_gone(self) -> None:
        async def scenario(relay: Link, agent: Link) -> None:
            receiving = asyncio.create_task(relay.receive())
            agent.abort()
            with pytest.raises(LinkClosed):
                while True:
                    relay.send(b"ping")
                    await asyncio.sleep(0.01)
            with pytest.raises(LinkClosed):
                await receiving

        self.connected(scenario)

    def test_an_abort_loses_only_the_last_messages(self) -> None:
        async def scenario(relay: Link, agent: Link) -> None:
            for message in MESSAGES:
                relay.send(message)
            found = [await agent.receive()]
            relay.abort()
            with suppress(LinkClosed):
                while True:
                    found.append(await agent.receive())
            assert found == MESSAGES[: len(found)]

        self.connected(scenario)

    def test_a_cancelled_receive_loses_no_message(self) -> None:
        async def scenario(relay: Link, agent: Link) -> None:
            waiting = asyncio.create_task(agent.receive())
            await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.wait({waiting})
            relay.send(b"next")
            assert await agent.receive() == b"next"

        self.connected(scenario)


async def _close(link: Link) -> None:
    await link.close()


async def within_timeout(scenario: Awaitable[None]) -> None:
    """Fail a scenario that hangs."""
    async with asyncio.timeout(TIMEOUT_S):
        await scenario
