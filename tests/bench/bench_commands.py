"""The cost of a command beyond the append that makes it durable: 18 claims at once, and one join at a time.

Both run on an embedded log and on Kafka with three brokers, through the gRPC API of a plane in a process of its own.
The append is measured in turns with the commands, from this process, in a log of its own on the same disk or brokers.
Eighteen daemons of a clique claim at the same instant, each over a connection of its own; the time ends when each has
its index. Two peers are measured beside it: eighteen calls of a server that does nothing, and eighteen claims inside
the plane, without gRPC.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import uvloop

from deploy.composition.topics import TOPICS
from eventstore.avro.codec import encode
from eventstore.embedded.log import EmbeddedLog
from eventstore.ids import envelope
from eventstore.kafka.log import KafkaLog
from eventstore.log import CLIQUES, ZONES, EventLog, Partition
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import CommandsStub
from schemas.events import IndicesClaimed
from tests.bench.apart import apart, beside, pipe, serving
from tests.bench.brokers import APPEND_S, cluster, new_prefix
from tests.bench.echo import run_echo
from tests.bench.figures import Figure, percentile
from tests.bench.planes import Place, serving_plane
from tests.bench.workload import FIRST_ADDRESS, joins, new_id, now_ms

CLAIMERS = 18
ROUNDS = 200
WARM_UP = 20
TIMEOUT_S = 30.0
ON_KAFKA = "on Kafka"


class Turns(NamedTuple):
    """The milliseconds of each turn."""

    append: list[float]
    join: list[float]
    claims: list[float]
    echoes: list[float]


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving("--data", str(folder / "plane")) as addresses:
            embedded = _measured(addresses["api"], lambda: EmbeddedLog.open(TOPICS, folder / "log", now_ms=now_ms))
        inside = apart(_claimed_inside, folder / "inside")
        with cluster(folder / "kafka") as brokers:
            prefixes = [new_prefix() for _ in range(2)]
            with serving("--kafka", brokers, "--topic-prefix", prefixes[0]) as addresses:
                on_kafka = _measured(addresses["api"], lambda: _kafka(brokers, prefixes[1]))
            inside_on_kafka = apart(_claimed_inside, (brokers, new_prefix()))
    return [*_compared("embedded", embedded, inside), *_compared(ON_KAFKA, on_kafka, inside_on_kafka)]


def _compared(where: str, turns: Turns, inside_ms: list[float]) -> list[Figure]:
    append, join, claims, echoes = (percentile(column, 0.5) for column in turns)
    said = f"{CLAIMERS} claims at once, {where}"
    added_aim = 3.0 if where == ON_KAFKA else None
    return [
        Figure(f"one append, {where}, p50", append, "ms", better="lower"),
        Figure(f"one join through the API, {where}, p50", join, "ms", append, "one append", better="lower"),
        Figure(f"one join, {where}: added to an append", join - append, "ms", aim=added_aim, better="lower"),
        Figure(f"{said}, until each knows its index, p50", claims, "ms", append, "one append", append + 5, "lower"),
        Figure(f"{said}, p99", percentile(turns.claims, 0.99), "ms", better="lower"),
        Figure(f"{said}: added to an append", claims - append, "ms", echoes, "18 calls of an echo", 5.0, "lower"),
        Figure(f"{said}, inside the plane: added", percentile(inside_ms, 0.5) - append, "ms", aim=5.0, better="lower"),
    ]


@asynccontextmanager
async def _kafka(brokers: str, prefix: str) -> AsyncIterator[EventLog]:
    async with KafkaLog.open(TOPICS, brokers, topic_prefix=prefix, rng=random.Random(1)) as log:
        yield log


def _measured(api: str, open_log: Callable[[], Any]) -> Turns:
    told, tell = pipe()
    with beside(run_echo, tell):
        return uvloop.run(_measure(api, told.recv(), open_log))


async def _measure(api: str, echo_address: str, open_log: Callable[[], Any]) -> Turns:
    async with AsyncExitStack() as stack:
        log: EventLog = await stack.enter_async_context(open_log())
        planes, echoes = [
            [CommandsStub(await stack.enter_async_context(_channel(address))) for _ in range(CLAIMERS)]
            for address in (api, echo_address)
        ]
        turns = Turns([], [], [], [])
        for number in range(WARM_UP + ROUNDS):
            turns.append.append(await _timed(_append(log, number)))
            turns.join.append(await _timed(_join(planes[0], number)))
            turns.claims.append(await _timed(_claims(planes, number)))
            turns.echoes.append(await _timed(_echoed(echoes, number)))
    return Turns(*(column[WARM_UP:] for column in turns))


def _claimed_inside(place: Place) -> list[float]:
    return uvloop.run(_claim_inside(place))


async def _claim_inside(place: Place) -> list[float]:
    async with serving_plane(place) as plane:

        async def claim(domain: str, claimer: int) -> int:
            node = f"node-{claimer}"
            event = IndicesClaimed(
                envelope(f"{domain}/clique-1", "bench", new_id()), domain, "clique-1", [node], [], [], [], []
            )
            partition = plane.replica.partition_for(CLIQUES, domain)
            answer = await plane.replica.submit(partition, domain.encode(), event, timeout_s=TIMEOUT_S)
            return answer.outcome.result["index"]

        async def claims(domain: str) -> None:
            found = await asyncio.gather(*(claim(domain, claimer) for claimer in range(CLAIMERS)))
            assert sorted(found) == list(range(CLAIMERS)), found

        return [await _timed(claims(f"domain-{number}")) for number in range(WARM_UP + ROUNDS)][WARM_UP:]


def _channel(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])


async def _timed(work: Awaitable[None]) -> float:
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1e3


async def _append(log: EventLog, number: int) -> None:
    (event,) = joins(1, 1, 1, first=number, seed=number)
    await log.append(Partition(ZONES, 0), event.zone.encode(), encode(event), timeout_s=APPEND_S)


async def _join(calls: Any, number: int) -> None:
    node = pb.NodeSpec(name=f"node-{number}", addresses=[str(IPv4Address(FIRST_ADDRESS + number))])
    answer = await calls.JoinNodes(pb.JoinNodesRequest(zone="zone-1", nodes=[node]), timeout=TIMEOUT_S)
    assert answer.outcome == pb.OUTCOME_DONE, answer


async def _claims(daemons: Sequence[Any], number: int) -> None:
    """Check that every claim got a different index, and that none is left."""
    requests = [
        pb.ClaimIndicesRequest(
            domain=f"domain-{number}", clique="clique-1", claims=[pb.ClaimSpec(node=f"node-{claimer}")]
        )
        for claimer in range(len(daemons))
    ]
    calls = zip(daemons, requests, strict=True)
    answers = await asyncio.gather(*(daemon.ClaimIndices(request, timeout=TIMEOUT_S) for daemon, request in calls))
    assert sorted(answer.index for answer in answers) == list(range(CLAIMERS)), answers


async def _echoed(daemons: Sequence[Any], number: int) -> None:
    request = pb.JoinNodesRequest(zone=f"zone-{number}")
    await asyncio.gather(*(daemon.JoinNodes(request, timeout=TIMEOUT_S) for daemon in daemons))
