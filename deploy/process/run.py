"""The life of one process of the plane: event loop, signals, ready line, and exit status."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import socket
import sys
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import uvloop

from deploy.clock import now_ms
from deploy.host.file_limits import raise_file_limit
from deploy.process.plane import Plane
from deploy.process.service_manager import service_notifications
from deploy.settings.settings import Settings
from eventstore.errors import FatalError, PlaneError

if TYPE_CHECKING:
    from deploy.telemetry.tracing import SpanRecorder

logger = logging.getLogger(__name__)

START_SECONDS = 300.0
"""Maximum time for which garbage collection is off during a start. A start that takes longer waits
for something, and does not load state."""

COLLECT = (10_000, 5, 20)
"""The collector's thresholds: new objects before a collection of the youngest generation, and the ratios for older
ones. The collector does not track the rows of states, so it mostly visits the objects of running requests. With the
default threshold it ran 14 times as often, which took a tenth of the time of a burst of joins.
"""

LOOKUPS = "64"
"""Maximum concurrent lookups of host names, one per thread. By default the loop has 4 threads, and the name of a lost
broker may block each thread for many seconds, repeatedly: the names of live brokers would then not be resolved.
"""

SHUTDOWN_SECONDS = 4.5
"""Time limit for a clean end; tasks that still run after it are abandoned."""


def run_process(settings: Settings) -> int:
    """Run until a signal. Returns the exit status: 0 after a clean end, 3 if the plane could not start or continue."""
    return run_until_signal(_serve(settings))


async def _serve(settings: Settings) -> None:
    with _recording_spans(settings) as span_recorder:
        await _serve_plane(settings, span_recorder)


def _recording_spans(settings: Settings) -> AbstractContextManager[SpanRecorder | None]:
    """The recorder of traces, if the settings enable traces."""
    if not settings.traces:
        return nullcontext()
    try:
        from deploy.telemetry.trace_export import exporting_to, recording_spans
    except ImportError as error:
        raise FatalError("traces: needs OpenTelemetry; pip install 'dpuplane[otel]'") from error
    replica = settings.name or socket.gethostname()
    return recording_spans(exporting_to(settings.traces), share=settings.traces_share, replica=replica)


async def _serve_plane(settings: Settings, span_recorder: SpanRecorder | None) -> None:
    rng = random.Random(settings.seed)
    gc.disable()  # collections during the load of the state take 0.2 s each and free nothing
    late = asyncio.get_running_loop().call_later(START_SECONDS, gc.enable)
    async with Plane.start(settings, now_ms=now_ms, rng=rng, span_recorder=span_recorder) as plane:
        tune_garbage_collector()
        late.cancel()
        gc.enable()
        if settings.simulate:
            logger.warning(
                "devices are simulated, no hardware is written to", extra={"dpus_per_zone": settings.simulate}
            )
        for failure in settings.simulated_failures:
            logger.warning("simulated DPUs configured to fail", extra={"failure": str(failure)})
        sys.stdout.write(f"ready {plane.addresses_text()}\n")
        sys.stdout.flush()
        async with service_notifications(os.environ):
            await plane.wait()


def tune_garbage_collector() -> None:
    """Exempt the loaded objects, which live long, from garbage collection, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)


def run_until_signal(main: Coroutine[Any, Any, None]) -> int:
    """Run `main` on a fast loop; SIGTERM and SIGINT cancel it, and it gets SHUTDOWN_SECONDS to end cleanly."""
    os.environ.setdefault("UV_THREADPOOL_SIZE", LOOKUPS)
    raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_until_signal(main))


async def _until_signal(main: Coroutine[Any, Any, None]) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    running = asyncio.ensure_future(main)
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not running.done():
        logger.info("shutdown started")
        running.cancel()
        await asyncio.wait({running}, timeout=SHUTDOWN_SECONDS)
        if not running.done():
            logger.error("process killed: shutdown timed out", extra={"seconds": SHUTDOWN_SECONDS})
            logging.shutdown()
            os._exit(3)  # closing the loop would wait for hanging tasks; acknowledged commands are in the log
    return _status(running)


def _status(ended: asyncio.Future[None]) -> int:
    if ended.cancelled():
        return 0
    error = ended.exception()
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    match error:
        case None:
            return 0
        case PlaneError() | OSError():
            sys.stderr.write(f"dpuplane: {error}\n")
        case _:
            logger.critical("process stopped by an unhandled exception", exc_info=error)
    return 3
