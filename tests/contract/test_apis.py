"""The API as the simulation calls it, compared with the API over a socket: the same bytes, statuses and messages."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message

from schemas.api import dpuplane_pb2 as pb
from schemas.api.metadata import PRINCIPAL_KEY
from tests.simulation.api import Aborted, Api
from tests.support.served import Served, served

NODE = pb.NodeSpec(name="n", addresses=["10.0.0.1"], labels={"role": "web"})
CLAIMS = [pb.ClaimSpec(node="n", requested_index=3), pb.ClaimSpec(node="m", requested_index=3), pb.ClaimSpec(node="k")]
CALLS: dict[str, tuple[str, str, Message | bytes]] = {
    "a join": ("Commands", "JoinNodes", pb.JoinNodesRequest(zone="z", nodes=[NODE])),
    "a claim": ("Commands", "ClaimIndices", pb.ClaimIndicesRequest(domain="d", clique="c", claims=CLAIMS[:1])),
    "several claims": ("Commands", "ClaimIndices", pb.ClaimIndicesRequest(domain="d", clique="c", claims=CLAIMS)),
    "a release": (
        "Commands",
        "ReleaseIndices",
        pb.ReleaseIndicesRequest(domain="d", clique="c", releases=[pb.ReleaseSpec(node="nobody")]),
    ),
    "a refusal by the fold": ("Commands", "ChangeNodes", pb.ChangeNodesRequest(zone="z", nodes=[NODE])),
    "a leave of an unknown node": ("Commands", "LeaveNodes", pb.LeaveNodesRequest(zone="z", names=["nobody"])),
    "an invalid request": ("Commands", "JoinNodes", pb.JoinNodesRequest(zone="Z!", nodes=[NODE])),
    "no protobuf": ("Commands", "SetPolicy", b"\xff\xff\xff"),
    "a query": ("Queries", "ListZones", pb.ListZonesRequest()),
    "a query of another log": ("Queries", "ListZones", pb.ListZonesRequest(min_position="other:zones/0=1")),
    "a query without a match": ("Queries", "GetNode", pb.GetNodeRequest(name="nobody")),
}


async def over_a_socket(plane: Served, service: str, method: str, request: bytes, principal: str) -> bytes | str:
    path = f"/{pb.DESCRIPTOR.package}.{service}/{method}"
    unary = plane.channel.unary_unary(path, request_serializer=None, response_deserializer=None)
    try:
        answer: bytes = await unary(request, timeout=60.0, metadata=((PRINCIPAL_KEY, principal),))
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details()}"
    return answer


async def simulated(plane: Served, service: str, method: str, request: bytes, principal: str) -> bytes | str:
    try:
        return await Api(plane.server).call(service, method, request, principal, 10.0)
    except Aborted as aborted:
        return str(aborted)


@pytest.mark.parametrize("name", CALLS)
async def test_the_simulated_api_responds_like_the_api_over_a_socket(tmp_path: Path, name: str) -> None:
    service, method, request = CALLS[name]
    async with served(tmp_path) as plane:
        if isinstance(request, Message) and service == "Commands":
            request.command_id = plane.command_id()  # type: ignore[attr-defined]
        raw = request if isinstance(request, bytes) else request.SerializeToString()
        one = await over_a_socket(plane, service, method, raw, "somebody")
        other = await simulated(plane, service, method, raw, "somebody")
        assert one == other, "a repeated command gets the same answer"
        assert one != await simulated(plane, service, method, raw, "Not A Principal")
        assert await over_a_socket(plane, service, method, raw, "Not A Principal") == await simulated(
            plane, service, method, raw, "Not A Principal"
        )
