"""A random history through the API of a plane, with the response of every query at chosen moments."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import Message

from commands.rpc.error_details import NotFound
from commands.rpc.middleware import Call, snake_case
from deploy.cli.results import merged_position
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import CommandsStub, QueriesStub

ZONES = ("rack-1", "rack-2", "rack-3")
NODES = tuple(f"node-{number}" for number in range(12))
POLICIES = ("web", "storage")
DOMAIN = "5e0d7a2c-domain"
CALL = Call("?test", 30.0)


class Remembered(NamedTuple):
    """A query, its response, and the position of the moment of the query."""

    method: str
    request: Message
    answer: Any
    position: str


class History:
    """Commands drawn from a seed. `remember` runs every query."""

    def __init__(self, channel: grpc.aio.Channel, seed: int) -> None:
        self._rng = random.Random(seed)
        self._commands: Any = CommandsStub(channel)
        self._queries: Any = QueriesStub(channel)
        self._last = pb.CommandResult()

    async def go_on(self, commands: int) -> None:
        """Send so many commands, one after the other; refused commands are part of the history."""
        for _ in range(commands):
            method, request = self._rng.choice(_COMMANDS)(self._rng)
            self._last = await getattr(self._commands, method)(request, timeout=30)

    async def remember(self) -> list[Remembered]:
        """The current response of every query.

        The position of GetCommand is that of the command's decision. Its later effects in fleet, such as a hold, may be
        newer. The response therefore belongs to the moment of the first query, which has the positions of fleet and of
        every zone. The first query is sent after fleet has taken the command.
        """
        await self._queries.ListZones(pb.ListZonesRequest(min_position=self._last.position), timeout=30)
        found: list[Remembered] = []
        for method, request in [*_queries(), ("GetCommand", pb.GetCommandRequest(command_id=self._last.command_id))]:
            try:
                found += [
                    Remembered(method, request, answer, self._moment(method, answer, found))
                    async for answer in answers(partial(getattr(self._queries, method), timeout=30), request)
                    if answer.position  # a command that was not appended has no position
                ]
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.NOT_FOUND, error
        return found

    def _moment(self, method: str, answer: Any, found: list[Remembered]) -> str:
        if method != "GetCommand":
            return str(answer.position)
        return merged_position([found[0].position, answer.position])


async def answers(ask: Callable[[Any], Any], request: Message) -> AsyncIterator[Any]:
    """The response to a request, or the messages of a streamed response."""
    answer = ask(request)
    if hasattr(answer, "__aiter__"):
        async for message in answer:
            yield message
    else:
        yield await answer


async def asked_again(service: Any, remembered: Remembered) -> Message | None:
    """The response of the as-of service to the same query; None if the object did not exist."""
    try:
        async for answer in answers(partial(_call, service, remembered.method), remembered.request):
            if answer.position == remembered.answer.position:
                return comparable(answer)
    except NotFound:
        return None
    return None


def _call(service: Any, method: str, request: Message) -> Any:
    return getattr(service, snake_case(method))(request, CALL)


_WAITS = {"pending_start_time", "unreported_start_time"}


def comparable(answer: Message) -> Message:
    """The response without data of the answering process: its live replicas, and since when zones wait. A process
    remembers former tables only from its start on.
    """
    if isinstance(answer, pb.Status):
        return pb.Status(log_id=answer.log_id, generation=answer.generation, holds=answer.holds, frozen=answer.frozen)
    if isinstance(answer, pb.Zone):
        answer.ClearField("waiting_start_time")
    if isinstance(answer, pb.ListZoneProgressResponse):
        for zone in answer.zones:
            for field in {field.name for field, _ in zone.ListFields()} & _WAITS:
                zone.ClearField(field)
    return answer


def _queries() -> list[tuple[str, Message]]:
    return [
        ("ListNodes", pb.ListNodesRequest()),
        ("ListNodes", pb.ListNodesRequest(zone=ZONES[0])),
        ("GetNode", pb.GetNodeRequest(name=NODES[0])),
        ("LocateNodes", pb.LocateNodesRequest(names=NODES)),
        ("ListZones", pb.ListZonesRequest()),
        ("GetZone", pb.GetZoneRequest(zone=ZONES[1])),
        ("GetRules", pb.GetRulesRequest(zone=ZONES[0])),
        ("ListCliques", pb.ListCliquesRequest()),
        ("GetClique", pb.GetCliqueRequest(domain=DOMAIN, clique="0")),
        ("GetCliqueConfig", pb.GetCliqueConfigRequest(domain=DOMAIN, clique="0")),
        ("ListDpus", pb.ListDpusRequest()),
        ("GetDpu", pb.GetDpuRequest(dpu="card-0")),
        ("ListPolicies", pb.ListPoliciesRequest()),
        ("ListHolds", pb.ListHoldsRequest()),
        ("GetHold", pb.GetHoldRequest(hold=1)),
        ("ListHoldNodes", pb.ListHoldNodesRequest(hold=1, page_size=1)),
        ("ListBudgets", pb.ListBudgetsRequest()),
        ("ListZoneProgress", pb.ListZoneProgressRequest()),
        ("GetLatency", pb.GetLatencyRequest()),
        ("GetStatus", pb.GetStatusRequest()),
    ]


def _join(rng: random.Random) -> tuple[str, Message]:
    number = rng.randrange(len(NODES))
    node = pb.NodeSpec(name=NODES[number], addresses=[f"10.0.{rng.randrange(2)}.{number}"], labels={"app": "web"})
    return "JoinNodes", pb.JoinNodesRequest(zone=rng.choice(ZONES), nodes=[node])


def _change(rng: random.Random) -> tuple[str, Message]:
    node = pb.NodeSpec(name=rng.choice(NODES), addresses=[f"10.1.0.{rng.randrange(9)}"], labels={"app": "storage"})
    return "ChangeNodes", pb.ChangeNodesRequest(zone=rng.choice(ZONES), nodes=[node])


def _leave(rng: random.Random) -> tuple[str, Message]:
    return "LeaveNodes", pb.LeaveNodesRequest(zone=rng.choice(ZONES), names=[rng.choice(NODES)])


def _describe(rng: random.Random) -> tuple[str, Message]:
    labels = {"tier": rng.choice(("gpu", "cpu"))}
    return "UpdateZone", pb.UpdateZoneRequest(zone=rng.choice(ZONES), set_labels=True, labels=labels)


def _policy(rng: random.Random) -> tuple[str, Message]:
    name = rng.choice(POLICIES)
    if rng.random() < 0.3:
        return "DeletePolicy", pb.DeletePolicyRequest(name=name)
    spec = pb.PolicySpec(name=name, priority=rng.randrange(5), action="allow", sources={"app": name})
    return "SetPolicy", pb.SetPolicyRequest(policy=spec)


def _claim(rng: random.Random) -> tuple[str, Message]:
    node = rng.choice(NODES)
    if rng.random() < 0.3:
        return "ReleaseIndices", pb.ReleaseIndicesRequest(
            domain=DOMAIN, clique="0", releases=[pb.ReleaseSpec(node=node)]
        )
    return "ClaimIndices", pb.ClaimIndicesRequest(
        domain=DOMAIN, clique="0", claims=[pb.ClaimSpec(node=node, address="10.0.0.1")]
    )


def _dpu(rng: random.Random) -> tuple[str, Message]:
    number = rng.randrange(3)
    if rng.random() < 0.5:
        request = (
            pb.RequestLifecycleRequest.VERB_PAUSE if rng.random() < 0.5 else pb.RequestLifecycleRequest.VERB_RESUME
        )
        return "RequestLifecycle", pb.RequestLifecycleRequest(zone=ZONES[number], dpu=f"card-{number}", verb=request)
    return "RegisterDpu", pb.RegisterDpuRequest(
        zone=ZONES[number], dpu=f"card-{number}", node=f"host-{number}", serial=f"s{number}"
    )


def _budget(rng: random.Random) -> tuple[str, Message]:
    return "SetBudget", pb.SetBudgetRequest(
        kind="denied-by-leave", permille=rng.randrange(1, 9), min_addresses=rng.randrange(1, 3)
    )


def _freeze(rng: random.Random) -> tuple[str, Message]:
    zone = rng.choice(ZONES)
    return (
        ("FreezeWrites", pb.FreezeWritesRequest(zone=zone))
        if rng.random() < 0.5
        else ("ThawWrites", pb.ThawWritesRequest(zone=zone))
    )


_COMMANDS = (_join, _join, _join, _change, _leave, _leave, _describe, _policy, _claim, _claim, _dpu, _budget, _freeze)
