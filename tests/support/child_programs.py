"""Programs that a test starts and stops: each writes its output to a file of its name in a folder, and ends with the
test's process.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from deploy.kafka.broker_node import END_WITH_PARENT

STOP_S = 10.0
_TOLD = 2_000
"""Characters of a program's output that a failure repeats."""


class ChildEnded(Exception):
    """A program ended that should run."""


class ChildPrograms:
    """Running programs by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str, environment: Mapping[str, str] | None = None) -> None:
        """Start a program, unless it runs."""
        if name in self._running and self._running[name].poll() is None:
            return
        with self._output(name).open("ab") as output:
            self._running[name] = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=END_WITH_PARENT,  # noqa: PLW1509 - one system call, looked up before the fork
            )

    def kill(self, name: str) -> None:
        """Kill a program, as a fault would."""
        child = self._running.pop(name)
        child.kill()
        child.wait()

    def stop(self) -> None:
        """End all programs, the last one started first."""
        for child in reversed(self._running.values()):
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._running.clear()

    def raise_if_ended(self) -> None:
        """Raise ChildEnded, with the end of its output, if a program has ended by itself."""
        for name, child in self._running.items():
            if (status := child.poll()) is not None:
                told = self._output(name).read_text(errors="replace")[-_TOLD:]
                raise ChildEnded(f"{name} ended with status {status}: {told}")

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self._running.values()]

    def cpu_seconds(self, name: str) -> float:
        """The processor time that a program has used, of user and kernel."""
        fields = Path(f"/proc/{self._running[name].pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _output(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def free_ports(host: str, count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server((host, 0)) for _ in range(count)]
    try:
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
