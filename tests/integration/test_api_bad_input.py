"""Bad input at the API: each request is refused with one sentence, nothing is appended, and the server continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from commands.queries.service import QueriesService
from commands.rpc.limits import Limits
from projections.rules.rule import Held
from schemas.api import dpuplane_pb2 as pb
from tests.support.served import SHORT, Served, served

QUERIES = pb.DESCRIPTOR.services_by_name["Queries"]


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "plane") as found:
        yield found


def join(*names: str, zone: str = "z1", address: str = "", **more: Any) -> pb.JoinNodesRequest:
    addresses = [address] if address else []
    return pb.JoinNodesRequest(zone=zone, nodes=[pb.NodeSpec(name=n, addresses=addresses) for n in names], **more)


SHAPES: list[tuple[str, str, Any, tuple[str, ...]]] = [
    ("bad zone", "JoinNodes", join("n1", zone="z 1"), ("zone", "'z 1'", "must be")),
    ("bad address", "JoinNodes", join("n1", address="10.0.0.999"), ("address", "'10.0.0.999'", "must be")),
    ("duplicate address", "JoinNodes", join("n1", "n2", address="10.0.0.1"), ("addresses4", "'10.0.0.1'", "once")),
    ("no nodes", "JoinNodes", join(), ("nodes", "0", "from 1 to 1000")),
    ("too many nodes", "JoinNodes", join(*map(str, range(1_001))), ("nodes", "1001", "from 1 to 1000")),
    ("bad id", "JoinNodes", join("n1", command_id="1-2"), ("command_id", "'1-2'", "UUIDv7")),
    (
        "bad capacity",
        "SetCliqueCapacity",
        pb.SetCliqueCapacityRequest(domain="d", clique="c"),
        ("capacity", "0", "from 1 to"),
    ),
    (
        "huge capacity",
        "SetCliqueCapacity",
        pb.SetCliqueCapacityRequest(domain="d", clique="c", capacity=2**31 - 1),
        ("capacity", str(2**31 - 1), "from 1 to"),
    ),
    (
        "nameless claim",
        "ClaimIndices",
        pb.ClaimIndicesRequest(domain="d", claims=[pb.ClaimSpec(node="n")]),
        ("clique", "''", "must be"),
    ),
    ("leave from nowhere", "LeaveNodes", pb.LeaveNodesRequest(names=["n"]), ("zone", "''", "LocateNodes")),
    (
        "pause nowhere",
        "RequestLifecycle",
        pb.RequestLifecycleRequest(dpu="d", verb="VERB_PAUSE"),
        ("zone", "GetDpu"),
    ),
    ("unknown verb", "RequestLifecycle", pb.RequestLifecycleRequest(dpu="d", zone="z"), ("verb", "0", "provision")),
    ("empty policy", "SetPolicy", pb.SetPolicyRequest(), ("action", "''", "must be")),
    ("unseen hold", "ApproveHold", pb.ApproveHoldRequest(hold=4, hash="xyz"), ("hash", "'xyz'", "hexadecimal")),
]


@pytest.mark.parametrize(("method", "request_", "said"), [shape[1:] for shape in SHAPES], ids=[s[0] for s in SHAPES])
async def test_a_malformed_request_is_an_invalid_argument_and_no_record(
    plane: Served, method: str, request_: Any, said: tuple[str, ...]
) -> None:
    stated = await plane.stated()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await getattr(plane.calls, method)(request_)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    sentence = caught.value.details() or ""
    assert "\n" not in sentence
    for part in said:
        assert part in sentence
    assert await plane.stated() == stated


@pytest.mark.parametrize("dry_run", [False, True])
async def test_the_number_of_names_in_a_leave_is_limited(plane: Served, dry_run: bool) -> None:
    request = pb.LeaveNodesRequest(zone="z1", names=map(str, range(1_001)), dry_run=dry_run)
    with pytest.raises(grpc.aio.AioRpcError, match="names: 1001 items must be from 1 to 1000") as caught:
        await plane.calls.LeaveNodes(request)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


REFUSED: list[tuple[str, str, Any, tuple[str, ...]]] = [
    ("unknown zone", "LeaveNodes", pb.LeaveNodesRequest(zone="z9", names=["nobody"]), ("'z9' is not known",)),
    ("unknown DPU", "RequestLifecycle", pb.RequestLifecycleRequest(zone="z1", dpu="d9", verb="VERB_PAUSE"), ("'d9'",)),
    (
        "unknown member",
        "ReportDaemonReadiness",
        pb.ReportDaemonReadinessRequest(domain="d", clique="c", node="n"),
        ("'n'",),
    ),
    ("unknown policy", "DeletePolicy", pb.DeletePolicyRequest(name="nothing"), ("'nothing'",)),
    ("unknown hold", "RejectHold", pb.RejectHoldRequest(hold=77), ("77",)),
    ("not frozen", "ThawWrites", pb.ThawWritesRequest(zone="z1"), ("'z1'",)),
]


@pytest.mark.parametrize(("method", "request_", "said"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED])
async def test_a_command_that_the_state_forbids_is_refused_with_a_reason(
    plane: Served, method: str, request_: Any, said: tuple[str, ...]
) -> None:
    answer: pb.CommandResult = await getattr(plane.calls, method)(request_)
    assert answer.outcome == pb.OUTCOME_REFUSED
    reason = answer.reason or answer.items[0].reason
    for part in said:
        assert part in reason


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("GetNode", pb.GetNodeRequest(name="nobody")),
        ("GetZone", pb.GetZoneRequest(zone="nowhere")),
        ("GetClique", pb.GetCliqueRequest(domain="d", clique="c")),
        ("GetCliqueConfig", pb.GetCliqueConfigRequest(domain="d", clique="c")),
        ("GetDpu", pb.GetDpuRequest(dpu="d9")),
    ],
)
async def test_a_missing_object_is_not_found(plane: Served, method: str, request_: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await getattr(plane.queries, method)(request_)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (pb.ListNodesRequest(min_position="elsewhere:zones/0=1"), "must be that of this log"),
        (pb.ListNodesRequest(min_position="LOG:zones=1"), "TOPIC/PARTITION=OFFSET"),
        (pb.ListNodesRequest(min_position="LOG:zones/999=1"), "'zones/999' is not a partition"),
        (pb.ListNodesRequest(page_size=5_000), "page_size: 5000"),
        (pb.ListNodesRequest(page_size=-1), "page_size: -1"),
        (pb.ListNodesRequest(page_token="x"), "page_token: 'x'"),
    ],
)
async def test_invalid_positions_and_pages_are_named(plane: Served, request_: pb.ListNodesRequest, said: str) -> None:
    request_.min_position = request_.min_position.replace("LOG", plane.replica.log_id)
    with pytest.raises(grpc.aio.AioRpcError, match=said) as caught:
        await plane.queries.ListNodes(request_)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_a_query_waits_for_a_position_ahead_of_the_log_until_its_deadline(tmp_path: Path) -> None:
    async with served(tmp_path / "plane", limits=SHORT) as plane:
        ahead = pb.ListNodesRequest(min_position=f"{plane.replica.log_id}:zones/0=1000000")
        with pytest.raises(grpc.aio.AioRpcError, match="zones/0 was not folded up to 1000000") as caught:
            await plane.queries.ListNodes(ahead, timeout=60.0)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("method", [m for m in QUERIES.methods if m.name != "ListDevices"], ids=lambda m: str(m.name))
async def test_every_query_of_the_folds_takes_a_minimum_position(plane: Served, method: MethodDescriptor) -> None:
    request = GetMessageClass(method.input_type)(min_position="elsewhere:zones/0=1")
    if method.name == "LocateNodes":
        request.names.append("n1")  # type: ignore[attr-defined]
    if method.name == "ExplainAccess":
        request.node = request.dpu = "n1"  # type: ignore[attr-defined]
    if method.name == "GetHostTasks":
        request.node, request.namespace = "n1", "dpf"  # type: ignore[attr-defined]
    if method.name == "GetRollout":
        request.name.kind = "DPUSet.provisioning.dpu.nvidia.com"  # type: ignore[attr-defined]
    with pytest.raises(grpc.aio.AioRpcError, match="must be that of this log") as caught:
        answer = getattr(plane.queries, method.name)(request)
        await (answer.read() if method.server_streaming else answer)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_an_impossible_query_is_refused_with_its_field(plane: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=r"phase: 'ready' must be one of Initializing, .*Ready") as caught:
        await plane.queries.ListDpus(pb.ListDpusRequest(phase="ready"))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError, match="zones: 1001 items must be from 1 to 1000"):
        await plane.queries.ListDevices(pb.ListDevicesRequest(zones=["z1"] * 1_001)).read()
    await plane.calls.RegisterDpu(pb.RegisterDpuRequest(zone="z1", dpu="d1"))
    with pytest.raises(grpc.aio.AioRpcError, match="'d1' is not a DPU of zone 'z2'"):
        await plane.queries.GetDpu(pb.GetDpuRequest(dpu="d1", zone="z2"))


def _as_it_is(raw: bytes) -> bytes:
    return raw


async def test_bytes_that_are_not_a_request_are_refused(plane: Served) -> None:
    raw: Any = plane.channel.unary_unary("/dpuplane.v1.Commands/JoinNodes", _as_it_is, _as_it_is)
    with pytest.raises(grpc.aio.AioRpcError, match="request: 3 bytes are not a valid JoinNodesRequest") as caught:
        await raw(b"\xff\xff\xff")
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    stream: Any = plane.channel.stream_unary("/dpuplane.v1.Commands/JoinNodesStream", _as_it_is, _as_it_is)
    summary = pb.JoinSummary.FromString(await stream(iter([b"\xff\xff\xff", join("n1").SerializeToString()])))
    assert (summary.requests, summary.done) == (2, 1)
    (error,) = summary.errors
    assert (error.request, error.status, "a valid JoinNodesRequest" in error.reason) == (0, "INVALID_ARGUMENT", True)


async def test_a_field_of_a_wrong_type_is_refused(plane: Served) -> None:
    zone_as_number = b"\x10\x05"
    raw: Any = plane.channel.unary_unary("/dpuplane.v1.Commands/JoinNodes", _as_it_is, _as_it_is)
    with pytest.raises(grpc.aio.AioRpcError, match="nodes: 0 items") as caught:
        await raw(zone_as_number)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_an_oversized_request_is_refused_and_the_server_continues(plane: Served) -> None:
    huge = pb.JoinNodesRequest(zone="z1", nodes=[pb.NodeSpec(name="n", labels={"k": "x" * 2_000_000})])
    with pytest.raises(grpc.aio.AioRpcError, match="larger than max") as caught:
        await plane.calls.JoinNodes(huge)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    wide = [pb.NodeSpec(name=f"n{i}", labels={"k": f"{i}-{'x' * 240}", "l": "y" * 100}) for i in range(1_000)]
    with pytest.raises(grpc.aio.AioRpcError, match="bytes of names, uids, addresses and labels") as caught:
        await plane.join("z1", *wide)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert (await plane.join("z1", pb.NodeSpec(name="n1"))).outcome == pb.OUTCOME_DONE


async def test_metadata_over_its_limit_ends_the_call_only(plane: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await plane.calls.FreezeWrites(pb.FreezeWritesRequest(all_zones=True), metadata=[("x-more", "x" * 20_000)])
    assert (await plane.calls.FreezeWrites(pb.FreezeWritesRequest(all_zones=True))).outcome == pb.OUTCOME_DONE


@pytest.mark.parametrize("name", ["", "a b", "x" * 200, "?alice", "a/b"])
async def test_an_invalid_principal_is_refused(plane: Served, name: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="x-dpuplane-as") as caught:
        await plane.calls.FreezeWrites(pb.FreezeWritesRequest(all_zones=True), metadata=[("x-dpuplane-as", name)])
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_an_id_with_a_future_time_is_an_error_without_an_outcome(plane: Served) -> None:
    """Either clock may be wrong, and another server may accept the command."""
    request = join("n1", command_id=plane.command_id(late_ms=-120_000))
    with pytest.raises(grpc.aio.AioRpcError, match="ahead of the clock of replica-1") as caught:
        await plane.calls.JoinNodes(request)
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    summary = await plane.calls.JoinNodesStream(iter([request]))
    assert (summary.refused, summary.not_appended, [error.status for error in summary.errors]) == (
        0,
        1,
        ["FAILED_PRECONDITION"],
    )


async def test_a_principal_over_its_rate_does_not_affect_another(tmp_path: Path) -> None:
    limits = Limits(rate_per_s=0.001, burst=3.0)
    async with served(tmp_path / "plane", limits=limits) as plane:

        async def freeze(name: str) -> grpc.StatusCode:
            try:
                await plane.calls.FreezeWrites(
                    pb.FreezeWritesRequest(all_zones=True), metadata=[("x-dpuplane-as", name)]
                )
            except grpc.aio.AioRpcError as error:
                assert repr(f"?{name}") in (error.details() or "")
                return error.code()
            return grpc.StatusCode.OK

        greedy = [await freeze("greedy") for _ in range(5)]
        assert greedy == [grpc.StatusCode.OK] * 3 + [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2
        assert await freeze("modest") == grpc.StatusCode.OK
        assert plane.server.admission.refused == 2


async def test_a_command_without_a_response_is_unknown_and_its_repeat_is_definite(tmp_path: Path) -> None:
    async with served(tmp_path / "plane", limits=SHORT) as plane:
        plane.log.stalled = True
        command_id = plane.command_id()
        unknown = await plane.calls.JoinNodes(join("n1", command_id=command_id), timeout=60.0)
        assert (unknown.outcome, unknown.command_id) == (pb.OUTCOME_UNKNOWN, command_id)
        assert unknown.reason
        assert plane.server.command_handler.unknown == 1
        summary = await plane.calls.JoinNodesStream(iter([join("n2"), join("n3")]), timeout=60.0)
        assert (summary.unknown, summary.done) == (2, 0)
        plane.log.stalled = False
        again = await plane.calls.JoinNodes(join("n1", command_id=command_id))
        assert again.outcome == pb.OUTCOME_DONE


async def test_a_stop_cancels_a_hanging_call(tmp_path: Path) -> None:
    async with served(tmp_path / "plane") as plane:
        plane.log.stalled = True
        hanging = asyncio.ensure_future(plane.calls.JoinNodes(join("n1"), timeout=25.0))
        await plane.log.waiting.wait()
        assert plane.server.admission.under_way == 1
        await plane.server.stop(0.1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await hanging
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


async def test_unread_responses_are_limited_and_do_not_delay_others(tmp_path: Path) -> None:
    async with served(tmp_path / "plane", limits=Limits(concurrent_streams=2)) as plane:
        plane.held = {"z1": {f"d{number}": Held(1, 7, b"\1" * 16) for number in range(200_000)}}

        def asked() -> Any:
            return plane.queries.ListDevices(pb.ListDevicesRequest())

        unread = [asked(), asked()]
        for answer in unread:
            await answer.read()
        with pytest.raises(grpc.aio.AioRpcError, match="2 streamed responses in progress are the limit") as caught:
            await asked().read()
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await plane.calls.FreezeWrites(pb.FreezeWritesRequest(all_zones=True))).outcome == pb.OUTCOME_DONE
        while await unread[0].read():
            pass
        assert len((await asked().read()).devices) == 1_000


async def test_a_call_that_ends_at_its_deadline_leaves_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def late(_service: QueriesService, _request: Any, _call: Any) -> Any:
        raise TimeoutError

    monkeypatch.setattr(QueriesService, "list_budgets", late)
    async with served(tmp_path / "plane") as plane:
        with pytest.raises(grpc.aio.AioRpcError, match="no response within the time limit") as caught:
            await plane.queries.ListBudgets(pb.ListBudgetsRequest())
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        plane.log.stalled = True
        for timeout_s in (0.001, 0.01, 0.1):
            calls = (plane.calls.JoinNodes(join("n1"), timeout=timeout_s), _stream(plane, timeout_s))
            await asyncio.gather(*calls, return_exceptions=True)
    assert not [record for record in caplog.records if record.exc_info]


async def _stream(plane: Served, timeout_s: float) -> None:
    async def requests() -> AsyncIterator[pb.JoinNodesRequest]:
        while True:
            yield join("n1")
            await asyncio.sleep(0.01)

    await plane.calls.JoinNodesStream(requests(), timeout=timeout_s)
