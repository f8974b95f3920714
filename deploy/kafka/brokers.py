"""A real Kafka cluster on the loopback, to try the plane with Kafka, and to test it.

Java is installed from a wheel, and Kafka from Maven Central (jars.py).

The identity of a cluster (its id, its nodes and their ports) is stored in `cluster.json` beside the nodes' folders, for
restarts. A folder belongs to one running cluster, and nodes never outlive the process that started them.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import random
import signal
import socket
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from math import inf
from pathlib import Path
from typing import IO, Self

from deploy.kafka.broker_node import HOST, Node, NodeProcess, Program
from deploy.kafka.jars import NoKafka, java, kafka_jars
from eventstore.errors import TransientError
from eventstore.kafka.topics import count_brokers

START_S = 60.0
"""A node that does not respond after this time has failed to start."""
STOP_S = 4.0
"""A node that has not ended after this time is killed. Its next start then runs a recovery; no record is lost."""
ALONE_S = 0.3
"""Time limit for the shutdown of the last of several nodes that stop: without a quorum of controllers, its controlled
shutdown never finishes."""
PAUSE_S = 0.05
CHECK_S = 0.5
"""Interval of checks for nodes that ended by themselves."""
PORTS_MAX = 65_535
FREE_PORTS = range(15_000, 30_000)
"""Ports of new nodes, below the range of ephemeral ports: the system must not assign the port of a dead broker to a
client that dials it.
"""


class Brokers:
    """A cluster of `count` brokers with data in `data`, and `controllers` separate controllers; without them, each
    broker is a controller too. Nodes have ids: brokers from 1 on, then controllers.

    The object is not bound to an event loop: one loop may start it and another use it.
    """

    def __init__(
        self, data: Path, cache: Path, *, count: int = 3, controllers: int = 0, base_port: int | None = None
    ) -> None:
        self.data = data
        self._cache = cache
        self._count = count
        self._controllers = controllers
        self._base_port = base_port
        self._lock: IO[str] | None = None
        self._nodes: dict[int, NodeProcess] = {}

    @property
    def bootstrap(self) -> str:
        """`HOST:PORT,...` of all brokers."""
        return ",".join(self._nodes[broker].node.address for broker in self.ids)

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the brokers."""
        return tuple(self._nodes)[: self._count]

    @property
    def controller_ids(self) -> tuple[int, ...]:
        """The ids of the separate controllers."""
        return tuple(self._nodes)[self._count :]

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start every node; returns when all nodes respond and know each other. Raises NoKafka."""
        program = Program(java(), await asyncio.to_thread(kafka_jars, self._cache))
        self._lock = _own(self.data)
        cluster_id, nodes = self._load_or_create()
        for port in (port for node in nodes for port in (node.port, node.controller_port) if port):
            if why := _why_taken(port):
                raise NoKafka(f"port {HOST}:{port} cannot be used: {why}")
        processes = [NodeProcess(program, node, self.data / node.name.replace(" ", "-"), nodes) for node in nodes]
        async with asyncio.TaskGroup() as tasks:
            for process in processes:
                tasks.create_task(process.format(cluster_id))
        self._nodes = {process.node.id: process for process in processes}
        for process in processes:
            process.start()
        await self.ready()

    async def ready(self) -> None:
        """Wait until all nodes respond and the cluster knows all brokers. Raises NoKafka if a node ends or the time is
        over.
        """
        try:
            async with asyncio.timeout(START_S):
                while not await self._is_whole():
                    for process in self._nodes.values():
                        process.raise_if_ended()
                    await asyncio.sleep(PAUSE_S)
        except TimeoutError:
            raise NoKafka(f"nodes in {self.data}: not all responded within {START_S:.0f} s") from None

    async def keep(self, say: Callable[[str], None]) -> None:
        """Restart each node that ends by itself, until cancelled; raises NoKafka if a node ends soon after its
        start.
        """
        now_s = asyncio.get_running_loop().time
        started_s: dict[int, float] = {}
        while True:
            for number, process in self._nodes.items():
                if ending := process.ending():
                    if now_s() - started_s.get(number, -inf) < START_S:
                        raise NoKafka(ending)
                    say(f"{ending}; restarting it")
                    started_s[number] = now_s()
                    process.start()
            await asyncio.sleep(CHECK_S)

    async def stop(self) -> None:
        """Stop every node: brokers first, by a controlled shutdown if possible. No process is left."""
        for process in self._nodes.values():
            process.send(signal.SIGCONT)
        try:
            if self.controller_ids:
                await self._end(self.ids, STOP_S)
            await self._end(self.controller_ids or self.ids, ALONE_S)
        finally:
            for process in self._nodes.values():
                process.kill()
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    async def _end(self, ids: Sequence[int], alone_s: float) -> None:
        """Stop these nodes in order. A node that takes too long is killed. If several nodes stop, the last one is
        killed when it has run alone for `alone_s`.
        """
        ending = [self._nodes[number] for number in ids]
        for process in ending:
            process.send(signal.SIGTERM)
        for _ in range(int(STOP_S / PAUSE_S)):
            running = sum(process.is_running for process in ending)
            alone_s -= PAUSE_S if running == 1 < len(ending) else 0.0
            if not running or alone_s < 0:
                break
            await asyncio.sleep(PAUSE_S)
        for process in ending:
            process.kill()

    async def _is_whole(self) -> bool:
        for process in self._nodes.values():
            if not await _answers(process.node.port or process.node.controller_port):
                return False
        try:
            return await count_brokers(self.bootstrap, random.Random()) == self._count
        except TransientError:
            return False

    def _load_or_create(self) -> tuple[str, list[Node]]:
        path = self.data / "cluster.json"
        if path.exists():
            return self._load(path)
        cluster_id = new_cluster_id()
        brokers, controllers = self._new_nodes()
        stored = {"cluster_id": cluster_id, "brokers": _stored(brokers), "controllers": _stored(controllers)}
        written = path.with_suffix(".new")
        written.write_text(json.dumps(stored))
        written.rename(path)
        return cluster_id, brokers + controllers

    def _new_nodes(self) -> tuple[list[Node], list[Node]]:
        """New brokers and separate controllers: the ports of brokers come first, then those of controllers."""
        voters = self._controllers or self._count
        ports = ports_for(self._count + voters, self._base_port)
        controller_ports = ports[self._count :]
        own_ports = [0] * self._count if self._controllers else controller_ports
        brokers = [Node(i + 1, ports[i], own_ports[i]) for i in range(self._count)]
        controllers = [Node(self._count + i + 1, 0, controller_ports[i]) for i in range(self._controllers)]
        return brokers, controllers

    def _load(self, path: Path) -> tuple[str, list[Node]]:
        try:
            stored = json.loads(path.read_text())
            brokers = [Node(**node) for node in stored["brokers"]]
            controllers = [Node(**node) for node in stored.get("controllers", ())]
            cluster_id = str(stored["cluster_id"])
        except (ValueError, KeyError, TypeError) as error:
            raise NoKafka(f"{path} is not a cluster description ({type(error).__name__})") from error
        if len(brokers) != self._count:
            raise NoKafka(f"brokers: {self.data} holds a cluster of {len(brokers)}, not of {self._count}")
        if len(controllers) != self._controllers:
            raise NoKafka(f"controllers: {self.data} holds a cluster with {len(controllers)}, not {self._controllers}")
        if self._base_port not in (None, brokers[0].port):
            raise NoKafka(f"port: the cluster in {self.data} begins at {brokers[0].port}, not at {self._base_port}")
        return cluster_id, brokers + controllers


def _stored(nodes: Iterable[Node]) -> list[dict[str, int]]:
    return [node._asdict() for node in nodes]


def _own(data: Path) -> IO[str]:
    """Create the folder if it is missing, and lock it. The lock lasts until the returned file is closed."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        lock = (data / "lock").open("w")
    except OSError as error:
        raise NoKafka(f"data {data}: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise NoKafka(f"data {data} is in use by other brokers") from None
    return lock


def new_cluster_id() -> str:
    """A cluster id in Kafka's form: 16 random bytes in 22 characters, without a leading dash, which would look like a
    flag.
    """
    while True:
        text = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def ports_for(count: int, base: int | None) -> Sequence[int]:
    """`count` ports from `base` on, or free ports without a base. Raises NoKafka if there are not enough."""
    if base is not None:
        if not 1 <= base <= PORTS_MAX - count + 1:
            raise NoKafka(f"port {base}: {count} ports from it on must lie between 1 and {PORTS_MAX}")
        return range(base, base + count)
    free = [port for port in random.sample(FREE_PORTS, 10 * count) if _why_taken(port) is None]
    if len(free) < count:
        raise NoKafka(f"port: no {count} free ones were found from {FREE_PORTS.start} to {FREE_PORTS.stop - 1}")
    return free[:count]


def _why_taken(port: int) -> str | None:
    try:
        socket.create_server((HOST, port)).close()
    except OSError as error:
        return str(error.strerror)
    return None


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True
