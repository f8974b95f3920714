"""Restarts a DPU through its rshim."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

from deploy.host_agent.actions import ActionFailed, Progress
from deploy.host_agent.install_progress import BEGUN
from deploy.host_agent.rshim import Misc, ResetDetector, write_misc
from deploy.host_agent.timed_rshim import RshimTiming, TimedRshim
from schemas.api import dpuplane_pb2 as pb

RESET = "SW_RESET 1"
GRAIN_S = 2
"""The time since a reset is in whole seconds."""
_LAST_RESET = re.compile(r"restarts the DPU; its last reset was at second (-?\d+) of the boot of the host")

_TIMING = RshimTiming()


class RestartAction:
    """Restarts DPUs, each once for a task.

    The progress of a task has the time of the DPU's last reset from before it. A later reset shows that an earlier run
    of the agent has done the task. The time is on the clock of the host's boot: an agent that is killed during a reset,
    and starts again in another boot of its host, resets the DPU again.
    """

    def __init__(self, dev: Path, timing: RshimTiming = _TIMING) -> None:
        self._dev = dev
        self._timing = timing

    async def run(self, task: pb.HostTask, progress: Progress) -> None:
        rshim, loop = TimedRshim(self._dev, task.pci_address, self._timing), asyncio.get_running_loop()
        misc, earlier = await rshim.read(), _LAST_RESET.fullmatch(task.message)
        reset_s, detector = _reset_s(misc), ResetDetector(None)
        if earlier is None or reset_s <= int(earlier[1]) + GRAIN_S:
            if earlier is None:
                last = f"its last reset was at second {reset_s} of the boot of the host"
                await progress(BEGUN, f"restarts the DPU; {last}", is_required=True)
            folder, detector = await rshim.folder(), ResetDetector(misc)
            await rshim.timed("reset", lambda: write_misc(folder, RESET))
        ends_s = loop.time() + self._timing.restart_s
        while loop.time() < ends_s:
            found = await rshim.read_if_there()
            if found is not None and detector.is_after(found) and found.is_ready:
                return
            await asyncio.sleep(self._timing.poll_s)
        raise ActionFailed(f"rshim: the DPU was not ready {self._timing.restart_s:g} s after its reset")


def _reset_s(misc: Misc) -> int:
    """The time of the last reset of a DPU, in seconds since the boot of its host."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME)) - misc.up_s
