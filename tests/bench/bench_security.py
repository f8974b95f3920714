"""The cost of mutual TLS and authorisation for a command: joins through the API, with and without.

The two planes are processes of their own, called by the same client in turns, so that both have the same share of a
noisy machine. The cost for an agent is in bench_agents.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from ipaddress import IPv4Address
from itertools import count, islice
from pathlib import Path
from typing import Any

import grpc
import uvloop

from deploy.demo.load import run_all
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import CommandsStub
from tests.bench.apart import serving
from tests.bench.cert_files import CertFiles, issue
from tests.bench.figures import Figure
from tests.bench.workload import FIRST_ADDRESS, LABELS, name_of, zone_name

CALLS = 4_000
ROUNDS = 5
ZONES = 200
TIMEOUT_S = 30.0


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return _commands(folder, issue(folder / "certs"))


def _commands(folder: Path, cert_files: dict[str, CertFiles]) -> list[Figure]:
    cert, key, ca = map(str, cert_files["plane"])
    tls = ("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca)
    with ExitStack() as stack:
        bare = stack.enter_context(serving("--data", str(folder / "bare")))
        safe = stack.enter_context(serving("--data", str(folder / "safe"), *tls))
        return uvloop.run(_measure_commands(bare["api"], safe["api"], cert_files["operator"]))


async def _measure_commands(bare: str, safe: str, operator: CertFiles) -> list[Figure]:
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
        assert answer.outcome == pb.OUTCOME_DONE, answer

    requests = [_join(number) for number in islice(numbers, CALLS)]
    began = time.perf_counter()
    await run_all(ask, requests)
    return CALLS / (time.perf_counter() - began)


def _join(number: int) -> pb.JoinNodesRequest:
    address = str(IPv4Address(FIRST_ADDRESS + number))
    node = pb.NodeSpec(name=name_of(number), addresses=[address], labels=LABELS[number % len(LABELS)])
    return pb.JoinNodesRequest(zone=zone_name(number % ZONES), nodes=[node])
