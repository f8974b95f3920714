"""The time to recover after SIGKILL of one process of each role, of controllers, and of the broker that leads.

Three brokers with short timeouts and three separate controllers, two processes of each role, and DPUs with real agents
that have the addresses of both relays. At the instant of the kill a client sends a join to the process of its open
connection, and repeats it under the same id to the other one when that fails. Measured are the time to its answer, and
the time until the last DPU has the rule. No other command is sent, so a fault that only the next command notices counts
in full. The killed brokers are the leaders of the join's zone and of fleet in turn, and once more in a cluster whose
brokers are also controllers. All processes are up again before the next cycle.

Without a new leader no client can write. The peer is therefore a bare producer of librdkafka that writes one record to
a partition of the same broker during the join; its time to the acknowledgement is printed beside ours.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import uvloop

from deploy.composition.topics import TOPICS
from deploy.kafka.brokers import ports_for
from deploy.kafka.jars import cache_folder
from drivers.agents.agent import Agent, AgentIdentity
from drivers.agents.store import MemoryTableStore
from drivers.backends.simulated import SimulatedDevice
from drivers.simulators.simulator import NAMING
from drivers.wire.websocket import Dialer
from eventstore.log import DEFAULT_PARTITION_COUNT, FLEET_0, ZONES, Partition
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import CommandsStub
from tests.bench.bare_producer import BareProducer
from tests.bench.brokers import new_prefix
from tests.bench.figures import Figure, percentile
from tests.bench.planes import until
from tests.bench.workload import FIRST_ADDRESS, new_id, zone_name
from tests.support.kafka_operator import Operator
from tests.support.struck_brokers import StruckBrokers

ROLES = ("api", "relay", "provisioner")
CYCLES = 4
"""The number of kills of each role and of each leader."""
CONTROLLERS = 3
BOTH = "leading broker, a controller too,"
"""The name of a figure without an aim: deploy/README.md recommends separate controllers."""
AGENTS_PER_ZONE = 25
FLEET_ZONES = 2
ASK_S = 0.5
"""The time that a client waits for one process before it calls the other."""
REST_S = 3.0
"""The pause between recovery and the next kill. It exceeds the time for which a beacon is fresh."""
JOIN_S = 60.0


class Stall(NamedTuple):
    """Seconds from a kill to the answer of a join, and to its rule on every DPU."""

    answered_s: float
    applied_s: float
    bare_s: float = 0.0
    """Seconds until a record of a bare producer was acknowledged, if a broker was killed."""


def figures() -> list[Figure]:
    return uvloop.run(_measure())


async def _measure() -> list[Figure]:
    async with _cluster(CONTROLLERS) as (brokers, prefix, processes, bench):
        stall_detector = {
            f"role {role}": [await bench.stalled(each) for each in _in_turn(processes, role)] for role in ROLES
        }
        controllers = [_Controller(brokers, number) for number in brokers.controller_ids]
        stall_detector["each controller"] = [await bench.stalled(each) for each in controllers]
        stall_detector["leading broker"] = await _leader_stalls(brokers, prefix, bench)
    async with _cluster(0) as (brokers, prefix, _, bench):
        both = await _leader_stalls(brokers, prefix, bench)
    return [figure for name, found in stall_detector.items() for figure in _figures(name, found)] + _figures(BOTH, both)


@asynccontextmanager
async def _cluster(controllers: int) -> AsyncIterator[tuple[StruckBrokers, str, list[_Process], _Bench]]:
    """StruckBrokers, a prefix of topics on them, and processes and agents that use them."""
    with tempfile.TemporaryDirectory() as folder:
        whole = StruckBrokers(Path(folder) / "kafka", cache_folder(os.environ), controllers=controllers)
        async with whole as brokers, AsyncExitStack() as stack:
            prefix = new_prefix()
            made = [_Process(brokers, prefix, role) for role in ROLES for _ in range(2)]
            processes = [await stack.enter_async_context(process) for process in made]
            yield brokers, prefix, processes, await stack.enter_async_context(_bench(processes))


async def _leader_stalls(brokers: StruckBrokers, prefix: str, bench: _Bench) -> list[Stall]:
    operator = Operator(brokers.bootstrap, prefix)
    bare = await asyncio.to_thread(BareProducer, brokers.bootstrap, f"{prefix}.bare")
    return [
        await bench.stalled(_Leader(brokers, operator, leads, bare))
        for _ in range(CYCLES)
        for leads in (_partition_of(zone_name(0)), FLEET_0)
    ]


def _in_turn(processes: Sequence[_Process], role: str) -> list[_Process]:
    return [process for process in processes if process.role == role] * (CYCLES // 2)


def _partition_of(zone: str) -> Partition:
    return TOPICS.partition_for(ZONES, zone, DEFAULT_PARTITION_COUNT)


def _figures(name: str, stall_detector: Sequence[Stall]) -> list[Figure]:
    answered, applied, bare = ([stall[column] for stall in stall_detector] for column in (0, 1, 2))
    dpus = f"on all of {FLEET_ZONES * AGENTS_PER_ZONE} DPUs"
    peer = "librdkafka acknowledged" if any(bare) else ""
    bare_p50, bare_p99 = (percentile(bare, share) or None for share in (0.5, 0.99))
    aims = (None, None) if name == BOTH else (1.0, 2.0)
    return [
        Figure(
            f"{name} killed: a join is answered, p50", percentile(answered, 0.5), "s", bare_p50, peer, None, "lower"
        ),
        Figure(
            f"{name} killed: a join is answered, p99", percentile(answered, 0.99), "s", bare_p99, peer, aims[0], "lower"
        ),
        Figure(f"{name} killed: a join is {dpus}, p50", percentile(applied, 0.5), "s", better="lower"),
        Figure(f"{name} killed: a join is {dpus}, p99", percentile(applied, 0.99), "s", aim=aims[1], better="lower"),
    ]


class _Process:
    """A process of one role, which can be killed and restarted at the same addresses."""

    def __init__(self, brokers: StruckBrokers, prefix: str, role: str) -> None:
        self.role = role
        self.listen, http, self.agents = (f"127.0.0.1:{port}" for port in ports_for(3, None))
        listeners = [f"--listen={self.listen}", f"--http={http}", f"--agents={self.agents}", "--log-level=ERROR"]
        where = ["--kafka", brokers.bootstrap, "--topic-prefix", prefix, "--role", role]
        self._command = [str(Path(sys.executable).with_name("dpuplane")), "serve", *where, *listeners]
        self._child: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> _Process:
        await self.heal()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def kill(self) -> None:
        """Send SIGKILL."""
        if self._child is not None and self._child.returncode is None:
            self._child.kill()
            await self._child.wait()

    async def bare_s(self) -> float:
        """The wait of a client that writes to the brokers alone: none."""
        return 0.0

    async def heal(self) -> None:
        """Restart the process; return when it is ready."""
        self._child = await asyncio.create_subprocess_exec(*self._command, stdout=asyncio.subprocess.PIPE)
        assert self._child.stdout is not None
        assert (await self._child.stdout.readline()).startswith(b"ready"), f"{self.role}: see above"


class _Leader:
    """The broker that currently leads a partition."""

    def __init__(self, brokers: StruckBrokers, operator: Operator, leads: Partition, bare: BareProducer) -> None:
        self._brokers = brokers
        self._operator = operator
        self._leads = leads
        self._bare = bare
        self._bare_partition = 0

    async def kill(self) -> None:
        leader = await self._operator.leader(self._leads)
        self._bare_partition = await asyncio.to_thread(self._bare.led_by, leader)
        self._brokers.kill(leader)

    async def bare_s(self) -> float:
        return await asyncio.to_thread(self._bare.acknowledged_s, self._bare_partition)

    async def heal(self) -> None:
        await self._brokers.heal()


class _Controller:
    """A controller that is no broker: brokers keep working while the others elect a leader."""

    def __init__(self, brokers: StruckBrokers, number: int) -> None:
        self._brokers = brokers
        self._number = number

    async def kill(self) -> None:
        self._brokers.kill(self._number)

    async def bare_s(self) -> float:
        """No partition loses its leader, so the wait is zero."""
        return 0.0

    async def heal(self) -> None:
        await self._brokers.heal()


@asynccontextmanager
async def _bench(processes: Sequence[_Process]) -> AsyncIterator[_Bench]:
    relays = [process.agents for process in processes if process.role == "relay"]
    servers = [process.listen for process in processes if process.role == "api"]
    async with AsyncExitStack() as stack:
        dialer = await stack.enter_async_context(Dialer())
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        calls = [CommandsStub(await stack.enter_async_context(_channel(server))) for server in servers]
        agents = []
        rng = random.Random(6)
        for zone in map(zone_name, range(FLEET_ZONES)):
            for number in range(AGENTS_PER_ZONE):
                identity = AgentIdentity(zone, NAMING.dpu.format(zone=zone, number=number), "boot-1")
                device = SimulatedDevice(rng=rng)
                agents.append(
                    Agent(identity, relays, dial=dialer.dial, device=device, store=MemoryTableStore(), rng=rng)
                )
        await _register(calls[0])
        running = [tasks.create_task(agent.run()) for agent in agents]
        bench = _Bench(calls, agents)
        await bench.join()
        yield bench
        for task in running:
            task.cancel()


def _channel(server: str) -> grpc.aio.Channel:
    """A channel that retries a failed server at once: a client with two servers has no reason to wait."""
    return grpc.aio.insecure_channel(server, options=[("grpc.max_reconnect_backoff_ms", 200)])


async def _register(calls: Any) -> None:
    for zone in map(zone_name, range(FLEET_ZONES)):
        for number in range(AGENTS_PER_ZONE):
            dpu, node, serial, bmc = (text.format(zone=zone, number=number) for text in NAMING)
            request = pb.RegisterDpuRequest(zone=zone, dpu=dpu, node=node, serial=serial, bmc_address=bmc)
            answer = await calls.RegisterDpu(request, timeout=JOIN_S)
            assert answer.outcome == pb.OUTCOME_DONE, answer


class _Bench:
    """A client with connections to both processes of the API, and the agents of every DPU."""

    def __init__(self, calls: Sequence[Any], agents: Sequence[Agent]) -> None:
        self._calls = calls
        self._agents = agents
        self._asked = 0
        self._nodes = 0

    async def stalled(self, victim: _Process | _Controller | _Leader) -> Stall:
        """Kill the process, join a node, and restart the process."""
        await victim.kill()
        stall, bare_s = await asyncio.gather(self.join(), victim.bare_s())
        await victim.heal()
        await self.join()
        await asyncio.sleep(REST_S)
        return stall._replace(bare_s=bare_s)

    async def join(self) -> Stall:
        """Join a node; the time until the answer, and until every agent had its rule."""
        began_s = time.perf_counter()
        before = max(agent.table.version for agent in self._agents)
        await self._ask()
        answered_s = time.perf_counter() - began_s
        await until(lambda: min(agent.table.version for agent in self._agents) > before)
        return Stall(answered_s, time.perf_counter() - began_s)

    async def _ask(self) -> None:
        """Send one command under one id to one process after the other, until one answers."""
        self._nodes += 1
        node = pb.NodeSpec(name=f"node-{self._nodes}", addresses=[str(IPv4Address(FIRST_ADDRESS + self._nodes))])
        request = pb.JoinNodesRequest(command_id=new_id(), zone=zone_name(0), nodes=[node])
        async with asyncio.timeout(JOIN_S):
            while not await self._answered(request):
                self._asked += 1

    async def _answered(self, request: pb.JoinNodesRequest) -> bool:
        try:
            answer = await self._calls[self._asked % len(self._calls)].JoinNodes(request, timeout=ASK_S)
        except grpc.aio.AioRpcError:
            return False
        assert answer.outcome in (pb.OUTCOME_DONE, pb.OUTCOME_UNKNOWN), answer
        return bool(answer.outcome == pb.OUTCOME_DONE)
