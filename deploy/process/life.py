"""The life of a process: event loop, signals, and exit status. It needs little memory, because agents use it too."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

import uvloop

from deploy.host.file_limits import raise_file_limit
from eventstore.errors import PlaneError

logger = logging.getLogger(__name__)

LOOKUPS = "64"
"""Maximum concurrent lookups of host names, one per thread. By default the loop has 4 threads, and the name of a lost
broker may block each thread for many seconds, repeatedly: the names of live brokers would then not be resolved.
"""

SHUTDOWN_SECONDS = 4.5
"""Time limit for a clean end; tasks that still run after it are abandoned."""


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
