"""Careful clients of real processes: each sends one command after another, and repeats an unanswered one under its id.

Each attempt and its answer go into the history. A refusal without a position means that the attempt left no record in
the log.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence

import grpc
from msgspec.structs import replace

from eventstore.ids import uuid7
from eventstore.log import CLIQUES, ZONES
from eventstore.replicas.replica import Answer
from schemas.api import dpuplane_pb2 as pb
from schemas.api.enums import outcome_name
from schemas.api.stubs import CommandsStub, QueriesStub
from tests.faults.workload import Asked, Workload
from tests.simulation.history import Answered, AttemptFailed, History, Invoked, QueryAnswered
from tests.support.answers import answer_of, outcome_of, positions_of
from tests.support.certs import CertFiles

TIMEOUT_S = 3.0
PATIENCE_S = 180.0
"""Longer than anything holds and anybody needs to come up again: who is away refuses a hundred tries meanwhile."""
GAVE_UP = "gave up"
REPEATED = 0.05
_CERTAIN = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ALREADY_EXISTS,
)
"""What a server says that has appended nothing."""
READ = 0.1
RECONNECTING = (
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
"""Of a channel to a server that comes back at any moment."""


class Client:
    """One caller, which may call any of several servers."""

    def __init__(
        self,
        name: str,
        servers: Sequence[str],
        history: History,
        *,
        cert_files: CertFiles,
        rng: random.Random,
        workload: Workload,
        pause_s: float,
    ) -> None:
        self.name = name
        self.counts: Counter[str] = Counter()
        self.finished: list[tuple[float, float]] = []
        """When each command was first sent and when its outcome was known."""
        self._history = history
        self._rng = rng
        self._pause_s = pause_s
        self._workload = workload
        self._channels = {
            server: grpc.aio.secure_channel(server, cert_files.channel, options=RECONNECTING) for server in servers
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Send commands until `stop`; the last one is repeated until it is answered."""
        while not stop.is_set():
            await asyncio.sleep(self._rng.expovariate(1 / self._pause_s))
            await self.ask(self._workload.draw())

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close(None)

    async def ask(self, asked: Asked) -> None:
        """Send one command until its outcome is known, or the client gives up."""
        asked.request.command_id = uuid7(time.time_ns() // 1_000_000, self._rng)
        began_s = time.monotonic()
        while time.monotonic() < began_s + PATIENCE_S:
            if await self._is_answered(asked):
                self.finished.append((began_s, time.monotonic()))
                if self._rng.random() >= REPEATED:
                    return
                self.counts["repeated"] += 1
            else:
                await asyncio.sleep(self._rng.uniform(0.05, 0.3))
        self.counts[GAVE_UP] += 1

    async def _is_answered(self, asked: Asked) -> bool:
        """One attempt at one of the servers; whether it was answered."""
        server = self._rng.choice(list(self._channels))
        command_id = asked.request.command_id
        self._history.add(Invoked(time.monotonic(), self.name, command_id, asked.partition))
        call = getattr(CommandsStub(self._channels[server]), asked.method)
        try:
            answer: pb.CommandResult = await call(asked.request, timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            self.counts[error.code().name.lower()] += 1
            if error.code() not in _CERTAIN:
                return False
            self._history.add(AttemptFailed(time.monotonic(), command_id))
            return error.code() is grpc.StatusCode.INVALID_ARGUMENT
        self.counts[outcome_name(answer.outcome)] += 1
        if answer.outcome == pb.OUTCOME_UNKNOWN:
            return False
        if not answer.position:
            undecided = Answer(outcome_of(answer), asked.partition, -1)
            self._history.add(Answered(time.monotonic(), self.name, server, command_id, undecided))
            return True
        if answer.HasField("hold"):  # without the items that the answer of a held leave adds to those of its zone
            shown = QueriesStub(self._channels[server]).GetCommand
            try:
                answer = await shown(pb.GetCommandRequest(command_id=command_id), timeout=TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                self.counts[error.code().name.lower()] += 1
                return False
            if not answer.position:
                return False
        told = _of_its_zone(answer_of(answer))
        self._history.add(Answered(time.monotonic(), self.name, server, command_id, told))
        if self._rng.random() < READ:
            await self._read_back(told, answer.position)
        return True

    async def _read_back(self, told: Answer, token: str) -> None:
        """Query any server at a minimum position of this answer."""
        server, least = self._rng.choice(list(self._channels)), told.offset + 1
        began_s = time.monotonic()
        try:
            seen = await self._query(server, told.partition.topic, token)
        except grpc.aio.AioRpcError:
            return
        position = positions_of(seen)[told.partition]
        self.counts["read back"] += 1
        self._history.add(QueryAnswered(began_s, time.monotonic(), self.name, server, told.partition, least, position))

    async def _query(self, server: str, topic: str, token: str) -> str:
        """The position of a response that is at least as new as a token."""
        queries = QueriesStub(self._channels[server])
        if topic == CLIQUES:
            cliques = pb.ListCliquesRequest(min_position=token, page_size=1)
            return str((await queries.ListCliques(cliques, timeout=TIMEOUT_S)).position)
        nodes = pb.ListNodesRequest(min_position=token, page_size=1)
        return str((await queries.ListNodes(nodes, timeout=TIMEOUT_S)).position)


def _of_its_zone(told: Answer) -> Answer:
    """The zone's decision in an answer that also reports fleet's: only an accepted command can be held."""
    if told.partition.topic != ZONES or "hold" not in told.outcome.result:
        return told
    return told._replace(outcome=replace(told.outcome, code="done", reason="", result={}))
