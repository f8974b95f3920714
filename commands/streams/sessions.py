"""Sessions of daemons: the open stream of an agent is the session of its daemon. The session expires if no message
arrives for the duration of a lease.

Heartbeats are not appended to the log. This server remembers when it last heard from an agent. It appends an event when
a session opens. It appends another when the agent has been silent for the duration of the lease, because its stream has
ended or the agent sent nothing. Within the lease an agent may open a newer session at any server, and the folds then
ignore that the older one expired.

If a server's beacon is missing, the other servers expire its sessions, after the duration of a lease. A server that
starts again under its old name does the same for the sessions of its former process.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from random import Random
from typing import NamedTuple, TypeAlias

from commands.rpc.middleware import Call, UndecodableRequest
from commands.streams.lasting import LastingStreams, StreamEnded
from eventstore.errors import FatalError, LogUnavailable, PermanentError, PlaneError
from eventstore.ids import internal_envelope
from eventstore.log import CLIQUES, Partition
from eventstore.position import partition_token
from eventstore.reasons import Fault, Reason
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import API
from projections.cliques.files import slot_addresses
from projections.cliques.state import CliqueMember, CliquesState
from schemas.api import dpuplane_pb2 as pb
from schemas.api.times import to_duration
from schemas.events import SessionExpired

logger = logging.getLogger(__name__)

LEASE_S = 15.0
CHECK_S = 1.0
SLICE = 500
TURN_S = 0.3
APPEND_TIMEOUT_S = 5.0


OpenSessionHandler: TypeAlias = Callable[[pb.OpenSessionRequest, Call], Awaitable[pb.CommandResult]]
"""Handles Commands.OpenSession."""


class OpenSession(NamedTuple):
    """A session as the folds have it."""

    partition: Partition
    key: str
    session: str
    edge: str


class SessionKeeper:
    """Serves the sessions of this server's streams, and expires silent ones while `run` runs."""

    def __init__(
        self,
        open_session: OpenSessionHandler,
        streams: LastingStreams,
        replica: Replica,
        ranks: Callable[[], Ranks],
        *,
        now_ms: Callable[[], int],
        rng: Random,
    ) -> None:
        self.open = self.expired = 0
        self._open_session = open_session
        self._streams = streams
        self._replica = replica
        self._ranks = ranks
        self._now_ms = now_ms
        self._rng = rng
        self._heard_s: dict[str, float] = {}
        """The loop's time of the last message, by session of this process."""
        self._silent_s: dict[OpenSession, float] = {}
        """The sessions that this server may expire, each with the loop's time of its agent's last message. If the agent
        sent no message to this server, it is the time of the check that first found the session."""

    async def keep(
        self, requests: AsyncIterator[pb.KeepSessionRequest | UndecodableRequest], call: Call
    ) -> AsyncGenerator[pb.KeepSessionResponse, None]:
        """Serve a session until its stream ends or its agent has been silent for the duration of the lease. Raises
        PermanentError for a session that the folds refuse."""
        first = await self._next(requests)
        if first is None:
            return
        await self._state_opened(first, call)
        self.open += 1
        try:
            while True:
                self._heard_s[first.session] = asyncio.get_running_loop().time()
                yield self._answer(first)
                if await self._next(requests) is None:
                    return
        finally:
            self.open -= 1

    async def run(self) -> None:
        """Expire silent sessions until cancelled."""
        await self._replica.ready()
        while True:
            await asyncio.sleep(CHECK_S * self._rng.uniform(0.8, 1.2))
            for session in await self._overdue():
                await self._expire(session)

    async def _next(
        self, requests: AsyncIterator[pb.KeepSessionRequest | UndecodableRequest]
    ) -> pb.KeepSessionRequest | None:
        """The next message; None at the end of the stream, or after the duration of the lease without a message."""
        until_s = asyncio.get_running_loop().time() + LEASE_S
        try:
            message = await self._streams.wait(lambda: anext(requests), until_s)
        except (StopAsyncIteration, StreamEnded):
            return None
        if isinstance(message, UndecodableRequest):
            raise PermanentError(message.fault)
        return message

    def _answer(self, first: pb.KeepSessionRequest) -> pb.KeepSessionResponse:
        partition = self._replica.partition_for(CLIQUES, first.domain)
        addresses = slot_addresses(self._replica.state(partition), first.domain, first.clique)
        return pb.KeepSessionResponse(
            lease=to_duration(round(LEASE_S * 1_000)),
            position=partition_token(self._replica.log_id, partition, self._replica.position(partition)),
            revision=hashlib.sha256(",".join(addresses).encode()).hexdigest()[:16],
        )

    async def _state_opened(self, first: pb.KeepSessionRequest, call: Call) -> None:
        request = pb.OpenSessionRequest(
            domain=first.domain, clique=first.clique, node=first.node, uid=first.uid, session=first.session
        )
        result = await self._open_session(request, call)
        if result.outcome == pb.OUTCOME_REFUSED:
            reason = Reason[result.reason_code] if result.reason_code in Reason.__members__ else Reason.INVALID_FIELD
            raise PermanentError(Fault(result.reason, reason, **result.reason_fields))
        if result.outcome == pb.OUTCOME_UNKNOWN:
            raise LogUnavailable(f"session: {result.reason}")

    async def _overdue(self) -> list[OpenSession]:
        """The sessions whose agents have been silent for the duration of the lease."""
        now_s, ranks = asyncio.get_running_loop().time(), self._ranks()
        silent: dict[OpenSession, float] = {}
        for partition in self._replica.partitions(CLIQUES):
            for number, session in enumerate(self._alive(partition)):
                if number and number % SLICE == 0:
                    await asyncio.sleep(0)
                if session.edge == self._replica.name or not ranks.is_alive(session.edge):
                    since_s = self._silent_s.get(session, now_s)
                    silent[session] = self._heard_s.get(session.session, since_s)
        self._silent_s = silent
        self._heard_s = {name: heard_s for name, heard_s in self._heard_s.items() if now_s - heard_s < 2 * LEASE_S}
        return [session for session in silent if self._is_overdue(session)]

    def _is_overdue(self, session: OpenSession) -> bool:
        heard_s = self._heard_s.get(session.session, self._silent_s[session])
        return asyncio.get_running_loop().time() - heard_s >= LEASE_S

    def _alive(self, partition: Partition) -> Iterator[OpenSession]:
        state: CliquesState = self._replica.state(partition)
        rows: list[tuple[str, CliqueMember]] = list(state.members.rows.items())
        for key, member in rows:
            if member.session_alive:
                yield OpenSession(partition, key, member.session, member.edge)

    def _is_open(self, session: OpenSession) -> bool:
        state: CliquesState = self._replica.state(session.partition)
        member = state.members.rows.get(session.key)
        return member is not None and member.session_alive and member.session == session.session

    async def _expire(self, session: OpenSession) -> None:
        """Append SessionExpired if the session is still open and its agent still silent. Each replica first waits
        according to its rank, so that usually only the first one appends."""
        rank = self._ranks().rank(session.key, API)
        if rank:
            await asyncio.sleep(rank * TURN_S)
        if not self._is_overdue(session) or not self._is_open(session):
            return
        domain, clique, node = session.key.split("/", 2)
        subject, actor = f"{domain}/{clique}", f"sessions/{self._replica.name}"
        event = SessionExpired(internal_envelope(subject, actor, self._now_ms()), domain, clique, node, session.session)
        try:
            await self._replica.append_event(session.partition, domain.encode(), event, timeout_s=APPEND_TIMEOUT_S)
        except FatalError:
            raise
        except PlaneError as error:
            logger.warning("session expiry not appended, retrying: %s", error, extra={"member": session.key})
            return
        self.expired += 1
        logger.info("session expired", extra={"member": session.key, "session": session.session})
        await self._replica.fold_waits.wait_for(
            lambda: not self._is_open(session), session.partition, timeout_s=APPEND_TIMEOUT_S
        )
