"""The registrar of simulated devices for a plane in another process: it uses the gRPC API."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

import grpc

from deploy.tls.certificates import Certificates
from drivers.simulators.simulator import DpuRefused
from eventstore.errors import LogUnavailable, PermanentError
from eventstore.ids import uuid7
from schemas.api import dpuplane_pb2 as pb
from schemas.api.metadata import PRINCIPAL_KEY
from schemas.api.stubs import CommandsStub, QueriesStub

CALL_TIMEOUT_S = 10.0
LOOK_S = 1.0
"""Interval of queries for new zones."""

PAGE = 1_000

_REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED)

logger = logging.getLogger(__name__)


class RemoteRegistrar:
    """A simulator's DpuRegistrar over the first server that responds. `zones` limits it; empty means every zone."""

    def __init__(
        self,
        servers: Collection[str],
        *,
        now_ms: Callable[[], int],
        rng: random.Random,
        zones: frozenset[str] = frozenset(),
        certificates: Certificates | None = None,
    ) -> None:
        self._servers = deque(servers)
        self._certificates = certificates
        self._version = 0
        self._is_answered = True
        self._channel: grpc.aio.Channel | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._now_ms = now_ms
        self._rng = rng
        self._zone_filter = zones
        self._last_zones: frozenset[str] | None = None
        self._position = ""
        """Position of the last list of zones. Later queries wait until the server has folded up to it."""

    async def close(self) -> None:
        for closing in self._closing:
            closing.cancel()
        if self._channel is not None:
            await self._channel.close(grace=None)

    async def zones(self) -> Collection[str]:
        """The first call returns at once, later calls when the zones have changed."""
        while True:
            there = await self._zones()
            if there is not None and there != self._last_zones:
                self._last_zones = there
                return there
            await asyncio.sleep(LOOK_S)

    async def registered(self, zone: str) -> Collection[str]:
        names: list[str] = []
        token = ""
        while True:
            request = pb.ListDpusRequest(zone=zone, page_size=PAGE, page_token=token, min_position=self._position)
            page = await self._call(QueriesStub, "ListDpus", request)
            names.extend(dpu.dpu for dpu in page.dpus)
            token = page.next_page_token
            if not token:
                return names

    async def register(self, zone: str, dpu: str, node: str, serial: str, bmc_address: str) -> None:
        """Raises DpuRefused, LogUnavailable while the outcome is unknown, and PermanentError if the call is not
        permitted.
        """
        request = pb.RegisterDpuRequest(
            command_id=uuid7(self._now_ms(), self._rng),
            zone=zone,
            dpu=dpu,
            node=node,
            serial=serial,
            bmc_address=bmc_address,
        )
        answer = await self._call(CommandsStub, "RegisterDpu", request)
        if answer.outcome == pb.OUTCOME_REFUSED:
            raise DpuRefused(answer.reason)
        if answer.outcome == pb.OUTCOME_UNKNOWN:
            raise LogUnavailable(answer.reason)

    async def _zones(self) -> frozenset[str] | None:
        """The present zones; None if no server responds."""
        found: set[str] = set()
        token = ""
        while True:
            try:
                request = pb.ListZonesRequest(page_size=PAGE, page_token=token)
                page = await self._call(QueriesStub, "ListZones", request)
            except LogUnavailable as error:
                if self._is_answered:
                    logger.warning("zones not listed by %s, retrying: %s", ",".join(self._servers), error)
                self._is_answered = False
                return None
            found.update(zone.zone for zone in page.zones)
            token = page.next_page_token
            if not token:
                if not self._is_answered:
                    logger.info("zones listed by %s again", self._servers[0])
                self._is_answered = True
                self._position = page.position
                return frozenset(found & self._zone_filter if self._zone_filter else found)

    async def _call(self, service: Any, method: str, request: Any) -> Any:
        channel = self._dialed()
        metadata = ((PRINCIPAL_KEY, "simulator"),) if self._certificates is None else ()
        try:
            return await getattr(service(channel), method)(request, timeout=CALL_TIMEOUT_S, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() in _REFUSED:
                raise PermanentError(error.details() or "") from error
            if self._channel is channel:
                self._retire()
                self._servers.rotate(-1)
            raise LogUnavailable(f"the plane did not respond: {error.details()}") from error

    def _dialed(self) -> grpc.aio.Channel:
        """The channel to the server that responded last, created again for each new certificate."""
        if self._certificates is not None and self._version != self._certificates.version:
            self._retire()
        if self._channel is None:
            self._channel = self._dial(self._servers[0])
        return self._channel

    def _dial(self, server: str) -> grpc.aio.Channel:
        if self._certificates is None:
            return grpc.aio.insecure_channel(server)
        self._version = self._certificates.version
        return grpc.aio.secure_channel(server, self._certificates.grpc_channel())

    def _retire(self) -> None:
        """Close the channel after its running calls; new calls use a new channel."""
        if self._channel is not None:
            closing = asyncio.create_task(self._channel.close(CALL_TIMEOUT_S))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            self._channel = None
