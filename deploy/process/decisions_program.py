"""The role `decisions` beside a process of role `all`: `python -m deploy.process.decisions_program`, started by
deploy/process/decisions_process.py.

It folds the log and writes decisions at its own pace and at low priority, so that no call to the API waits for it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from importlib.metadata import version

import uvloop
from pydantic import BaseModel

from deploy.clock import now_ms
from deploy.composition.roles import replica_of
from deploy.host.child_process import NICE, order_line, run_until_input_ends, say
from deploy.host.file_limits import raise_file_limit
from deploy.host.storage import open_log, open_store
from deploy.settings.settings import Settings
from deploy.telemetry.logs import configure_logs
from drivers.decisions.buffer import DecisionBuffer
from drivers.decisions.writer import DecisionWriter
from eventstore.errors import PlaneError
from eventstore.replicas.beacons import Beacons
from eventstore.replicas.role_names import DECISION_WRITER

SAY_S = 1.0
"""Interval of the lines that report progress."""

GRACE_S = 0.8
"""Time limit for the last save when the process ends."""

logger = logging.getLogger(__name__)


class Order(BaseModel):
    """The settings of the role, the name of this replica, and its logging; the first line of standard input."""

    settings: Settings
    name: str
    log_level: str
    log_format: str


async def write_decisions(settings: Settings, name: str, report: Callable[[DecisionWriter], None]) -> None:
    """Fold and write decisions for ever, and call `report` with the progress each second. Raises PlaneError."""
    rng = random.Random(settings.seed)
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(open_log(settings, now_ms=now_ms, rng=rng))
        store = stack.enter_context(open_store(settings))
        buffer = DecisionBuffer()
        replica = replica_of((DECISION_WRITER,), log, store, name, now_ms=now_ms, rng=rng, decisions=buffer)
        beacons = Beacons(log, replica, roles=(DECISION_WRITER,), addresses={}, version=version("dpuplane"), rng=rng)
        writer = DecisionWriter(replica, buffer, beacons, now_ms=now_ms, rng=rng)
        stack.push_async_callback(replica.save)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(replica.run())
            tasks.create_task(writer.run())
            tasks.create_task(_report_forever(writer, report))
            await replica.ready()
            gc.collect()
            gc.freeze()
            gc.enable()
            tasks.create_task(beacons.run())


async def _report_forever(writer: DecisionWriter, report: Callable[[DecisionWriter], None]) -> None:
    while True:
        report(writer)
        await asyncio.sleep(SAY_S)


async def _work(order: Order) -> None:
    def report(writer: DecisionWriter) -> None:
        say({"written": writer.written, "failures": writer.failures, "lag": writer.lag})

    try:
        await write_decisions(order.settings, order.name, report)
    except* (PlaneError, OSError) as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        say({"failed": str(error)})


def main() -> None:
    """Write decisions until standard input closes."""
    os.nice(NICE)
    raise_file_limit()
    gc.disable()
    order = Order.model_validate_json(order_line())
    configure_logs(order.log_level, order.log_format)
    with suppress(BrokenPipeError):  # the parent is gone, and standard input ends at once
        uvloop.run(run_until_input_ends(_work(order), grace_s=GRACE_S))


if __name__ == "__main__":
    main()
