"""The registrar of simulated devices for a plane in another process: it uses the gRPC API."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

import grpc

from commands.client.channels import CertificateSource
from commands.client.client import PlaneClient
from commands.client.errors import CallFailed
from drivers.simulators.simulator import DpuRefused
from eventstore.errors import LogUnavailable, PermanentError
from schemas.api import dpuplane_pb2 as pb

CALL_TIMEOUT_S = 10.0
CHECK_S = 1.0
"""Interval of queries for new zones."""

_REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED)

logger = logging.getLogger(__name__)


class RemoteRegistrar:
    """A simulator's DpuRegistrar over the first server that responds. It returns only zones in `zones`; empty means
    every zone."""

    def __init__(
        self,
        servers: Collection[str],
        *,
        now_ms: Callable[[], int],
        rng: random.Random,
        zones: frozenset[str] = frozenset(),
        certificates: CertificateSource | None = None,
    ) -> None:
        self._client = PlaneClient(
            servers,
            timeout_s=CALL_TIMEOUT_S,
            now_ms=now_ms,
            rng=rng,
            principal="simulator",
            certificates=certificates,
        )
        self.close = self._client.close
        self._zone_filter = zones
        self._last_zones: frozenset[str] | None = None
        self._is_answered = True
        self._position = ""
        """The log position of the last list of zones. Queries for the DPUs of a zone are answered after the server has
        folded the log up to this position."""

    async def zones(self) -> Collection[str]:
        """The zones, as soon as they differ from those of the previous call. The first call waits for a server that
        responds."""
        while True:
            there = await self._zones()
            if there is not None and there != self._last_zones:
                if self._last_zones is None and (unknown := self._zone_filter - there):
                    names = ",".join(sorted(unknown))
                    logger.warning("zones not known to the plane yet, simulated once they exist: %s", names)
                self._last_zones = there
                return there
            await asyncio.sleep(CHECK_S)

    async def registered(self, zone: str) -> Mapping[str, str]:
        request = pb.ListDpusRequest(zone=zone, min_position=self._position)
        with _plane_errors():
            pages = self._client.pages("ListDpus", request)
            return {dpu.dpu: dpu.bmc_address async for page in pages for dpu in page.dpus}

    async def register(self, zone: str, dpu: str, node: str, serial: str, bmc_address: str) -> None:
        """Raises DpuRefused, LogUnavailable while the outcome is unknown, and PermanentError if the call is not
        permitted.
        """
        request = pb.RegisterDpuRequest(zone=zone, dpu=dpu, node=node, serial=serial, bmc_address=bmc_address)
        with _plane_errors():
            answer = await self._client.command("RegisterDpu", request)
        if answer.outcome == pb.OUTCOME_REFUSED:
            raise DpuRefused(answer.reason)
        if answer.outcome == pb.OUTCOME_UNKNOWN:
            raise LogUnavailable(answer.reason)

    async def _zones(self) -> frozenset[str] | None:
        """The present zones; None if no server responds."""
        found: set[str] = set()
        try:
            with _plane_errors():
                async for page in self._client.pages("ListZones", pb.ListZonesRequest()):
                    found.update(zone.zone for zone in page.zones)
        except LogUnavailable as error:
            if self._is_answered:
                logger.warning("zones not listed by %s, retrying: %s", ",".join(self._client.servers), error)
            self._is_answered = False
            return None
        if not self._is_answered:
            logger.info("zones listed again by %s", self._client.servers[0])
        self._is_answered, self._position = True, page.position
        return frozenset(found & self._zone_filter if self._zone_filter else found)


@contextmanager
def _plane_errors() -> Iterator[None]:
    """Raises PermanentError for a call that is refused for good, LogUnavailable for any other failed call."""
    try:
        yield
    except CallFailed as error:
        if error.code in _REFUSED:
            raise PermanentError(error.details) from error
        raise LogUnavailable(f"the plane did not respond: {error.details}") from error
