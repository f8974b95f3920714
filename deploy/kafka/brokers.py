"""A real Kafka cluster on the loopback, from wheels alone: to try the distributed form, and to test it.

What a cluster must keep to be the same one after a restart (its id, its brokers and their ports) is in `cluster.json`
beside the brokers' folders. A folder belongs to one running cluster, and brokers never outlive who started them.
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
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import IO, Self

from deploy.kafka.broker_node import HOST, BrokerProcess, Node, Program
from deploy.kafka.jars import NoKafka, java, kafka_jars
from eventstore.errors import TransientError
from eventstore.kafka.topics import count_brokers

START_S = 60.0
"""A broker that does not answer after this does not start at all."""
STOP_S = 4.0
"""A broker that has not ended after this is killed, which costs it a recovery at the next start, and no record."""
ALONE_S = 0.3
"""The last of several cannot hand over to anybody, and would wait for that in vain."""
PAUSE_S = 0.05
LOOK_S = 0.5
"""Between looks for brokers that ended by themselves."""
PORTS_MAX = 65_535
FREE_PORTS = range(15_000, 30_000)
"""Below those that a system gives to clients: a client that dials a dead broker's port must not get it as its own."""


class Brokers:
    """A cluster of `count` brokers whose data is in `data`. Brokers are named by their ids, 1 to `count`.

    Not bound to an event loop: one may start it, another use it.
    """

    def __init__(self, data: Path, cache: Path, *, count: int = 3, base_port: int | None = None) -> None:
        self.data = data
        self._cache = cache
        self._count = count
        self._base_port = base_port
        self._lock: IO[str] | None = None
        self._brokers: dict[int, BrokerProcess] = {}

    @property
    def bootstrap(self) -> str:
        """`HOST:PORT,...` of all brokers."""
        return ",".join(broker.node.address for broker in self._brokers.values())

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self._brokers)

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
        """Start every broker; returns when all of them answer and know each other. Raises NoKafka."""
        program = Program(java(), await asyncio.to_thread(kafka_jars, self._cache))
        self._lock = _own(self.data)
        cluster_id, nodes = self._load_or_create()
        for port in (port for node in nodes for port in (node.port, node.controller_port)):
            if why := _why_taken(port):
                raise NoKafka(f"port {HOST}:{port} cannot be used: {why}")
        brokers = [BrokerProcess(program, node, self.data / f"broker-{node.id}", nodes) for node in nodes]
        async with asyncio.TaskGroup() as tasks:
            for broker in brokers:
                tasks.create_task(broker.format(cluster_id))
        self._brokers = {broker.node.id: broker for broker in brokers}
        for broker in brokers:
            broker.start()
        await self.ready()

    async def ready(self) -> None:
        """Return when every broker answers and is known to the cluster. Raises NoKafka if one ends, or is late."""
        try:
            async with asyncio.timeout(START_S):
                while not await self._is_whole():
                    for broker in self._brokers.values():
                        broker.raise_if_ended()
                    await asyncio.sleep(PAUSE_S)
        except TimeoutError:
            raise NoKafka(f"brokers in {self.data}: not all answered within {START_S:.0f} s") from None

    async def keep(self, say: Callable[[str], None]) -> None:
        """Start again each broker that ends by itself, for ever; NoKafka when one does so soon after its start."""
        now_s = asyncio.get_running_loop().time
        started_s: dict[int, float] = {}
        while True:
            for number, broker in self._brokers.items():
                if ending := broker.ending():
                    if now_s() - started_s.get(number, -inf) < START_S:
                        raise NoKafka(ending)
                    say(f"{ending}; it starts again")
                    started_s[number] = now_s()
                    broker.start()
            await asyncio.sleep(LOOK_S)

    async def stop(self) -> None:
        """End every broker, in order where possible. Nothing is left running."""
        for broker in self._brokers.values():
            broker.send(signal.SIGCONT)
            broker.send(signal.SIGTERM)
        alone_s = 0.0
        for _ in range(int(STOP_S / PAUSE_S)):
            running = sum(broker.is_running for broker in self._brokers.values())
            alone_s += PAUSE_S if running == 1 < self._count else 0.0
            if not running or alone_s > ALONE_S:
                break
            await asyncio.sleep(PAUSE_S)
        for broker in self._brokers.values():
            broker.kill()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def kill(self, broker: int) -> None:
        """End a broker as `kill -9` would."""
        self._brokers[broker].kill()

    def pause(self, broker: int) -> None:
        """Stop a broker where it stands: its connections stay open, and nobody answers."""
        self._brokers[broker].send(signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        self._brokers[broker].send(signal.SIGCONT)

    async def restart(self, broker: int) -> None:
        """End a broker, in order if it still runs, and start it again. Returns when the cluster is whole."""
        process = self._brokers[broker]
        process.send(signal.SIGTERM)
        for _ in range(int(STOP_S / PAUSE_S)):
            if not process.is_running:
                break
            await asyncio.sleep(PAUSE_S)
        process.kill()
        process.start()
        await self.ready()

    async def heal(self) -> None:
        """Resume what is paused, start what has ended, and return when the cluster is whole."""
        for broker in self._brokers.values():
            broker.send(signal.SIGCONT)
            if not broker.is_running:
                broker.start()
        await self.ready()

    async def _is_whole(self) -> bool:
        for broker in self._brokers.values():
            if not await _answers(broker.node):
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
        ports = ports_for(2 * self._count, self._base_port)
        nodes = [Node(i + 1, ports[i], ports[self._count + i]) for i in range(self._count)]
        written = path.with_suffix(".new")
        written.write_text(json.dumps({"cluster_id": cluster_id, "brokers": [node._asdict() for node in nodes]}))
        written.rename(path)
        return cluster_id, nodes

    def _load(self, path: Path) -> tuple[str, list[Node]]:
        try:
            stored = json.loads(path.read_text())
            nodes = [Node(**node) for node in stored["brokers"]]
            cluster_id = str(stored["cluster_id"])
        except (ValueError, KeyError, TypeError) as error:
            raise NoKafka(f"{path} is not a cluster's description: {error!r}") from error
        if len(nodes) != self._count:
            raise NoKafka(f"brokers: {self.data} holds a cluster of {len(nodes)}, not of {self._count}")
        if self._base_port not in (None, nodes[0].port):
            raise NoKafka(f"port: the cluster in {self.data} begins at {nodes[0].port}, not at {self._base_port}")
        return cluster_id, nodes


def _own(data: Path) -> IO[str]:
    """Take the folder, made if it is missing, for as long as the returned file is open."""
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
    """As Kafka makes them: 16 random bytes in 22 characters, and no dash in front, which would look like a flag."""
    while True:
        text = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def ports_for(count: int, base: int | None) -> Sequence[int]:
    """`count` ports from `base` on, or free ones. Raises NoKafka if there are not so many."""
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


async def _answers(node: Node) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, node.port)
    except OSError:
        return False
    writer.close()
    return True
