"""Three real brokers, each on a host with a network of its own and with a second listener behind a proxy."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from deploy.kafka.broker_node import Node, NodeProcess, Program
from deploy.kafka.brokers import new_cluster_id
from deploy.kafka.jars import cache_folder, java, kafka_jars
from eventstore.errors import TransientError
from eventstore.kafka.topics import count_brokers
from tests.faults.network_lab import HUB, LabHost, NetworkLab
from tests.faults.proxy import Proxy, proxied

PORT, CONTROLLER_PORT, PROXIED_PORT = 9092, 9093, 9094
READY_S = 90.0


class Process(NodeProcess):
    """The process of a `dpuplane kafka` broker."""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


class Broker:
    """One broker: its process, its host, and the proxy in front of its second listener."""

    def __init__(self, process: Process, lab_host: LabHost, proxy: Proxy) -> None:
        self.process = process
        self.lab_host = lab_host
        self.proxy = proxy
        self.name = lab_host.name
        self.kills = 0


class Brokers:
    """The cluster."""

    def __init__(self, brokers: Sequence[Broker]) -> None:
        self.all = list(brokers)
        self.bootstrap = ",".join(f"{broker.lab_host.address}:{PORT}" for broker in brokers)
        self.proxied = ",".join(broker.proxy.address for broker in brokers)

    async def ready(self) -> None:
        """Wait until every broker has joined the cluster. Restart brokers that ended by themselves, as a supervisor
        does. The wait is limited to READY_S.
        """
        async with asyncio.timeout(READY_S):
            while not await self._all_joined():
                for broker in self.all:
                    if not broker.process.is_running:
                        broker.process.start()
                await asyncio.sleep(0.1)

    async def _all_joined(self) -> bool:
        if not all(broker.process.is_running for broker in self.all):
            return False
        try:
            return await count_brokers(self.bootstrap, random.Random()) == len(self.all)
        except TransientError:
            return False


@asynccontextmanager
async def cluster(network_lab: NetworkLab, folder: Path, count: int = 3) -> AsyncIterator[Brokers]:
    """Run brokers during the context."""
    jars = await asyncio.to_thread(kafka_jars, cache_folder(os.environ))
    nodes = [Node(number, PORT, CONTROLLER_PORT) for number in range(1, count + 1)]
    hosts = [await network_lab.lab_host(f"broker-{node.id}") for node in nodes]
    async with AsyncExitStack() as stack:
        found = []
        for node, lab_host in zip(nodes, hosts, strict=True):
            port = 19_000 + node.id
            proxy = await stack.enter_async_context(proxied((HUB, port), (lab_host.address, PROXIED_PORT)))
            process = _process(lab_host, node, folder / lab_host.name, dict(zip(nodes, hosts, strict=True)), jars)
            stack.callback(process.kill)
            found.append(Broker(process, lab_host, proxy))
        cluster_id = new_cluster_id()
        async with asyncio.TaskGroup() as tasks:
            for broker in found:
                tasks.create_task(broker.process.format(cluster_id))
        for broker in found:
            broker.process.start()
        brokers = Brokers(found)
        await brokers.ready()
        try:
            yield brokers
        finally:
            for broker in found:
                broker.process.send(signal.SIGCONT)


def _process(lab_host: LabHost, node: Node, folder: Path, members: Mapping[Node, LabHost], jars: Path) -> Process:
    """A broker as `dpuplane kafka` configures it, but on its lab host and at its address."""
    folder.mkdir(parents=True)
    java_wrapper = folder / "java"
    java_wrapper.write_text(f'#!/bin/sh\nexec {" ".join(lab_host.enter(str(java())))} "$@"\n')
    java_wrapper.chmod(0o755)
    process = Process(Program(java_wrapper, jars), node, folder, list(members))
    settings = folder / "server.properties"
    lines = dict(line.split("=", 1) for line in settings.read_text().splitlines())
    address = lab_host.address
    voters = ",".join(f"{each.id}@{where.address}:{CONTROLLER_PORT}" for each, where in members.items())
    lines |= {
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{address}:{PORT},CONTROLLER://{address}:{CONTROLLER_PORT},PROXIED://{address}:{PROXIED_PORT}",
        "advertised.listeners": f"PLAINTEXT://{address}:{PORT},PROXIED://{HUB}:{19_000 + node.id}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    settings.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return process
