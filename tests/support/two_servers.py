"""Two servers of one log on virtual time, one of which reads it late: consistency as a client of both sees it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from google.protobuf.message import Message

from commands.queries.status import LogLocation, StatusReporter
from commands.rpc.middleware import Call
from commands.server import ApiServer
from deploy.composition.roles import folds_of
from drivers.forwarder import Forwarder
from eventstore.ids import uuid7
from eventstore.replicas.beacons import SingleReplica
from eventstore.replicas.replica import Replica
from eventstore.state_store.store import DigestStore
from projections.rules.rule import Holdings
from schemas.api import dpuplane_pb2 as pb
from tests.simulation.api import Api
from tests.support.memory_log import Contents, MemoryLog
from tests.support.toy_log import T0

PARTITIONS = 3
TIMEOUT_S = 20.0


class Server:
    """One server, called through its production handlers."""

    def __init__(self, contents: Contents, name: str) -> None:
        self._rng = random.Random(name)
        self.log = MemoryLog(contents, _now_ms)
        folds = folds_of(PARTITIONS)
        self.replica = Replica(self.log, folds, store=DigestStore(), name=name, now_ms=_now_ms, rng=self._rng)
        board = StatusReporter(
            self.replica,
            location=LogLocation("memory"),
            roles=["api"],
            addresses={},
            version="1",
            alive=lambda: [],
            stalled=lambda: {},
        )
        options: dict[str, Any] = {"listen": "", "now_ms": _now_ms, "rng": self._rng}
        self.commands = ApiServer(self.replica, status=board, devices=_no_devices, **options)
        self._api = Api(self.commands)

    async def run(self) -> None:
        forwarder = Forwarder(self.replica, SingleReplica(self.replica.name), now_ms=_now_ms, rng=self._rng)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.replica.run())
            tasks.create_task(forwarder.run())

    async def ask(self, method: str, request: Message, principal: str = "ann") -> pb.CommandResult:
        """Send a command. Raises Aborted."""
        raw = await self._api.call("Commands", method, request.SerializeToString(), principal, TIMEOUT_S)
        return pb.CommandResult.FromString(raw)

    async def show(self, command_id: str) -> pb.CommandResult:
        asked = pb.GetCommandRequest(command_id=command_id).SerializeToString()
        return pb.CommandResult.FromString(await self._api.call("Queries", "GetCommand", asked, "ann", TIMEOUT_S))

    async def join_all(self, *requests: pb.JoinNodesRequest) -> pb.JoinSummary:
        """Send a stream of joins."""

        async def stream() -> AsyncIterator[pb.JoinNodesRequest]:
            for request in requests:
                yield request

        served: Any = self.commands._served["Commands"]
        summary: pb.JoinSummary = await served.join_nodes_stream(stream(), Call("?ann", TIMEOUT_S))
        return summary


class Servers(NamedTuple):
    """`late` reads each record half a second after its append."""

    prompt: Server
    late: Server
    contents: Contents

    def command_id(self) -> str:
        return uuid7(_now_ms(), random.Random(f"{asyncio.get_running_loop().time()}/{_records(self.contents)}"))


@asynccontextmanager
async def two_servers() -> AsyncIterator[Servers]:
    """Two servers, both ready."""
    contents = Contents(PARTITIONS)
    prompt, late = Server(contents, "prompt"), Server(contents, "late")
    runs = [asyncio.ensure_future(server.run()) for server in (prompt, late)]
    try:
        for server in (prompt, late):
            await server.replica.ready()
        late.log.failures.read_latency_s = 0.5
        yield Servers(prompt, late, contents)
    finally:
        for run in runs:
            run.cancel()
        for run in runs:
            with suppress(asyncio.CancelledError):
                await run


def _now_ms() -> int:
    return T0 + round(asyncio.get_running_loop().time() * 1_000)


def _records(contents: Contents) -> int:
    return sum(map(len, contents.records.values()))


async def _no_devices(zones: frozenset[str]) -> Holdings:
    return {}
