"""The process that writes decisions for a process of role `all`: started, watched, and started again when it ends."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from random import Random

from deploy.host.child_process import answers_of, start_child
from deploy.process.decisions_program import Order
from deploy.settings.settings import Settings
from deploy.telemetry.logs import configured
from eventstore.backoff import backoff_ceiling
from eventstore.replicas.role_names import DECISION_WRITER

BACKOFF_S = 1.0
BACKOFF_MAX_S = 30.0

STEADY_S = 60.0
"""A process that ran for this long is started again with the shortest backoff."""

END_S = 1.0
"""Time limit for the end of the process after its standard input was closed."""

NAME_MAX = 53
"""Maximum number of characters of the parent's name in the name of the replica. The whole name may have 63
characters."""

_PROGRAM = "deploy.process.decisions_program"
_CHANGED_SETTINGS = {
    "role": DECISION_WRITER,
    "simulate": 0,
    "simulate_hosts": "",
    "simulate_fail": "",
    "state_checkpoints": 1,
    "state_checkpoints_mb": 0,
}
"""The settings in which the process differs from its parent. It keeps the fewest checkpoints, because it answers no
queries of the past."""

logger = logging.getLogger(__name__)


class DecisionsProcess:
    """Runs the process until `run` is cancelled. The counts cover all processes so far. `reports` counts the progress
    reports; `lag` is from the latest one."""

    def __init__(self, settings: Settings, name: str, *, rng: Random) -> None:
        self.lag = 0
        self.reports = 0
        self._rng = rng
        self._ended = {"written": 0, "failures": 0}
        self._running = dict(self._ended)
        level, form = configured()
        self._order = Order(
            settings=settings.model_copy(update=_CHANGED_SETTINGS),
            name=f"{name[:NAME_MAX]}-decisions",
            log_level=level,
            log_format=form,
        )

    @property
    def written(self) -> int:
        """Decisions whose appends were acknowledged."""
        return self._ended["written"] + self._running["written"]

    @property
    def failures(self) -> int:
        """Appends that may not have landed."""
        return self._ended["failures"] + self._running["failures"]

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began_s = loop.time()
            reason = await self._run_once()
            failures = 0 if loop.time() - began_s >= STEADY_S else failures + 1
            wait_s = self._rng.uniform(0.5, 1.0) * backoff_ceiling(failures, BACKOFF_S, BACKOFF_MAX_S)
            logger.error("decisions process ended, starting it again in %.1f s: %s", wait_s, reason)
            await asyncio.sleep(wait_s)

    async def _run_once(self) -> str:
        """Run one process from its start to its end; returns the reason of the end."""
        try:
            process = start_child(_PROGRAM, self._order)
        except OSError as error:
            return f"it cannot be started: {error}"
        reason = ""
        try:
            async for answer in answers_of(process):
                match answer:
                    case {"written": int(written), "failures": int(failures), "lag": int(lag)}:
                        self._running, self.lag = {"written": written, "failures": failures}, lag
                        self.reports += 1
                    case {"failed": str(reason)}:
                        pass
        finally:
            await asyncio.shield(asyncio.to_thread(_end, process))
            self._ended = {name: count + self._running[name] for name, count in self._ended.items()}
            self._running = dict.fromkeys(self._running, 0)
        return reason or f"exit status {process.returncode}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the standard input of the process, and kill it if it does not end."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
