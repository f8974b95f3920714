"""As-of queries: the response of a query as of a position never changes."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf.message import Message

from commands.queries.as_of import AsOfQueries
from commands.rpc.error_details import NotFound
from commands.rpc.middleware import Call, snake_case
from deploy.cli.shared.results import merged_position
from deploy.clock import now_ms
from deploy.operations.past.as_of_server import AsOfRequest, folded, service
from deploy.operations.past.as_of_servers import AsOfServers
from deploy.process.plane import Plane
from deploy.settings.settings import Settings, load_settings
from eventstore.as_of import format_time
from eventstore.errors import LogUnavailable, PermanentError
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import CommandsStub, QueriesStub
from tests.support.eventually import until
from tests.support.kafka import KafkaUnderTest
from tests.support.planes import run, serving

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
            self._last = await getattr(self._commands, method)(request, timeout=90)

    async def remember(self) -> list[Remembered]:
        """The current response of every query.

        The position of GetCommand is that of the command's decision. Its later effects in fleet, such as a hold, may be
        newer. The response therefore belongs to the moment of the first query, which has the positions of fleet and of
        every zone. The first query is sent after fleet has taken the command.
        """
        await self._queries.ListZones(pb.ListZonesRequest(min_position=self._last.position), timeout=90)
        found: list[Remembered] = []
        for method, request in [*_queries(), ("GetCommand", pb.GetCommandRequest(command_id=self._last.command_id))]:
            try:
                found += [
                    Remembered(method, request, answer, self._moment(method, answer, found))
                    async for answer in answers(partial(getattr(self._queries, method), timeout=90), request)
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


@asynccontextmanager
async def plane_of(**place: object) -> AsyncIterator[tuple[Plane, grpc.aio.Channel]]:
    listeners = dict.fromkeys(("listen", "http", "agents"), "127.0.0.1:0")
    settings = load_settings({"partitions": 3, "name": "test", **listeners, **place}, None, {})
    async with (
        Plane.start(settings, now_ms=now_ms, rng=random.Random(3)) as plane,
        grpc.aio.insecure_channel(plane.addresses["api"]) as channel,
    ):
        yield plane, channel


async def run_history(plane: Plane, history: History, moments: int, commands: int) -> list[Remembered]:
    """The responses of all queries at several moments of a history. Two state checkpoints are taken on the way."""
    remembered = []
    for moment in range(moments):
        await history.go_on(commands)
        remembered += await history.remember()
        if moment in (moments // 3, 2 * moments // 3):
            await until(lambda: _is_saved(plane))
            await plane.replica._store.checkpoint()
    return remembered


def _is_saved(plane: Plane) -> bool:
    return all(each.saved_position == each.position for each in plane.replica.partitions_status())


async def find_differences(settings: Settings, remembered: list[Remembered]) -> tuple[list[str], Mapping[str, int]]:
    """The responses that differ when they are requested again, and the number of records folded for each position."""
    services: dict[str, Any] = {}
    totals: dict[str, int] = {}
    wrong = []
    for each in remembered:
        if each.position not in services:
            order = AsOfRequest(settings=settings, at=each.position, socket=Path("unused"))
            said = [0]
            past = await folded(order, lambda _done, total, said=said: said.append(total))  # type: ignore[misc]
            totals[each.position] = said[-1]
            services[each.position] = service(past, settings)
        again = await asked_again(services[each.position], each)
        if again != comparable(each.answer):
            wrong.append(f"{each.method} at {each.position}: {again} was {each.answer}")
    return wrong, totals


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_query_at_every_position_has_its_former_response(tmp_path: Path, seed: int) -> None:
    async with plane_of(data=tmp_path / "plane", simulate=2) as (plane, channel):
        remembered = await run_history(plane, History(channel, seed), moments=9, commands=25)
        assert {each.method for each in remembered} >= {"GetZone", "ListHolds", "GetLatency", "GetClique", "GetDpu"}
        wrong, totals = await find_differences(plane.settings, remembered)
        assert not wrong, "\n".join(wrong)
        whole = sum(status.position for status in plane.replica.partitions_status())
        assert totals[remembered[-1].position] < whole / 2, (
            "a position after a state checkpoint is folded from the checkpoint"
        )


@pytest.mark.kafka
async def test_every_query_at_every_position_has_its_former_response_on_kafka(
    kafka_log: KafkaUnderTest, tmp_path: Path
) -> None:
    place = {"kafka": kafka_log.bootstrap, "topic_prefix": kafka_log.prefix, "state": tmp_path / "state"}
    async with plane_of(**place) as (plane, channel):
        remembered = await run_history(plane, History(channel, seed=4), moments=3, commands=40)
        wrong, _ = await find_differences(plane.settings, remembered)
        assert not wrong, "\n".join(wrong)


async def test_a_new_name_is_unknown_as_of_an_earlier_time(tmp_path: Path) -> None:
    async with plane_of(data=tmp_path / "plane") as (plane, channel):
        history = History(channel, seed=5)
        await history.go_on(5)
        before = format_time(now_ms())
        await asyncio.sleep(0.002)
        commands: Any = channel.unary_unary(
            "/dpuplane.v1.Commands/JoinNodes", pb.JoinNodesRequest.SerializeToString, pb.CommandResult.FromString
        )
        answer = await commands(pb.JoinNodesRequest(zone="new", nodes=[pb.NodeSpec(name="late")]))
        async with AsOfServers.open(plane.settings, now_ms) as as_of_servers:
            then = await as_of_servers.at(before, timeout_s=90)
            with pytest.raises(NotFound, match="late"):
                await then.get_node(pb.GetNodeRequest(name="late"), CALL)
            since = await as_of_servers.at(answer.position, timeout_s=90)
            found = await since.get_node(pb.GetNodeRequest(name="late"), CALL)
            assert found.zone == "new"
            assert await as_of_servers.at(before, timeout_s=90) is then


async def test_an_invalid_as_of_argument_is_refused_in_one_sentence(tmp_path: Path) -> None:
    place = {"data": tmp_path / "plane", "as_of_servers": 1}
    async with plane_of(**place) as (plane, channel), AsOfServers.open(plane.settings, now_ms) as as_of_servers:
        await History(channel, seed=6).go_on(3)
        log_id = plane.replica.log_id
        for text, sentence in {
            "2020-01-01": "as_of: 2020-01-01T00:00:00.000Z is before the first record of this log, at 20",
            "9999-01-01": "as_of: 9999-01-01T00:00:00.000Z is in the future: this host's time is 20",
            "999999999999999": "as_of: 999999999999999 ms is in the future",
            "9" * 20: f"as_of: '{'9' * 20}' must be the position of an answer, a time in ISO 8601, or milliseconds",
            "yesterday": "as_of: 'yesterday' must be the position of an answer, a time in ISO 8601, or milliseconds",
            "other:fleet/0=1": "as_of: position: log id 'other' must be that of this log",
            f"{log_id}:fleet/0=99": "as_of: position: fleet/0 ends at",
            f"{log_id}:zones/7=1": "as_of: position: 'zones/7' is not a partition of this log",
        }.items():
            with pytest.raises(PermanentError) as refused:
                await as_of_servers.at(text, timeout_s=90)
            assert sentence in str(refused.value)
            assert as_of_servers._evict() or not as_of_servers._servers, "a refused argument still occupies a slot"


async def test_an_as_of_server_is_replaced_when_another_moment_is_requested(tmp_path: Path) -> None:
    async with plane_of(data=tmp_path / "plane", as_of_servers=1) as (plane, channel):
        await History(channel, seed=7).go_on(5)
        async with AsOfServers.open(plane.settings, now_ms) as as_of_servers:
            first = str(now_ms())
            await as_of_servers.at(first, timeout_s=90)
            await asyncio.sleep(0.01)
            second = str(now_ms())
            with pytest.raises(LogUnavailable, match="1 other past times are being folded; try again"):
                await as_of_servers.at(second, timeout_s=0)
            assert isinstance(await as_of_servers.at(second, timeout_s=90), AsOfQueries)
            assert list(as_of_servers._servers) == [second]


async def test_a_query_with_a_short_deadline_can_be_repeated(tmp_path: Path) -> None:
    async with plane_of(data=tmp_path / "plane") as (plane, channel):
        await History(channel, seed=8).go_on(5)
        async with AsOfServers.open(plane.settings, now_ms) as as_of_servers:
            moment = str(now_ms())
            with pytest.raises(LogUnavailable, match="repeat the query"):
                await as_of_servers.at(moment, timeout_s=0.01)
            await as_of_servers.at(moment, timeout_s=90)


async def test_a_killed_plane_leaves_no_as_of_server_behind(tmp_path: Path) -> None:
    async with serving("--data", str(tmp_path / "plane")) as plane:
        done = await run("status", "--as-of", str(now_ms()), server=plane.address("api"))
        assert done.status == 0, done.stderr
        [moment] = children(plane.child.pid)
        plane.kill()
        await plane.ended()
        await until(lambda: not Path(f"/proc/{moment}").exists())


async def test_the_folder_of_as_of_servers_exists_only_while_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plane without as-of queries leaves no folder behind, even if it is killed."""
    async with plane_of(data=tmp_path / "plane") as (plane, channel):
        await History(channel, seed=9).go_on(5)
        with tempfile.TemporaryDirectory() as temporary:  # the path of a Unix socket must be short
            monkeypatch.setattr(tempfile, "tempdir", temporary)
            async with AsOfServers.open(plane.settings, now_ms) as as_of_servers:
                assert not listed(temporary)
                await as_of_servers.at(str(now_ms()), timeout_s=90)
                assert len(listed(temporary)) == 1
            assert not listed(temporary)


async def test_the_command_line_queries_the_past(tmp_path: Path) -> None:
    async with serving("--data", str(tmp_path / "plane"), "--as-of-servers", "1") as plane:
        api = plane.address("api")
        joined = await run("nodes", "join", "n1", "--zone", "z", "--address", "10.0.0.1", "-o", "json", server=api)
        await run("nodes", "join", "n2", "--zone", "z", "--address", "10.0.0.2", server=api)
        then = await run("nodes", "list", "--as-of", joined.json()["position"], "-o", "json", server=api)
        assert [node["name"] for node in then.json()["nodes"]] == ["n1"]
        now = await run("nodes", "list", "-o", "json", server=api)
        assert [node["name"] for node in now.json()["nodes"]] == ["n1", "n2"]
        early = await run("zones", "show", "z", "--as-of", "2020-01-01", server=api)
        assert (early.status, early.stdout) == (1, "")
        assert "is before the first record of this log" in early.stderr
        both = await run(
            "nodes", "list", "--as-of", str(now_ms()), "--min-position", joined.json()["position"], server=api
        )
        assert both.status == 1
        assert "min_position" in both.stderr
    async with serving("--data", str(tmp_path / "plane"), "--as-of-servers", "0") as plane:
        none = await run("nodes", "list", "--as-of", str(now_ms()), server=plane.address("api"))
        assert none.status == 1
        assert "--as-of-servers" in none.stderr


def listed(folder: str) -> list[str]:
    return [path.name for path in Path(folder).iterdir()]


def children(pid: int) -> list[int]:
    """The child processes of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
