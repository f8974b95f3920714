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
from tests.faults.workload import Call, Workload
from tests.simulation.history import Answered, AttemptFailed, History, Invoked, QueryAnswered
from tests.support.answers import answer_of, outcome_of, positions_of
from tests.support.certs import CertFiles

TIMEOUT_S = 3.0
COMMAND_S = 180.0
"""Time limit for one command. It exceeds the longest fault plus the restart of a process, which refuses about a hundred
attempts meanwhile.
"""
GAVE_UP = "gave up"
REPEAT_SHARE = 0.05
_NOT_APPENDED = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ALREADY_EXISTS,
)
"""Status codes of a server that has appended nothing."""
READ_BACK_SHARE = 0.1
RECONNECTING = (
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
"""Options of a channel to a server that may restart at any moment."""


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
        self.answered_s: list[tuple[float, float]] = []
        """For each command, the times at which it was first sent and at which its outcome was known."""
        self._history = history
        self._rng = rng
        self._pause_s = pause_s
        self._workload = workload
        self._channels = {
            server: grpc.aio.secure_channel(server, cert_files.channel, options=RECONNECTING) for server in servers
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Send commands until `stop`, and repeat the last one until it is answered."""
        while not stop.is_set():
            await asyncio.sleep(self._rng.expovariate(1 / self._pause_s))
            await self.send(self._workload.draw())

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close(None)

    async def send(self, call: Call) -> None:
        """Send one command until its outcome is known, or the client gives up."""
        call.request.command_id = uuid7(time.time_ns() // 1_000_000, self._rng)
        began_s = time.monotonic()
        while time.monotonic() < began_s + COMMAND_S:
            if await self._attempt(call):
                self.answered_s.append((began_s, time.monotonic()))
                if self._rng.random() >= REPEAT_SHARE:
                    return
                self.counts["repeated"] += 1
            else:
                await asyncio.sleep(self._rng.uniform(0.05, 0.3))
        self.counts[GAVE_UP] += 1

    async def _attempt(self, call: Call) -> bool:
        """Send one attempt to one of the servers; returns whether it was answered."""
        server = self._rng.choice(list(self._channels))
        command_id = call.request.command_id
        self._history.add(Invoked(time.monotonic(), self.name, command_id, call.partition))
        method = getattr(CommandsStub(self._channels[server]), call.method)
        try:
            answer: pb.CommandResult = await method(call.request, timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            self.counts[error.code().name.lower()] += 1
            if error.code() not in _NOT_APPENDED:
                return False
            self._history.add(AttemptFailed(time.monotonic(), command_id))
            return error.code() is grpc.StatusCode.INVALID_ARGUMENT
        self.counts[outcome_name(answer.outcome)] += 1
        if answer.outcome == pb.OUTCOME_UNKNOWN:
            return False
        if not answer.position:
            undecided = Answer(outcome_of(answer), call.partition, -1)
            self._history.add(Answered(time.monotonic(), self.name, server, command_id, undecided))
            return True
        if answer.HasField("hold"):
            # GetCommand omits the items that the answer to a held leave adds to those of its zone.
            get_command = QueriesStub(self._channels[server]).GetCommand
            try:
                answer = await get_command(pb.GetCommandRequest(command_id=command_id), timeout=TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                self.counts[error.code().name.lower()] += 1
                return False
            if not answer.position:
                return False
        decision = _zone_decision(answer_of(answer))
        self._history.add(Answered(time.monotonic(), self.name, server, command_id, decision))
        if self._rng.random() < READ_BACK_SHARE:
            await self._read_back(decision, answer.position)
        return True

    async def _read_back(self, decision: Answer, token: str) -> None:
        """Query any server, with the position of this answer as the minimum."""
        server, min_offset = self._rng.choice(list(self._channels)), decision.offset + 1
        began_s = time.monotonic()
        try:
            token_read = await self._query(server, decision.partition.topic, token)
        except grpc.aio.AioRpcError:
            return
        position = positions_of(token_read)[decision.partition]
        self.counts["read back"] += 1
        self._history.add(
            QueryAnswered(began_s, time.monotonic(), self.name, server, decision.partition, min_offset, position)
        )

    async def _query(self, server: str, topic: str, token: str) -> str:
        """Query with this token as the minimum position; returns the position of the response."""
        queries = QueriesStub(self._channels[server])
        if topic == CLIQUES:
            cliques = pb.ListCliquesRequest(min_position=token, page_size=1)
            return str((await queries.ListCliques(cliques, timeout=TIMEOUT_S)).position)
        nodes = pb.ListNodesRequest(min_position=token, page_size=1)
        return str((await queries.ListNodes(nodes, timeout=TIMEOUT_S)).position)


def _zone_decision(decision: Answer) -> Answer:
    """The decision of the zone. An answer that reports a hold contains the decision of fleet instead, and fleet holds
    only a command that its zone accepted.
    """
    if decision.partition.topic != ZONES or "hold" not in decision.outcome.result:
        return decision
    return decision._replace(outcome=replace(decision.outcome, code="done", reason="", result={}))
