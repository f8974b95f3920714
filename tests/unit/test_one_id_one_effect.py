"""The log alone decides an outcome, even between two servers of which one has not folded the latest records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf.message import Message

from commands.queries.status import LogLocation, StatusReporter
from commands.rpc.middleware import Call
from commands.server import ApiServer
from eventstore.ids import uuid7
from eventstore.log import ZONES, Partition
from eventstore.replicas.replica import Replica
from projections.rules.rule import Holdings
from projections.zones.state import ZonesState
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import outcome_name
from tests.simulation.api import Aborted, Api
from tests.support.memory_log import MemoryLog
from tests.support.memory_plane import Plane, plane

pytestmark = pytest.mark.virtual_clock

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


done, refused, unchanged = pb.OUTCOME_DONE, pb.OUTCOME_REFUSED, pb.OUTCOME_UNCHANGED


def joining(name: str, zone: str, command_id: str = "") -> pb.JoinNodesRequest:
    return pb.JoinNodesRequest(command_id=command_id, zone=zone, nodes=[pb.NodeSpec(name=name, addresses=["10.0.0.1"])])


def zone_with(server: Server, name: str) -> list[str]:
    states: list[ZonesState] = [server.replica.state(partition) for partition in server.replica.partitions(ZONES)]
    return [state.nodes.rows[name].zone for state in states if name in state.nodes.rows]


def zone_of_another_partition(servers: Servers, zone: str) -> str:
    """The name of a zone in another partition than `zone`."""
    replica = servers.prompt.replica
    home = replica.partition_for(ZONES, zone)
    return next(name for name in map("z{}".format, range(99)) if replica.partition_for(ZONES, name) != home)


async def test_a_leave_through_a_lagging_server_removes_a_node_that_just_joined() -> None:
    async with two_servers() as servers:
        for number in range(5):
            name = f"n{number}"
            await servers.prompt.ask("JoinNodes", joining(name, "z1"))
            left = await servers.late.ask("LeaveNodes", pb.LeaveNodesRequest(zone="z1", names=[name]))
            assert left.outcome in (done, pb.OUTCOME_HELD), "in a fleet of one node the budget may hold the leave"
            assert zone_with(servers.late, name) == []


REQUESTS: dict[str, tuple[str, Message, str]] = {
    "a leave of a known node": ("LeaveNodes", pb.LeaveNodesRequest(zone="z1", names=["n1"]), "done"),
    "a leave of nobody": ("LeaveNodes", pb.LeaveNodesRequest(zone="z1", names=["nobody"]), "unchanged"),
    "a leave from no zone that is known": ("LeaveNodes", pb.LeaveNodesRequest(zone="z77", names=["n1"]), "refused"),
    "a leave of a node that is elsewhere": ("LeaveNodes", pb.LeaveNodesRequest(zone="z2", names=["n1"]), "unchanged"),
    "a join": ("JoinNodes", joining("n9", "z1"), "done"),
    "a request about a DPU": (
        "RequestLifecycle",
        pb.RequestLifecycleRequest(zone="z1", dpu="d1", verb="VERB_PAUSE"),
        "done",
    ),
    "a request about no DPU": (
        "RequestLifecycle",
        pb.RequestLifecycleRequest(zone="z1", dpu="d9", verb="VERB_PAUSE"),
        "refused",
    ),
    "a freeze": ("FreezeWrites", pb.FreezeWritesRequest(zone="z1"), "done"),
    "a raise of a version that is there": (
        "UpgradeFoldVersion",
        pb.UpgradeFoldVersionRequest(topic="zones", version=1),
        "unchanged",
    ),
}


@pytest.mark.parametrize("first", ["prompt", "late"])
@pytest.mark.parametrize("name", REQUESTS)
async def test_every_server_gives_one_answer_under_one_id(name: str, first: str) -> None:
    """Both servers append before either has folded the record of the other. A lagging server changes nothing."""
    method, request, outcome = REQUESTS[name]
    async with two_servers() as servers:
        for zone, node in (("z1", "n1"), ("z2", "n2")):
            await servers.prompt.ask("JoinNodes", joining(node, zone))
        await servers.prompt.ask("RegisterDpu", pb.RegisterDpuRequest(zone="z1", dpu="d1"))
        request.command_id = command_id = servers.command_id()  # type: ignore[attr-defined]
        order = (servers.prompt, servers.late) if first == "prompt" else (servers.late, servers.prompt)
        one, other = await asyncio.gather(*(server.ask(method, request) for server in order))
        assert outcome_name(one.outcome) == outcome, one
        assert other == one
        await asyncio.sleep(1)
        assert await servers.late.show(command_id) == await servers.prompt.show(command_id) == one


async def status_of(server: Server, method: str, request: Message) -> grpc.StatusCode:
    with pytest.raises(Aborted) as aborted:
        await server.ask(method, request)
    return aborted.value.status


async def test_a_server_appends_one_id_to_one_partition() -> None:
    async with two_servers() as servers:
        elsewhere, command_id = zone_of_another_partition(servers, "z1"), servers.command_id()
        first = asyncio.ensure_future(servers.late.ask("JoinNodes", joining("n", "z1", command_id)))
        await asyncio.sleep(0.1)
        others = {
            "JoinNodes": joining("n", elsewhere, command_id),
            "FreezeWrites": pb.FreezeWritesRequest(command_id=command_id, all_zones=True),
        }
        for method, request in others.items():
            assert await status_of(servers.late, method, request) == grpc.StatusCode.ALREADY_EXISTS, (
                "the first command is in flight"
            )
        assert (await first).outcome == done
        for method, request in others.items():
            assert await status_of(servers.late, method, request) == grpc.StatusCode.ALREADY_EXISTS, (
                "the first command has an outcome"
            )
        assert zone_with(servers.prompt, "n") == ["z1"]
        assert await servers.prompt.ask("JoinNodes", joining("n", "z1", command_id)) == await first


async def test_a_stream_appends_one_id_to_one_partition() -> None:
    async with two_servers() as servers:
        command_id = servers.command_id()
        requests = joining("n", "z1", command_id), joining("n", zone_of_another_partition(servers, "z1"), command_id)
        summary = await servers.late.join_all(*requests)
        assert (summary.requests, summary.done, summary.refused, summary.not_appended) == (2, 1, 0, 1)
        (error,) = summary.errors
        assert (error.request, error.command_id, error.status) == (1, command_id, "ALREADY_EXISTS")
        assert zone_with(servers.late, "n") == ["z1"]


async def test_an_id_without_an_outcome_stays_bound_until_no_copy_can_take_effect() -> None:
    async with two_servers() as servers:
        elsewhere, command_id = zone_of_another_partition(servers, "z1"), servers.command_id()
        servers.late.log.failures.read_latency_s = 150.0
        answer = await servers.late.ask("JoinNodes", joining("n", "z1", command_id))
        assert answer.outcome == pb.OUTCOME_UNKNOWN
        for _ in range(8):
            other = joining("n", elsewhere, command_id)
            assert await status_of(servers.late, "JoinNodes", other) == grpc.StatusCode.ALREADY_EXISTS
            await asyncio.sleep(20)
        bindings = servers.late.commands.command_handler.bindings
        await asyncio.sleep(60)
        bindings.bind(servers.command_id(), (Partition(ZONES, 0),))
        assert command_id not in bindings._bound


async def test_the_status_of_an_id_lists_every_partition_that_has_it() -> None:
    """A server learns ids of other servers only by folding, so an id may be used in two partitions at once."""
    async with two_servers() as servers:
        elsewhere, command_id = zone_of_another_partition(servers, "z1"), servers.command_id()
        both = await asyncio.gather(
            servers.prompt.ask("JoinNodes", joining("a", "z1", command_id)),
            servers.late.ask("LeaveNodes", pb.LeaveNodesRequest(command_id=command_id, zone=elsewhere, names=["b"])),
        )
        assert [answer.outcome for answer in both] == [done, refused]
        await asyncio.sleep(1)
        shown = await servers.prompt.show(command_id)
        assert shown.outcome == done, "the command took effect in one partition"
        homes = [servers.prompt.replica.partition_for(ZONES, zone) for zone in ("z1", elsewhere)]
        told = {part.partition: part for part in shown.partitions}
        assert {name: part.outcome for name, part in told.items()} == {str(homes[0]): done, str(homes[1]): refused}
        assert "is not known" in told[str(homes[1])].reason
        assert await servers.late.show(command_id) == shown
        freeze_all = pb.FreezeWritesRequest(command_id=command_id, all_zones=True)
        assert await status_of(servers.prompt, "FreezeWrites", freeze_all) == (grpc.StatusCode.ALREADY_EXISTS)


async def test_a_version_raise_that_is_not_possible_yet_is_an_error_without_outcome() -> None:
    async with two_servers() as servers:
        before = dict(servers.plane.contents.records)
        counts = {partition: len(records) for partition, records in before.items()}
        raising = pb.UpgradeFoldVersionRequest(command_id=servers.command_id(), topic="zones", version=99)
        assert await status_of(servers.prompt, "UpgradeFoldVersion", raising) == grpc.StatusCode.FAILED_PRECONDITION
        raising.version = 1
        servers.late.replica.folded(Partition(ZONES, 2)).halted = "a fault of this machine"
        assert await status_of(servers.late, "UpgradeFoldVersion", raising) == grpc.StatusCode.FAILED_PRECONDITION
        assert {partition: len(records) for partition, records in before.items()} == counts, "no record was appended"
        assert (await servers.prompt.ask("UpgradeFoldVersion", raising)).outcome == unchanged
