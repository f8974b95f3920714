"""Two servers of one log on virtual time, one of which reads it late: consistency as a client of both sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from google.protobuf.message import Message

from commands.queries.status import LogLocation, StatusReporter
from commands.rpc.middleware import Call
from commands.server import ApiServer
from eventstore.ids import uuid7
from eventstore.replicas.replica import Replica
from projections.rules.rule import Holdings
from schemas.api import dpuplane_pb2 as pb
from tests.simulation.api import Api
from tests.support.memory_log import MemoryLog
from tests.support.memory_plane import Plane, plane

PARTITIONS = 3
TIMEOUT_S = 20.0


class Server:
    """One server, called through its production handlers."""

    def __init__(self, replica: Replica, log: MemoryLog, plane: Plane) -> None:
        self.replica = replica
        self.log = log
        board = StatusReporter(
            replica,
            location=LogLocation("memory"),
            roles=["api"],
            addresses={},
            version="1",
            alive=lambda: [],
            stalled=lambda: {},
        )
        options: dict[str, Any] = {"listen": "", "now_ms": plane.now_ms, "rng": plane.rng()}
        self.commands = ApiServer(replica, status=board, devices=_no_devices, **options)
        self._api = Api(self.commands)

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
    plane: Plane

    def command_id(self) -> str:
        return uuid7(self.plane.now_ms(), self.plane.draws)


@asynccontextmanager
async def two_servers() -> AsyncIterator[Servers]:
    """Two servers, both ready."""
    async with plane(PARTITIONS) as made:
        prompt, late = [await _server(made, name) for name in ("prompt", "late")]
        late.log.failures.read_latency_s = 0.5
        yield Servers(prompt, late, made)


async def _server(made: Plane, name: str) -> Server:
    log = MemoryLog(made.contents, made.now_ms)
    return Server((await made.start(name, "api", log=log)).replica, log, made)


async def _no_devices(zones: frozenset[str]) -> Holdings:
    return {}
