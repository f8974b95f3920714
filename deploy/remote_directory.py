"""What simulated devices ask of a plane that runs elsewhere, through its gRPC API."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from typing import Any

import grpc

from eventstore.errors import LogUnavailable, PermanentError
from eventstore.ids import uuid7
from schemas.api import dpuplane_pb2 as pb
from schemas.api.dpuplane_pb2_grpc import CommandsStub, QueriesStub

CALL_TIMEOUT_S = 10.0
LOOK_S = 1.0
"""Between looks at which zones there are."""

PAGE = 1_000

logger = logging.getLogger(__name__)


class RemoteDirectory:
    """A drivers.simulator.Directory over the first server that answers. `zones` limits it; empty for every zone."""

    def __init__(
        self,
        servers: Collection[str],
        *,
        now_ms: Callable[[], int],
        rng: random.Random,
        zones: frozenset[str] = frozenset(),
    ) -> None:
        options = (("grpc.lb_policy_name", "pick_first"),)
        self._servers = ",".join(servers)
        self._is_answered = True
        self._channel = grpc.aio.insecure_channel(f"ipv4:{','.join(servers)}", options=options)
        self._commands: Any = CommandsStub(self._channel)  # type: ignore[no-untyped-call]
        self._queries: Any = QueriesStub(self._channel)  # type: ignore[no-untyped-call]
        self._now_ms = now_ms
        self._rng = rng
        self._wanted = zones
        self._told: frozenset[str] | None = None
        self._position = ""
        """Where the zones were last listed: whoever is asked about one of them must have come as far."""

    async def close(self) -> None:
        await self._channel.close(grace=None)

    async def zones(self) -> Collection[str]:
        """Returns at once the first time, and then when there are others."""
        while True:
            there = await self._zones()
            if there is not None and there != self._told:
                self._told = there
                return there
            await asyncio.sleep(LOOK_S)

    async def registered(self, zone: str) -> Collection[str]:
        names: list[str] = []
        token = ""
        while True:
            request = pb.ListDpusRequest(zone=zone, page_size=PAGE, page_token=token, min_position=self._position)
            page = await self._call(self._queries.ListDpus, request)
            names.extend(dpu.dpu for dpu in page.dpus)
            token = page.next_page_token
            if not token:
                return names

    async def register(self, zone: str, dpu: str, node: str, serial: str, bmc_address: str) -> None:
        """Raises PermanentError if the plane refuses the DPU."""
        request = pb.RegisterDpuRequest(
            command_id=uuid7(self._now_ms(), self._rng),
            zone=zone,
            dpu=dpu,
            node=node,
            serial=serial,
            bmc_address=bmc_address,
        )
        answer = await self._call(self._commands.RegisterDpu, request)
        if answer.outcome == pb.Answer.refused:
            raise PermanentError(f"simulated DPU {dpu}: {answer.reason}")
        if answer.outcome == pb.Answer.unknown:
            raise LogUnavailable(answer.reason)

    async def _zones(self) -> frozenset[str] | None:
        """The zones there are; None if nobody says."""
        found: set[str] = set()
        token = ""
        while True:
            try:
                page = await self._call(self._queries.ListZones, pb.ListZonesRequest(page_size=PAGE, page_token=token))
            except LogUnavailable as error:
                if self._is_answered:
                    logger.warning("no zones from %s, asking again: %s", self._servers, error)
                self._is_answered = False
                return None
            found.update(zone.zone for zone in page.zones)
            token = page.next_page_token
            if not token:
                if not self._is_answered:
                    logger.info("%s answers", self._servers)
                self._is_answered = True
                self._position = page.position
                return frozenset(found & self._wanted if self._wanted else found)

    async def _call(self, method: Any, request: Any) -> Any:
        try:
            return await method(request, timeout=CALL_TIMEOUT_S, metadata=(("x-dpuplane-as", "simulator"),))
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.INVALID_ARGUMENT:
                raise PermanentError(error.details() or "") from error
            raise LogUnavailable(f"the plane does not answer: {error.details()}") from error
