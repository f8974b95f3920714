"""Serves queries as of one point of the past in a separate process, which deploy/operations/past/as_of_servers.py
starts: `python -m deploy.operations.past.as_of_server`.

Folding thousands of records up to a point would block queries of the present. It is therefore done in this process, at
a low priority, and the result is served over a socket by the same service that serves the present. The process ends
when its standard input closes, so it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import grpc
import uvloop
from pydantic import BaseModel

from commands.queries.as_of import QUERIES
from commands.queries.command_status import CommandStatus
from commands.queries.fold_reader import FoldReader
from commands.queries.service import QueriesService
from commands.queries.status import StatusReporter
from commands.rpc.limits import DEFAULTS, Admission
from commands.rpc.middleware import RpcMiddleware
from deploy.composition.roles import folds_of
from deploy.host.child_process import NICE, order_line, run_until_input_ends, say
from deploy.host.storage import location_of, log_source_of, open_log_to_read, state_folder
from deploy.settings.settings import Settings
from deploy.telemetry.logs import configure_logs
from eventstore.as_of import parse_as_of
from eventstore.errors import PermanentError, PlaneError
from eventstore.folding.origin import wait_for_origin
from eventstore.recovery.cuts import cut_of
from eventstore.recovery.fold_as_of import FoldedLogAsOf, fold_as_of
from eventstore.state_store.rocks_store import list_checkpoints

SAY_S = 0.25
"""Interval of the lines that report progress."""

_UNLIMITED = replace(DEFAULTS, rate_per_s=1e12, burst=1e12, concurrent_calls=1_000_000, concurrent_streams=1_000_000)
"""No limits: the process that received the query has applied them."""


class AsOfRequest(BaseModel):
    """The point to fold to and the socket to serve on; the first line of standard input."""

    settings: Settings
    at: str
    socket: Path


async def folded(order: AsOfRequest, say: Callable[[int, int], None]) -> FoldedLogAsOf:
    """The folded log as of the point. Raises PermanentError if there is no such point, and other PlaneErrors if the log
    cannot be read or folded."""
    folder = state_folder(order.settings)
    checkpoints = list_checkpoints(folder) if folder is not None else []
    async with open_log_to_read(log_source_of(order.settings), rng=random.Random()) as log:
        origin = await wait_for_origin(log)
        cut = await cut_of(log, origin.log_id, log.topics.folded, parse_as_of(order.at))
        return await fold_as_of(log, folds_of(log.partition_count), cut, checkpoints, say)


def service(past: FoldedLogAsOf, settings: Settings) -> QueriesService:
    """The Queries service over a folded log. Its responses lack values that exist only in live processes."""
    board = StatusReporter(
        past,
        location=location_of(settings),
        roles=("queries",),
        addresses={},
        version=version("dpuplane"),
        alive=lambda: (),
        stalled=dict,
    )
    reader = FoldReader(past, _Settled())
    command_status = CommandStatus(past, lambda: past.ends_seen_ms, reader.with_fleet)
    return QueriesService(reader, command_status, board, devices=None)


class _Settled:
    """Refuses a minimum position: a log that is folded up to a cut never reaches a later position."""

    async def wait_for_token(self, token: str, topics: object, timeout_s: float) -> None:
        if token:
            raise PermanentError("min_position: must not be given together with as_of")


async def _serve(order: AsOfRequest) -> None:
    loop = asyncio.get_running_loop()
    next_s = 0.0

    def say_progress(done: int, total: int) -> None:
        nonlocal next_s
        if loop.time() >= next_s:
            next_s = loop.time() + SAY_S
            say({"done": done, "total": total})

    try:
        past = await folded(order, say_progress)
    except PlaneError as error:
        say({"refused" if isinstance(error, PermanentError) else "failed": str(error)})
        return
    gc.freeze()
    gc.enable()
    server = grpc.aio.server()
    guard = RpcMiddleware(_UNLIMITED, Admission(_UNLIMITED, loop.time))
    server.add_generic_rpc_handlers((guard.handlers(QUERIES, service(past, order.settings)),))
    server.add_insecure_port(f"unix:{order.socket}")
    await server.start()
    say({"ready": True})
    await server.wait_for_termination()


def main() -> None:
    """Fold, serve, and end when standard input closes."""
    os.nice(NICE)
    configure_logs("WARNING")
    gc.disable()
    order = AsOfRequest.model_validate_json(order_line())
    uvloop.run(run_until_input_ends(_serve(order)))


if __name__ == "__main__":
    main()
