"""Relay and agents over real sockets: a hostile or slow peer does not affect the others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import aiohttp
import pytest

from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.store import MemoryTableStore, TableStore
from drivers.backends.simulated import NO_DEVICE_FAULTS, DeviceFaults, SimulatedDevice
from drivers.relays.relay import Relay, RelaySettings
from drivers.simulators.simulator import Simulator
from drivers.wire import agent_messages
from drivers.wire.agent_listener import AgentListener
from drivers.wire.agent_messages import NO_DIGEST, Ack, Hello
from drivers.wire.links import Busy, Link, LinkClosed
from drivers.wire.protocol import MAX_UP_BYTES, TableStatus
from drivers.wire.relay_messages import Frame, GoAway, Welcome, decode
from drivers.wire.websocket import Dialer
from projections.rules.device_table import DeviceTable
from tests.support.eventually import until
from tests.support.relays import StaticRegistrar
from tests.support.rule_source import ALLOW, Tables, packed

ERROR = aiohttp.WSMsgType.ERROR
PATIENT = RelaySettings(handshakes_at_once=10_000)
"""Settings under which a busy machine closes no link as silent, where it would begin with another frame."""


class Served(NamedTuple):
    """A listening relay."""

    relay: Relay
    address: str


@asynccontextmanager
async def served(tables: Tables, settings: RelaySettings = PATIENT) -> AsyncIterator[Served]:
    relay = Relay(tables, name="r", now_ms=lambda: 0, rng=random.Random(1), settings=settings)
    running = asyncio.create_task(relay.run())
    try:
        async with AgentListener(relay.serve, relay.admit, host="127.0.0.1", port=0) as listener:
            yield Served(relay, f"127.0.0.1:{listener.port}")
    finally:
        running.cancel()


@asynccontextmanager
async def agents(
    names: list[str], addresses: list[str], *, faults: DeviceFaults = NO_DEVICE_FAULTS, store: TableStore | None = None
) -> AsyncIterator[list[Agent]]:
    made = []
    async with Dialer() as dialer:
        tasks = []
        for seed, name in enumerate(names):
            rng = random.Random(seed)
            agent = Agent(
                AgentIdentity("z", name, "boot"),
                addresses,
                dial=dialer.dial,
                device=SimulatedDevice(faults, rng=rng),
                store=store or MemoryTableStore(),
                rng=rng,
            )
            made.append(agent)
            tasks.append(asyncio.create_task(agent.run()))
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def all_have(made: list[Agent], table: DeviceTable) -> Callable[[], bool]:
    return lambda: all(agent.table == table for agent in made)


@asynccontextmanager
async def dialed(address: str) -> AsyncIterator[Link]:
    async with Dialer() as dialer:
        link = await dialer.dial(address)
        try:
            yield link
        finally:
            await link.close()


async def test_fifty_agents_follow_and_a_frame_is_encoded_once() -> None:
    names = [f"d{i}" for i in range(50)]
    tables = Tables(names)
    tables.put(5, {ALLOW: packed("10.0.0.0/8")})
    async with served(tables) as (relay, address), agents(names, [address]) as made:
        await until(all_have(made, tables.table))
        for version in range(6, 16):
            newest = tables.put(version, {ALLOW: packed("10.0.0.0/8", f"192.168.{version}.0/24")})
            await until(all_have(made, newest))
        assert (
            relay.frame_cache.encoded <= 11 + 5
        )  # one frame per version, and a few for agents that lagged for a moment
        await until(lambda: {h.version for h in relay.devices()["z"].values()} == {15})
        assert {held.digest for held in relay.devices()["z"].values()} == {tables.table.digest}
        await until(lambda: bool(tables.reports) and 15 in tables.reports[-1].versions)


async def test_an_agent_resumes_at_the_other_relay_without_a_snapshot() -> None:
    tables, store = Tables(["d0"]), MemoryTableStore()
    tables.put(5, {ALLOW: packed("10.0.0.0/8")})
    async with served(tables) as first:
        async with served(tables) as second, agents(["d0"], [first.address, second.address], store=store) as made:
            await until(all_have(made, tables.table))
            snapshots = tables.snapshots
            for session in list((first.relay.zones | second.relay.zones)["z"].sessions):
                session.link.abort()
            newest = tables.put(6, {ALLOW: packed("10.0.0.0/8", "11.0.0.0/8")})
            await until(all_have(made, newest))
            assert tables.snapshots == snapshots
        tables.put(7, {ALLOW: packed("11.0.0.0/8")})
        async with agents(["d0"], [first.address], store=store) as made:  # the agent restarts from its store
            await until(all_have(made, tables.table))
            assert tables.snapshots == snapshots


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (b"\xff\xff\xff", "not a valid FromAgent message"),
        (bytes(MAX_UP_BYTES + 1), "more than the 2097152 allowed"),
        (agent_messages.encode(Hello("../z", ["d0"], ["b"], [])), "hello.zone: '../z'"),
        (agent_messages.encode(Ack([], [])), "the first message must be a hello"),
    ],
)
async def test_a_malformed_message_closes_its_own_link_with_a_reason(said: bytes, sentence: str) -> None:
    tables = Tables(["d0", "d1"])
    tables.put(5, {ALLOW: packed("10.0.0.0/8")})
    async with served(tables) as (relay, address), agents(["d0"], [address]) as made, dialed(address) as bad:
        bad.send(said)
        answer = decode(await bad.receive())
        assert isinstance(answer, GoAway)
        assert sentence in answer.reason
        with pytest.raises(LinkClosed):
            await bad.receive()
        await until(all_have(made, tables.table))
        newest = tables.put(6, {ALLOW: packed("11.0.0.0/8")})
        await until(all_have(made, newest))
        assert relay.closed_for["malformed"] == 1


async def test_a_text_message_or_an_oversized_one_closes_the_link() -> None:
    async with served(Tables(["d0"])) as (relay, address), aiohttp.ClientSession() as session:
        async with session.ws_connect(f"ws://{address}/agent") as socket:
            await socket.send_str("hello")
            answer = decode(await socket.receive_bytes())
            assert isinstance(answer, GoAway)
            assert "not text" in answer.reason
        async with session.ws_connect(f"ws://{address}/agent") as socket:
            with suppress(ConnectionError):
                await socket.send_bytes(bytes(2 * MAX_UP_BYTES + 1))
            assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, ERROR)
        assert relay.zones == {}


async def test_a_device_that_does_not_read_delays_no_other_and_gets_one_merged_delta() -> None:
    names = [f"d{i}" for i in range(20)]
    tables = Tables([*names, "slow"])
    tables.put(5, {ALLOW: packed("10.0.0.0/8")})
    patient = PATIENT._replace(heartbeat_s=60.0)  # it sends no heartbeat, and must not be disconnected for it
    async with served(tables, patient) as (relay, address), agents(names, [address]) as made, dialed(address) as slow:
        slow.send(agent_messages.encode(Hello("z", ["slow"], ["b"], [])))
        await until(all_have(made, tables.table))
        for version in range(6, 40):
            newest = tables.put(version, {ALLOW: packed("10.0.0.0/8", f"192.168.{version}.0/24")})
            await until(all_have(made, newest))
        assert isinstance(decode(await slow.receive()), Welcome)
        first = decode(await slow.receive())
        assert isinstance(first, Frame)
        assert first.delta.to_version == 5
        digest = tables.history[5].digest
        slow.send(agent_messages.encode(Ack([TableStatus(1, 1, 5, 5, 5, digest)], [])))
        merged = decode(await slow.receive())
        assert isinstance(merged, Frame)
        assert (merged.delta.from_version, merged.delta.to_version) == (5, 39)
        assert relay.closed_for == {"malformed": 0, "silent": 0, "flooding": 0}


async def test_silent_and_flooding_agents_are_disconnected() -> None:
    settings = PATIENT._replace(heartbeat_s=0.3, messages_per_second=50)
    async with served(Tables(["d0", "d1"]), settings) as (relay, address):
        async with dialed(address) as silent, dialed(address) as loud:
            for link, dpu in ((silent, "d0"), (loud, "d1")):
                link.send(agent_messages.encode(Hello("z", [dpu], ["b"], [])))
            status = TableStatus(1, 0, 0, 0, 0, NO_DIGEST)
            for _ in range(200):
                loud.send(agent_messages.encode(Ack([status], [])))
            await until(lambda: relay.closed_for["silent"] == 1)
            assert relay.closed_for["flooding"] == 1
        await until(lambda: not relay.zones.get("z") or not relay.zones["z"].sessions)


def admit_all(who: str, *, is_one_dpu: bool) -> float:
    """Admit every link."""
    return 0.0


async def test_agents_beyond_the_rate_get_retry_times_and_all_are_admitted() -> None:
    names = [f"d{i}" for i in range(30)]
    tables = Tables(names)
    tables.put(5, {ALLOW: packed("10.0.0.0/8")})
    hardly = PATIENT._replace(handshakes_per_second=0.5, handshakes_at_once=5)
    async with served(tables, hardly) as (relay, address), Dialer() as dialer:
        links = await asyncio.gather(*(dialer.dial(address) for _ in range(40)), return_exceptions=True)
        assert any(isinstance(link, Busy) and link.retry_after_s > 0 for link in links)
        assert relay.admission.refused > 0
        await asyncio.gather(*(link.close() for link in links if not isinstance(link, BaseException)))
    settings = PATIENT._replace(handshakes_per_second=100.0, handshakes_at_once=5)
    async with served(tables, settings) as (relay, address), agents(names, [address]) as made:
        await until(all_have(made, tables.table))


async def test_links_that_end_before_their_admission_leave_no_state(caplog: pytest.LogCaptureFixture) -> None:
    tables = Tables(["d0"])
    tables.put(5, {ALLOW: packed("10.0.0.0/8")})
    async with served(tables) as (relay, address):
        host, port = address.split(":")
        for _ in range(50):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(
                b"GET /agent HTTP/1.1\r\nHost: r\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            writer.transport.abort()
        async with agents(["d0"], [address]) as made:
            await until(all_have(made, tables.table))
        await until(lambda: not relay.zones["z"].sessions)
        assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 3_000_000])
async def test_frames_of_any_size_arrive_whole(size: int) -> None:
    message = random.Random(size).randbytes(size)

    async def serve(link: Link, _only: str) -> None:
        link.send(message)
        link.send(b"next")
        assert await link.receive() == b"thanks"
        await link.close()

    listener = AgentListener(serve, admit_all, host="127.0.0.1", port=0)
    async with listener, dialed(f"127.0.0.1:{listener.port}") as link:
        assert [await link.receive(), await link.receive()] == [message, b"next"]
        link.send(b"thanks")
        with pytest.raises(LinkClosed):
            await link.receive()


async def test_a_separate_simulator_moves_to_the_other_relay_when_its_own_dies() -> None:
    tables = Tables()
    tables.put(5, {ALLOW: packed("10.0.0.0/8")})
    async with served(tables) as survivor, Dialer() as dialer:
        async with served(tables) as victim:
            addresses = [victim.address, survivor.address]
            zones, rng = StaticRegistrar(tables, "a", "b"), random.Random(2)
            simulator = Simulator(zones, addresses, dial=dialer.dial, rng=rng, dpus_per_zone=300)
            running = asyncio.create_task(simulator.run())
            await until(lambda: simulator.devices.records.count == 600 and all_really_have(simulator, tables))
            snapshots = tables.snapshots
        tables.put(6, {ALLOW: packed("10.0.0.0/8", "11.0.0.0/8")})
        await until(lambda: all_really_have(simulator, tables))
        await until(lambda: versions(survivor.relay) == [6] * 600)
        assert tables.snapshots == snapshots
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def versions(relay: Relay) -> list[int]:
    return [held.version for zone in relay.devices().values() for held in zone.values()]


def all_really_have(simulator: Simulator, tables: Tables) -> bool:
    actual = {int(number) for number in simulator.devices.records.actual}
    return all(simulator.devices.tables[number] == tables.table for number in actual)


async def test_an_unreachable_relay_is_reported_as_unreachable() -> None:
    async with Dialer() as dialer:
        with pytest.raises(LinkClosed, match=r"^127\.0\.0\.1:1 cannot be reached: Connection refused$"):
            await dialer.dial("127.0.0.1:1")


@pytest.mark.parametrize(
    ("answered", "says"),
    [
        (b"\x00\x00\x1e\x04\x00\x00\x00\x00\x00", "does not speak HTTP: it is not the address of agents of a relay"),
        (b"", "closed the connection without an answer; if this repeats, check that both sides use TLS, or neither$"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "refuses the role of the certificate: it must be dpu-agent, or "),
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "does not accept the certificate: it may be revoked"),
        (
            b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 33\r\n\r\ncertificate: the one of a\x07is old\n",
            r"refuses the link: certificate: the one of a.*is old$",
        ),
        (b"HTTP/1.1 404 Not Found\r\n\r\nno page", "answered HTTP status 404 instead of opening a link$"),
    ],
)
async def test_the_cause_of_a_link_that_is_not_opened_is_reported(answered: bytes, says: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answered)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Dialer() as dialer:
        with pytest.raises(LinkClosed, match=rf"^127\.0\.0\.1:{port} {says}"):
            await dialer.dial(f"127.0.0.1:{port}")
