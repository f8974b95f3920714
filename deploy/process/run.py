"""One process of the plane: its traces, its start without garbage collection, and its ready line."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import socket
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from deploy.clock import now_ms
from deploy.process.life import run_until_signal
from deploy.process.plane import Plane
from deploy.process.service_manager import service_notifications
from deploy.settings.settings import Settings
from eventstore.errors import FatalError

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
        if settings.is_simulated:
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
