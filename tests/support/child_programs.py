"""Programs that a test starts and stops: each writes its output to a file of its name in a folder, and ends with the
test's process.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from deploy.kafka.broker_node import END_WITH_PARENT

STOP_S = 10.0
_TOLD = 2_000
"""Characters of a program's output that a failure repeats."""
PORTS = range(10_000, 15_000)
"""Ports of programs. Those of Kafka's brokers begin above (deploy/kafka/brokers.py)."""
_reservations: list[socket.socket] = []


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
    """Ports that nobody listens on, and that no other caller on this machine gets while this process runs.

    They lie below the range of ephemeral ports: the system would otherwise give such a port to a client or to another
    server before the program listens on it, or while the program is down between two starts.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        if len(found) == count:
            return found
        if (holder := _reserved(port)) is None:
            continue
        try:
            socket.create_server((host, port)).close()
        except OSError:
            holder.close()
            continue
        _reservations.append(holder)
        found.append(port)
    raise AssertionError(f"{host} has no {count} free ports from {PORTS.start} to {PORTS.stop - 1}")


def _reserved(port: int) -> socket.socket | None:
    """A reservation of a port for the life of this process; None if another process has it."""
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(f"\0dpuplane-test-port-{port}")
    except OSError:
        holder.close()
        return None
    return holder
