"""Commands through the gRPC API of an embedded plane in its own process, against a grpc.aio server that does nothing.

The same client calls the echo server with the same messages, in turns with the plane, so that both have the same share
of a noisy machine. The plane answers a command when it is durable, folded and decided.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address
from itertools import count, islice
from pathlib import Path
from typing import Any

import grpc
import uvloop
from google.protobuf.message import Message

from deploy.demo.load import run_all
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import CommandsStub, QueriesStub
from tests.bench.apart import beside, pipe, serving
from tests.bench.echo import run_echo
from tests.bench.figures import Figure
from tests.bench.workload import FIRST_ADDRESS, LABELS, name_of, zone_name

CALLS = 4_000
ROUNDS = 5
BULK_NODES = 200_000
PER_MESSAGE = 1_000
BULK_NETWORK = 1 << 24
ZONES = 200
CLIQUES = 200
CLAIMERS = 18
TIMEOUT_S = 30.0


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder, serving("--data", str(Path(folder) / "plane")) as addresses:
        told, tell = pipe()
        with beside(run_echo, tell):
            return uvloop.run(_measure(addresses["api"], told.recv()))


class _Server:
    """One of the two servers, called as by any client."""

    def __init__(self, address: str, answer: type[Message]) -> None:
        self.channel = grpc.aio.insecure_channel(address)
        self._dump = pb.JoinNodesRequest.SerializeToString
        self._join = self.channel.unary_unary(_path("JoinNodes"), self._dump, answer.FromString)
        self._stream = self.channel.stream_unary(_path("JoinNodesStream"), self._dump, pb.JoinSummary.FromString)

    async def unary(self, numbers: Iterable[int], calls: int) -> float:
        """Calls per second, with IN_FLIGHT at a time."""
        requests = [_join(number) for number in islice(numbers, calls)]
        began = time.perf_counter()
        await run_all(self._ask, requests)
        return calls / (time.perf_counter() - began)

    async def _ask(self, request: pb.JoinNodesRequest) -> None:
        answer = await self._join(request, timeout=TIMEOUT_S)
        assert not isinstance(answer, pb.CommandResult) or answer.outcome == pb.OUTCOME_DONE, answer

    async def bulk(self, messages: Sequence[pb.JoinNodesRequest]) -> float:
        """Joins per second, from the first message until fleet has folded the last one."""
        began = time.perf_counter()
        summary = await self._stream(iter(messages), timeout=TIMEOUT_S)
        assert summary.done == BULK_NODES, summary
        if summary.position:
            queries: Any = QueriesStub(self.channel)
            async for _ in queries.GetRules(pb.GetRulesRequest(min_position=summary.position, zone=zone_name(0))):
                pass
        return BULK_NODES / (time.perf_counter() - began)


async def _measure(plane_address: str, echo_address: str) -> list[Figure]:
    plane, echo = _Server(plane_address, pb.CommandResult), _Server(echo_address, pb.JoinNodesRequest)
    async with plane.channel, echo.channel:
        numbers = count()
        rates = [(await plane.unary(numbers, CALLS), await echo.unary(numbers, CALLS)) for _ in range(ROUNDS + 1)][1:]
        share = statistics.median(ours / bare for ours, bare in rates)
        ours, bare = (statistics.median(column) for column in zip(*rates, strict=True))
        taken = [[await _claim(plane, f"domain-{size}-{n}", size) for size in (CLAIMERS, 1)] for n in range(ROUNDS + 1)]
        together, singly = (statistics.median(column) for column in zip(*taken[1:], strict=True))
        bulk, sunk = await plane.bulk(_bulk_joins()), await echo.bulk(_bulk_joins())
    claims = f"{CLIQUES * CLAIMERS:,}"
    return [
        Figure("unary joins, 200 in flight", ours, "calls/s", bare, "grpc.aio echo"),
        Figure("unary joins, share of the echo's rate", 100 * share, "%", aim=70.0),
        Figure(
            f"{claims} claims, one record per clique", together, "s", singly, "one record per claim", better="lower"
        ),
        Figure("bulk joins, folded by fleet", bulk, "joins/s", sunk, "grpc.aio sink", 150e3),
    ]


async def _claim(plane: _Server, domain: str, per_record: int) -> float:
    """Seconds until every member of every clique has its index, with so many claims in a record."""
    calls: Any = CommandsStub(plane.channel)
    requests = [
        pb.ClaimIndicesRequest(
            domain=domain,
            clique=f"clique-{clique}",
            claims=[pb.ClaimSpec(node=f"node-{clique}-{start + n}") for n in range(per_record)],
        )
        for clique in range(CLIQUES)
        for start in range(0, CLAIMERS, per_record)
    ]

    async def ask(request: pb.ClaimIndicesRequest) -> None:
        answer = await calls.ClaimIndices(request, timeout=TIMEOUT_S)
        assert all(each.HasField("index") for each in answer.items or [answer]), answer

    began = time.perf_counter()
    await run_all(ask, requests)
    return time.perf_counter() - began


def _path(method: str) -> str:
    return f"/dpuplane.v1.Commands/{method}"


def _join(number: int) -> pb.JoinNodesRequest:
    address = str(IPv4Address(FIRST_ADDRESS + number))
    node = pb.NodeSpec(name=name_of(number), addresses=[address], labels=LABELS[number % len(LABELS)])
    return pb.JoinNodesRequest(zone=zone_name(number % ZONES), nodes=[node])


def _bulk_joins() -> Sequence[pb.JoinNodesRequest]:
    """Joins of distinct nodes, with addresses of a network of their own."""
    label_sets = [pb.LabelSet(labels=labels) for labels in LABELS]
    requests = []
    for message, start in enumerate(range(0, BULK_NODES, PER_MESSAGE)):
        numbers = range(start, start + PER_MESSAGE)
        columns = pb.NodeColumns(
            names=[f"bulk-{number:07}" for number in numbers],
            addresses4=b"".join((FIRST_ADDRESS + BULK_NETWORK + number).to_bytes(4, "big") for number in numbers),
            label_sets=label_sets,
            label_index=[number % len(LABELS) for number in numbers],
        )
        requests.append(pb.JoinNodesRequest(zone=zone_name(message % ZONES), columns=columns))
    return requests
