"""Errors and refusals for programs: a code, named values, and details of the gRPC error model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from commands.client.errors import CallFailed, failure
from commands.rpc.limits import Limits
from eventstore.reasons import Reason
from schemas.api import dpuplane_pb2 as pb
from schemas.api.metadata import STATUS_DETAILS_KEY
from tests.support.planes import run
from tests.support.served import SHORT, Served, served

NODE = pb.NodeSpec(name="n1", addresses=["10.0.0.1"])


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "plane") as made:
        yield made


async def failed(call: Any) -> tuple[CallFailed, Status]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    trailing: Any = caught.value.trailing_metadata() or ()
    packed = [value for key, value in trailing if key == STATUS_DETAILS_KEY]
    return failure(caught.value, "a"), Status.FromString(packed[0])


def part(status: Status, kind: Any) -> Any:
    """The error detail of this kind, or None."""
    found = kind()
    return found if any(detail.Unpack(found) for detail in status.details) else None


async def test_an_invalid_field_is_named(plane: Served) -> None:
    error, status = await failed(plane.calls.FreezeWrites(pb.FreezeWritesRequest(zone="a b")))
    assert (status.code, status.message) == (grpc.StatusCode.INVALID_ARGUMENT.value[0], error.details)
    info = part(status, ErrorInfo)
    assert (info.reason, info.domain, dict(info.metadata)) == ("INVALID_FIELD", "dpuplane.io", {"field": "zone"})
    (violation,) = part(status, BadRequest).field_violations
    assert (violation.field, violation.description) == ("zone", error.details)
    assert part(status, RetryInfo) is None
    assert (error.reason, error.fields) == (Reason.INVALID_FIELD, {"field": "zone"})


async def test_a_missing_object_has_the_code_of_its_kind(plane: Served) -> None:
    for call, reason, values in (
        (plane.queries.GetZone(pb.GetZoneRequest(zone="z9")), Reason.ZONE_NOT_FOUND, {"zone": "z9"}),
        (plane.queries.GetNode(pb.GetNodeRequest(name="n9")), Reason.NODE_NOT_FOUND, {"node": "n9"}),
        (plane.queries.GetDpu(pb.GetDpuRequest(dpu="d9")), Reason.DPU_NOT_FOUND, {"dpu": "d9"}),
        (plane.queries.GetHold(pb.GetHoldRequest(hold=9)), Reason.HOLD_NOT_FOUND, {"hold": "9"}),
        (plane.queries.ListCliques(pb.ListCliquesRequest(domain="d9")), Reason.CLIQUE_NOT_FOUND, {"domain": "d9"}),
    ):
        error, status = await failed(call)
        assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, reason)
        assert values.items() <= error.fields.items()
        assert part(status, BadRequest) is None


async def test_a_call_over_a_limit_may_be_repeated_after_a_pause(tmp_path: Path) -> None:
    async with served(tmp_path / "plane", limits=Limits(rate_per_s=0.001, burst=1)) as plane:
        await plane.queries.GetStatus(pb.GetStatusRequest())
        error, status = await failed(plane.queries.GetStatus(pb.GetStatusRequest()))
        assert error.reason is Reason.OVER_LIMIT
        assert part(status, RetryInfo).retry_delay.seconds >= 1


async def test_a_position_that_is_not_reached_in_time_is_unavailable(tmp_path: Path) -> None:
    async with served(tmp_path / "plane", limits=SHORT) as plane:
        position = (await plane.queries.GetStatus(pb.GetStatusRequest())).position
        log_id = position.partition(":")[0]
        ahead = pb.ListPoliciesRequest(min_position=f"{log_id}:fleet/0=999")
        error, status = await failed(plane.queries.ListPolicies(ahead, timeout=60.0))
    assert (error.reason, part(status, RetryInfo) is not None) == (Reason.UNAVAILABLE, True)


async def test_a_refusal_of_a_fold_has_its_code_and_values_in_the_result_and_in_the_metric(plane: Served) -> None:
    await plane.join("z1", NODE)
    answer = await plane.calls.DeleteZone(pb.DeleteZoneRequest(zone="z1"))
    assert (answer.outcome, answer.reason_code) == (pb.OUTCOME_REFUSED, "ZONE_NOT_EMPTY")
    assert dict(answer.reason_fields) == {"field": "zone", "zone": "z1", "nodes": "1", "dpus": "0"}
    change = pb.ChangeNodesRequest(zone="z1", nodes=[pb.NodeSpec(name="n2")])
    (item,) = (await plane.calls.ChangeNodes(change)).items
    assert (item.reason_code, item.reason_fields["node"]) == ("NODE_NOT_FOUND", "n2")
    assert plane.server.metrics.refusals == {"ZONE_NOT_EMPTY": 1, "NODE_NOT_FOUND": 1}
    shown = await plane.queries.GetCommand(pb.GetCommandRequest(command_id=answer.command_id))
    assert (shown.reason_code, shown.reason_fields) == (answer.reason_code, answer.reason_fields)


async def test_the_command_line_prints_codes_and_hints_by_them(plane: Served) -> None:
    await plane.join("z1", NODE)
    refused = await run("zones", "delete", "z1", "-o", "json", server=plane.address)
    assert (refused.status, refused.json()["reason_code"], refused.json()["reason_fields"]["nodes"]) == (
        1,
        "ZONE_NOT_EMPTY",
        "1",
    )
    unknown = await run("zones", "show", "z9", server=plane.address)
    assert (unknown.status, "see `dpuplane zones list`" in unknown.stderr) == (1, True)
    hold = await run("holds", "show", "9", server=plane.address)
    assert (hold.status, "see `dpuplane holds list`" in hold.stderr) == (1, True)
