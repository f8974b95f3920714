"""A plane behind its API, in this process: an embedded log, every fold, a forwarder and a server on a free port."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from commands.queries.status import LogLocation, StatusReporter
from commands.rpc.limits import DEFAULTS, Limits
from commands.server import ApiServer
from deploy.composition.roles import folds_of
from deploy.composition.topics import TOPICS
from drivers.forwarder import Forwarder
from drivers.stall_detector import StallDetector
from eventstore.avro.codec import decode
from eventstore.embedded.log import EmbeddedLog
from eventstore.errors import AppendUnknown
from eventstore.ids import uuid7
from eventstore.log import Headers, Partition
from eventstore.recovery.attestation import records_before
from eventstore.replicas.beacons import SingleReplica
from eventstore.replicas.replica import Replica
from eventstore.state_store.store import DigestStore
from projections.rules.rule import Held, Holdings
from schemas.api import dpuplane_pb2 as pb
from schemas.api.stubs import CommandsStub, QueriesStub

PARTITIONS = 3
SHORT = Limits(deadline_s_max=3.0)
"""Limits under which a call that waits ends long before its caller gives up. With a short deadline of the caller, a
tenth of it would be left for the answer, which is too little on a busy machine."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Stalling:
    """A log whose appends get no response while `stalled`, as when the brokers are down. Other calls pass through."""

    def __init__(self, log: EmbeddedLog) -> None:
        self.stalled = False
        self.waiting = asyncio.Event()
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(
        self, partition: Partition, key: bytes, value: bytes, *, timeout_s: float = 5.0, headers: Headers = ()
    ) -> None:
        if self.stalled:
            self.waiting.set()
            await asyncio.sleep(timeout_s)
            raise AppendUnknown(f"append to {partition}: no response within {timeout_s:g} s")
        await self._log.append(partition, key, value, timeout_s=timeout_s, headers=headers)


class Served:
    """The plane and a channel to it. `calls` and `queries` are the generated stubs."""

    def __init__(self, log: Stalling, replica: Replica, server: ApiServer, address: str) -> None:
        self.log = log
        self.replica = replica
        self.server = server
        self.address = address
        self.channel = grpc.aio.insecure_channel(address)
        self.calls: Any = CommandsStub(self.channel)
        self.queries: Any = QueriesStub(self.channel)
        self.held: dict[str, dict[str, Held]] = {}
        self._rng = random.Random(7)

    def command_id(self, late_ms: int = 0) -> str:
        """An id issued `late_ms` ago."""
        return uuid7(now_ms() - late_ms, self._rng)

    async def stated(self) -> dict[str, int]:
        """The number of records from callers in every deciding partition. Records of the forwarder are left out because
        their time is not fixed.
        """
        partitions = [p for topic in ("zones", "cliques", "fleet") for p in self.replica.partitions(topic)]
        return {str(partition): await self._stated(partition) for partition in partitions}

    async def _stated(self, partition: Partition) -> int:
        count = 0
        async with aclosing(records_before(self.log, partition, await self.log.end(partition))) as records:
            async for record in records:
                count += not decode(record.value).envelope.actor.startswith("forwarder/")
        return count

    async def join(self, zone: str, *nodes: pb.NodeSpec, command_id: str = "") -> pb.CommandResult:
        answer: pb.CommandResult = await self.calls.JoinNodes(
            pb.JoinNodesRequest(zone=zone, nodes=nodes, command_id=command_id)
        )
        return answer

    async def devices(self, zones: frozenset[str]) -> Holdings:
        return {zone: held for zone, held in self.held.items() if not zones or zone in zones}


@asynccontextmanager
async def served(
    path: Path, *, limits: Limits = DEFAULTS, forwards: bool = True, **options: Any
) -> AsyncIterator[Served]:
    """A ready plane. With `forwards` off, fleet receives no record of zones. `options` are the CommandServer's."""
    rng = random.Random(5)
    async with (
        EmbeddedLog.open(TOPICS, path, partition_count=PARTITIONS, now_ms=now_ms) as embedded,
        asyncio.TaskGroup() as tasks,
    ):
        log: Any = Stalling(embedded)
        folds = folds_of(PARTITIONS)
        replica = Replica(log, folds, store=DigestStore(), name="replica-1", now_ms=now_ms, rng=rng)
        running = [tasks.create_task(replica.run())]
        if forwards:
            forwarder = Forwarder(replica, SingleReplica("replica-1"), now_ms=now_ms, rng=rng)
            running.append(tasks.create_task(forwarder.run()))
        await replica.ready()
        stall_detector = StallDetector(replica, now_ms=now_ms)
        running.append(tasks.create_task(stall_detector.run()))
        board = StatusReporter(
            replica,
            location=LogLocation("embedded", data=str(path)),
            roles=["api"],
            addresses={"api": "127.0.0.1:1"},
            version="1.2.3",
            alive=lambda: [],
            stalled=lambda: stall_detector.reasons,
        )
        plane: Served

        async def devices(zones: frozenset[str]) -> Holdings:
            return await plane.devices(zones)

        server = ApiServer(
            replica,
            status=board,
            devices=devices,
            listen="127.0.0.1:0",
            now_ms=now_ms,
            rng=rng,
            limits=limits,
            **options,
        )
        plane = Served(log, replica, server, await server.start())
        try:
            yield plane
        finally:
            await plane.channel.close(None)
            await server.stop(0.1)
            for task in running:
                task.cancel()


@asynccontextmanager
async def second_server(plane: Served) -> AsyncIterator[str]:
    """Another replica of the plane's log with a server of its own: its address."""
    log: Any = plane.log
    folds = folds_of(PARTITIONS)
    rng = random.Random(9)
    replica = Replica(log, folds, store=DigestStore(), name="replica-2", now_ms=now_ms, rng=rng)
    running = asyncio.create_task(replica.run())
    await replica.ready()
    status = StatusReporter(
        replica,
        location=LogLocation("kafka", bootstrap=("127.0.0.1:1",), topic_prefix="elsewhere"),
        roles=["api"],
        addresses={},
        version="1.2.3",
        alive=lambda: [],
        stalled=dict,
    )
    server = ApiServer(replica, status=status, devices=plane.devices, listen="127.0.0.1:0", now_ms=now_ms, rng=rng)
    yield await server.start()
    await server.stop(2.0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
