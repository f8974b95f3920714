"""A bare grpc.aio server with methods of the API that do nothing: the share of the library in a command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from multiprocessing.connection import Connection

import grpc
import uvloop

from schemas.api import dpuplane_pb2 as pb


def run_echo(tell: Connection) -> None:
    """Serve until the process ends; send the address first."""
    uvloop.run(_serve_echo(tell))


async def _serve_echo(tell: Connection) -> None:
    server = grpc.aio.server()
    parse, dump = pb.JoinNodesRequest.FromString, pb.JoinNodesRequest.SerializeToString
    count_joins = grpc.stream_unary_rpc_method_handler(_count, parse, pb.JoinSummary.SerializeToString)
    methods = {
        "JoinNodes": grpc.unary_unary_rpc_method_handler(_same, parse, dump),
        "JoinNodesStream": count_joins,
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("dpuplane.v1.Commands", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    tell.send(f"127.0.0.1:{port}")
    await server.wait_for_termination()


async def _same(request: pb.JoinNodesRequest, _: object) -> pb.JoinNodesRequest:
    return request


async def _count(requests: AsyncIterator[pb.JoinNodesRequest], _: object) -> pb.JoinSummary:
    return pb.JoinSummary(done=sum([len(request.columns.names) async for request in requests]))
