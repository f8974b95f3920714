"""What mutual TLS and authorisation cost: commands a second, and a join's way to 1,000 agents, with and without.

The two planes of the first figure are processes of their own, called by the same client in turns, so that both have the
same share of a noisy machine. The agents are in one process beside one relay, first without TLS and then with it.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import uvloop

from deploy.demo.load import run_all
from deploy.plane import Plane
from deploy.tls.authority import Authority
from deploy.tls.certificates import Certificates
from deploy.tls.security import Security
from drivers.agent import Agent, Identity
from drivers.agent_store import MemoryStore
from drivers.backends.simulated import SimulatedDevice
from drivers.latency import Histogram
from drivers.relay import Relay, RelaySettings
from drivers.replica_rules import ReplicaRules
from drivers.reports import Level
from drivers.simulator import NAMING
from drivers.websocket import AgentListener, Dialer
from projections.principals import Principal
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import CommandsStub
from tests.bench.apart import apart, beside, serving
from tests.bench.figures import Figure
from tests.bench.planes import all_up_to_date, fill, serving_plane, submit, until
from tests.bench.workload import FIRST_ADDRESS, LABELS, joins, name_of, now_ms, zone_name

CALLS = 4_000
ROUNDS = 5
ZONES = 200
TIMEOUT_S = 30.0
NODES = 20_000
AGENTS = 1_000
CHANGES = 30
SETTINGS = RelaySettings(handshakes_per_second=2_000, handshakes_at_once=4_000)
HOSTS = ("127.0.0.1",)


class Files(NamedTuple):
    """A certificate, its key, and the authority."""

    cert: Path
    key: Path
    ca: Path


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        papers = _issue(folder / "certs")
        found = _commands(folder, papers)
        data = folder / "agents"
        apart(fill, data, 1, NODES, AGENTS)
        return found + uvloop.run(_links(data, papers))


def _issue(folder: Path) -> dict[str, Files]:
    now = datetime.now(UTC)
    authority = Authority.make(folder, "bench.example", now=now, valid=timedelta(days=1))
    issued = {}
    for role in ("plane", "operator", "simulator"):
        made = authority.issue(Principal(role, "bench"), hosts=HOSTS, now=now, valid=timedelta(days=1))
        issued[role] = Files(made.cert, made.key, authority.cert)
    return issued


# --- commands -----------------------------------------------------------------------------------------------------


def _commands(folder: Path, papers: dict[str, Files]) -> list[Figure]:
    cert, key, ca = map(str, papers["plane"])
    tls = ("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca)
    with ExitStack() as stack:
        bare = stack.enter_context(serving("--data", str(folder / "bare")))
        safe = stack.enter_context(serving("--data", str(folder / "safe"), *tls))
        return uvloop.run(_measure_commands(bare["api"], safe["api"], papers["operator"]))


async def _measure_commands(bare: str, safe: str, operator: Files) -> list[Figure]:
    cert, key, ca = (path.read_bytes() for path in operator)
    credentials = grpc.ssl_channel_credentials(ca, key, cert)
    numbers = count()
    async with grpc.aio.insecure_channel(bare) as plain, grpc.aio.secure_channel(safe, credentials) as secured:
        rates = [(await _rate(secured, numbers), await _rate(plain, numbers)) for _ in range(ROUNDS + 1)][
            1:
        ]  # the first round warms up
    ours, theirs = (statistics.median(column) for column in zip(*rates, strict=True))
    share = statistics.median(secure / insecure for secure, insecure in rates)
    return [
        Figure("unary joins over mutual TLS, authorised", ours, "calls/s", theirs, "without either"),
        Figure("share of the rate that is left", 100 * share, "%"),
    ]


async def _rate(channel: grpc.aio.Channel, numbers: Iterable[int]) -> float:
    calls: Any = CommandsStub(channel)

    async def ask(request: pb.JoinNodesRequest) -> None:
        answer = await calls.JoinNodes(request, timeout=TIMEOUT_S)
        assert answer.outcome == pb.Answer.done, answer

    requests = [_join(number) for number in islice(numbers, CALLS)]
    began = time.perf_counter()
    await run_all(ask, requests)
    return CALLS / (time.perf_counter() - began)


def _join(number: int) -> pb.JoinNodesRequest:
    address = str(IPv4Address(FIRST_ADDRESS + number))
    node = pb.NodeSpec(name=name_of(number), addresses=[address], labels=LABELS[number % len(LABELS)])
    return pb.JoinNodesRequest(zone=zone_name(number % ZONES), nodes=[node])


# --- agents -------------------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """How agents fared."""

    connected_s: float
    latency: Histogram


async def _links(data: Path, papers: dict[str, Files]) -> list[Figure]:
    async with serving_plane(data) as plane:
        bare = await _agents_fare(plane, None, None, 0)
        safe = await _agents_fare(plane, papers["plane"], papers["simulator"], CHANGES)
    name, peer = f"one join to {AGENTS:,} agents over mutual TLS", "without TLS"
    return [
        Figure(
            f"{name}, p{share * 100:g}",
            safe.latency.quantile(share),
            "ms",
            bare.latency.quantile(share),
            peer,
            better="lower",
        )
        for share in (0.5, 0.99)
    ] + [
        Figure(
            f"{AGENTS:,} agents connect and are sent 20,000 nodes",
            safe.connected_s,
            "s",
            bare.connected_s,
            peer,
            better="lower",
        )
    ]


async def _agents_fare(plane: Plane, ours: Files | None, theirs: Files | None, joined: int) -> Way:
    relay = plane.relay = Relay(
        ReplicaRules(plane.replica), name="bench", now_ms=now_ms, rng=random.Random(5), settings=SETTINGS
    )
    ssl, door = (None, None) if ours is None else Security(Certificates(*ours), now_ms).agents("/devices")
    running = asyncio.create_task(relay.run())
    listener = AgentListener(
        relay.serve, relay.admit, host="127.0.0.1", port=0, ssl=ssl, middlewares=[door] if door else []
    )
    try:
        async with listener:
            with beside(_run_agents, listener.port, theirs):
                await until(lambda: _connected(relay) > 0)
                began = time.perf_counter()
                await all_up_to_date(plane, 1, NODES + joined, AGENTS)
                connected_s = time.perf_counter() - began
                return Way(connected_s, await _change(plane, relay, joined))
    finally:
        running.cancel()


async def _change(plane: Plane, relay: Relay, joined: int) -> Histogram:
    """Joins one by one, each when the one before is everywhere; the time to each agent."""
    latency = relay.latency[Level.APPLIED] = Histogram()
    for number, event in enumerate(joins(CHANGES, 1, per_record=1, first=NODES + joined), start=1):
        await submit(plane, event)
        await until(lambda number=number: latency.count >= number * AGENTS)  # type: ignore[misc]
    return latency


def _connected(relay: Relay) -> int:
    return sum(len(zone.speakers) for zone in relay.zones.values())


def _run_agents(port: int, papers: Files | None) -> None:
    uvloop.run(_agents(f"127.0.0.1:{port}", papers))


async def _agents(relay: str, papers: Files | None) -> None:
    rng, zone = random.Random(6), zone_name(0)
    certificates = None if papers is None else Certificates(*papers)
    dialing = Dialer(None if certificates is None else certificates.client_context)
    async with dialing as dialer, asyncio.TaskGroup() as tasks:
        for number in range(AGENTS):
            identity = Identity(zone, NAMING.dpu.format(zone=zone, number=number), "boot-1")
            device = SimulatedDevice(rng=rng)
            agent = Agent(identity, (relay,), dial=dialer.dial, device=device, store=MemoryStore(), rng=rng)
            tasks.create_task(agent.run())
