"""The daemon's process: started, signalled, restarted, and started again when it ends by itself."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Sequence
from random import Random

logger = logging.getLogger(__name__)

STOP_S = 10.0
BACKOFF_S = 1.0
BACKOFF_S_MAX = 30.0
STEADY_S = 60.0
"""A run of at least this time resets the backoff between starts."""
RELOAD = signal.SIGUSR1
"""On this signal, IMEX reads the names of its peers again (imex-guide, signals)."""


class DaemonProcess:
    """Runs one daemon until `run` is cancelled. The daemon is not started before the first call of `start`."""

    def __init__(self, command: Sequence[str], rng: Random) -> None:
        self.starts = self.signals = 0
        self._command = command
        self._rng = rng
        self._wanted = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._is_restart = False

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def start(self) -> None:
        """Let `run` start the daemon. This has no effect on a running daemon."""
        self._wanted.set()

    def reload(self) -> None:
        """Signal a running daemon. A daemon that starts later needs no signal: it reads the present files."""
        if self._process is not None:
            self._process.send_signal(RELOAD)
            self.signals += 1

    async def restart(self) -> None:
        """End the daemon; `run` starts it again at once."""
        self._is_restart = self._process is not None
        await self._end()

    async def stop(self) -> None:
        """End the daemon. It stays ended until `start`."""
        self._wanted.clear()
        await self.restart()

    async def run(self) -> None:
        """Run the daemon until cancelled."""
        loop, failures = asyncio.get_running_loop(), 0
        try:
            while True:
                await self._wanted.wait()
                began_s = loop.time()
                try:
                    process = self._process = await asyncio.create_subprocess_exec(*self._command)
                except OSError as error:
                    status = f"it cannot be started: {error.strerror}"
                else:
                    self.starts += 1
                    if not self._wanted.is_set():  # `stop` was called while the process was being started
                        await self.restart()
                    status = f"exit status {await process.wait()}"
                self._process = None
                if self._is_restart:
                    self._is_restart, failures = False, 0
                    continue
                failures = 0 if loop.time() - began_s >= STEADY_S else failures + 1
                pause_s = self._rng.uniform(0.5, 1.0) * min(BACKOFF_S_MAX, BACKOFF_S * 2 ** min(failures - 1, 10))
                logger.warning("daemon ended, starting it again in %.1f s: %s", pause_s, status)
                await asyncio.sleep(pause_s)
        finally:
            await asyncio.shield(self._end())

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
