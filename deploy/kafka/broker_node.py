"""One node of a Kafka cluster, a broker, a controller or both: its settings, its files, its process.

The settings are those of the operations guide for a cluster with a log, with two exceptions for a laptop: memory is
small, and all listeners are on the loopback.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from deploy.kafka.jars import NoKafka

HOST = "127.0.0.1"
_PR_SET_PDEATHSIG = 1
_JAVA_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
)

TAKEOVER: Mapping[str, int] = {
    "broker.session.timeout.ms": 700,
    "broker.heartbeat.interval.ms": 200,
    "controller.quorum.fetch.timeout.ms": 500,
    "controller.quorum.election.timeout.ms": 100,
    "controller.quorum.election.backoff.max.ms": 100,
    "controller.quorum.append.linger.ms": 5,
    "metadata.max.idle.interval.ms": 200,
    "replica.fetch.wait.max.ms": 100,
    "replica.fetch.backoff.ms": 50,
}
"""Settings that limit how long appends wait when a broker dies. With Kafka's defaults, appends wait for over 10 s.

First, the session of the dead broker must expire: before that, no other broker may lead. This step takes 0.5 s longer
if the dead broker was also the active controller. The other controllers notice its death after 0.5 s, by a fetch
without a response, and elect another active controller, which restarts the session timeout. (An idle controller
responds to a fetch only with new data, so it writes a no-op every 0.2 s.) Separate controllers save these 0.5 s. Last,
the followers switch to the new leader. With Kafka's defaults, a follower first ends its present poll of 0.5 s, or its
backoff of 1 s after an error.

A broker that pauses for longer than its session timeout is replaced too. The replacement loses no record and stops
appends for about 1 s, so the timeout may be short if longer pauses are rare. The timeout of 0.7 s is three heartbeats,
and longer than the pauses of Java's garbage collection. With 0.5 s, a broker that shared two busy cores was replaced
occasionally. A change of the active controller is not visible to clients, so the timeout of controllers is shorter.

These settings cost CPU time while the cluster is idle. Even shorter times would make a takeover slower if three brokers
share two cores.
"""


class Program(NamedTuple):
    """The command that runs Kafka's classes."""

    java: Path
    jars: Path

    def command(self, main: str, *arguments: str) -> list[str]:
        return [str(self.java), *_JAVA_OPTIONS, "-cp", f"{self.jars}/*", main, *arguments]


class Node(NamedTuple):
    """The properties of a node that never change while its data exists.

    `port` is 0 for a controller without a broker, `controller_port` is 0 for a broker without a controller.
    """

    id: int
    port: int
    controller_port: int

    @property
    def name(self) -> str:
        return f"{'broker' if self.port else 'controller'} {self.id}"

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


def properties(node: Node, nodes: Sequence[Node], logs: Path) -> str:
    """The node's settings file."""
    voters = [f"{each.id}@{HOST}:{each.controller_port}" for each in nodes if each.controller_port]
    listeners = {}
    if node.port:
        listeners["broker"] = f"PLAINTEXT://{node.address}"
    if node.controller_port:
        listeners["controller"] = f"CONTROLLER://{HOST}:{node.controller_port}"
    copies = min(3, sum(each.port != 0 for each in nodes))
    enough = min(2, copies)
    settings = {
        "process.roles": ",".join(listeners),
        "node.id": node.id,
        "controller.quorum.voters": ",".join(voters),
        "listeners": ",".join(listeners.values()),
        "advertised.listeners": listeners.get("broker", ""),
        "controller.listener.names": "CONTROLLER",
        "log.dirs": logs,
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": enough,
        "log.message.timestamp.type": "LogAppendTime",
        "offsets.topic.num.partitions": 3,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": 3,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": enough,
        **TAKEOVER,
        "group.initial.rebalance.delay.ms": 0,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "log.cleaner.dedupe.buffer.size": 8 << 20,
        "log.index.size.max.bytes": 1 << 20,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items() if value != "")


class NodeProcess:
    """The process of one node. It ends when its parent process ends."""

    def __init__(self, program: Program, node: Node, folder: Path, nodes: Sequence[Node]) -> None:
        self.node = node
        self._program = program
        self._settings = folder / "server.properties"
        self._logs = folder / "logs"
        self._output = folder / "output.txt"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._settings.write_text(properties(node, nodes, self._logs))

    async def format(self, cluster_id: str) -> None:
        """Format the folder of a new node; a formatted folder is left unchanged."""
        if (self._logs / "meta.properties").exists():
            return
        arguments = ("format", "-t", cluster_id, "-c", str(self._settings))
        formatting = self._run("kafka.tools.StorageTool", *arguments)
        try:
            status = await asyncio.to_thread(formatting.wait)
        finally:
            formatting.kill()
        if status:
            raise NoKafka(f"{self.node.name}: preparing its folder failed, see {self._output}")

    def start(self) -> None:
        assert not self.is_running
        self._process = self._run("kafka.Kafka", str(self._settings))

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ending(self) -> str:
        """A sentence about a node that ended by itself, with its exit status; empty while the node runs."""
        status = self._process.poll() if self._process else None
        return "" if status is None else f"{self.node.name} ended with status {status}, see {self._output}"

    def raise_if_ended(self) -> None:
        """Raise NoKafka if the node has ended by itself."""
        if ending := self.ending():
            raise NoKafka(ending)

    def send(self, number: signal.Signals) -> None:
        """Signal the node, unless it has ended."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL; returns when the process has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _run(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self._output.open("ab") as output:
            return subprocess.Popen(
                self._program.command(main, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a Ctrl-C in the terminal must not reach the nodes: they are stopped in order
                preexec_fn=END_WITH_PARENT,  # noqa: PLW1509 - one system call, looked up before the fork
            )


def _end_with_parent_on_linux() -> Callable[[], None]:
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # looked up before the fork: it cannot be done after it
    parent = os.getpid()

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return arrange


END_WITH_PARENT = _end_with_parent_on_linux() if sys.platform == "linux" else None
"""A `preexec_fn` that lets a child process end when its parent does; None where the system has no such signal."""
