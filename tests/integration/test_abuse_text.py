"""Abuse by text: names, labels, ids and reasons that contain commands, log lines, escapes or another identity."""

from __future__ import annotations

import io
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from deploy.telemetry.logs import KeyValueFormatter
from projections.field_checks import is_printable
from schemas.api import dpuplane_pb2 as pb
from tests.support.guarded import Guarded, allow_agents, guarded

HOSTILE = [
    "; rm -rf /",
    "$(reboot)",
    "`id`",
    "a\nlevel=error event=forged",
    "a\r\nSet-Cookie: x",
    "\x1b[2J\x1b[31mowned",
    "<script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    "../../etc/passwd",
    "n1\u202egnp",
    "\uff11\uff10.0.0.1",
    "x" * 300,
    "",
    "a b",
    "%n%s",
    "{0.__class__}",
]


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path) as found:
        yield found


def requests(text: str) -> list[tuple[str, Any]]:
    """Requests with the text in each field for a name or an address."""
    return [
        ("JoinNodes", pb.JoinNodesRequest(zone="z", nodes=[pb.NodeSpec(name=text)])),
        ("JoinNodes", pb.JoinNodesRequest(zone=text, nodes=[pb.NodeSpec(name="n")])),
        ("JoinNodes", pb.JoinNodesRequest(zone="z", nodes=[pb.NodeSpec(name="n", addresses=[text])])),
        ("JoinNodes", pb.JoinNodesRequest(zone="z", nodes=[pb.NodeSpec(name="n", labels={text: "v"})])),
        ("JoinNodes", pb.JoinNodesRequest(zone="z", nodes=[pb.NodeSpec(name="n")], command_id=text or "-")),
        ("SetPolicy", pb.SetPolicyRequest(policy=pb.PolicySpec(name=text, action="allow"))),
        ("SetPolicy", pb.SetPolicyRequest(policy=pb.PolicySpec(name="p", action=text))),
        ("SetPolicy", pb.SetPolicyRequest(policy=pb.PolicySpec(name="p", action="allow", sources={text: "v"}))),
        ("RegisterDpu", pb.RegisterDpuRequest(zone="z", dpu=text)),
        ("ClaimIndices", pb.ClaimIndicesRequest(domain=text, clique="c", claims=[pb.ClaimSpec(node="n")])),
        ("ApproveHold", pb.ApproveHoldRequest(hold=1, hash=text)),
    ]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
async def test_hostile_text_is_refused_by_name_in_one_printable_line(plane: Guarded, text: str) -> None:
    operator, approver = plane.caller("operator/eve"), plane.caller("approver/eve")
    stated = await plane.plane.stated()
    for method, request in requests(text):
        caller = approver if method == "ApproveHold" else operator
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await getattr(caller.calls, method)(request)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT, (method, request)
        details = caught.value.details() or ""
        assert is_printable(details), (method, details)
        assert len(details) < 400
    assert await plane.plane.stated() == stated


async def test_free_text_stays_on_one_line(plane: Guarded) -> None:
    operator = plane.caller("operator/eve")
    for text in ("a\nb", "\x1b[31m", "a\u2028b", "\u202e"):
        for request in (
            pb.JoinNodesRequest(zone="z", nodes=[pb.NodeSpec(name="n", labels={"k": text})]),
            pb.JoinNodesRequest(zone="z", nodes=[pb.NodeSpec(name="n", create_time=Timestamp(seconds=1), uid=text)]),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="printable"):
                await operator.calls.JoinNodes(request)


async def test_a_denial_of_a_hostile_name_is_one_log_line(plane: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(KeyValueFormatter())
    logging.getLogger("commands").addHandler(handler)
    try:
        agent = plane.caller("node-agent/n1")
        hostile = pb.NodeSpec(name="x\ntime=0 level=info event=forged \x1b[31m" + "y" * 5_000)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await agent.calls.JoinNodes(pb.JoinNodesRequest(zone="z", nodes=[hostile]))
        assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
    finally:
        logging.getLogger("commands").removeHandler(handler)
    lines = written.getvalue().splitlines()
    assert len(lines) == 1
    assert is_printable(lines[0])
    assert len(lines[0]) < 600


async def test_a_role_is_never_taken_from_the_content_of_a_request(plane: Guarded) -> None:
    """Labels, names and metadata that claim a role or a principal have no effect."""
    agent = plane.caller("node-agent/n1")
    spec = pb.NodeSpec(name="n1", labels={"role": "operator", "spiffe": "spiffe://test.example/operator/root"})
    await allow_agents(plane, "z", label_keys=["role", "spiffe"])
    answer = await agent.calls.JoinNodes(pb.JoinNodesRequest(zone="z", nodes=[spec]))
    assert answer.outcome == pb.OUTCOME_DONE
    claims = [("x-forwarded-client-cert", "URI=spiffe://test.example/operator/root"), ("authorization", "Bearer root")]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await agent.calls.FreezeWrites(pb.FreezeWritesRequest(all_zones=True), metadata=claims)
    assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
