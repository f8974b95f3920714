"""The reboot of a host, by a command of its operator.

A reboot is asked for in one boot of the host, which the task names, and has happened once the host is in another boot.
So the agent never reboots twice for one task: in the boot of the task it runs the command, and in every other boot it
does nothing. If it is killed after it has started the command, it is still in that boot, and runs the command again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence

from deploy.host_agent.actions import ActionFailed, Progress
from deploy.host_agent.boot import Boot
from deploy.host_agent.commands import run_command
from schemas.api import dpuplane_pb2 as pb

PATIENCE_S = 600.0
"""Time for a host to go down after a command that succeeded. DPF's hosts have the same time in their reboot scripts."""


class RebootAction:
    """Reboots the host. `commands` are the commands by method of DPF; `boot` reads the present boot."""

    def __init__(
        self,
        node: str,
        commands: Mapping[str, Sequence[str]],
        boot: Callable[[], Boot],
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._node = node
        self._commands = commands
        self._boot = boot
        self._patience_s = patience_s

    async def run(self, task: pb.HostTask, progress: Progress) -> None:
        if self._boot().id != task.boot_id:
            return
        command = self._commands.get(task.method)
        if command is None:
            raise ActionFailed(f"reboot: the agent has no command for {task.method}; start it with --reboot-command")
        variables = {
            "DPUNODE_NAME": self._node,
            "DPUNODE_REBOOT_METHOD": task.method,
            "DPUNODE_REBOOT_METHODS_PER_DPU": json.dumps(dict(task.methods), sort_keys=True),
        }
        await run_command(command, variables)
        await progress(0, "waits for the host to go down")
        await asyncio.sleep(self._patience_s)
        if self._boot().id == task.boot_id:
            raise ActionFailed(f"reboot: the host is in the same boot {self._patience_s:g} s after {command[0]} ended")
