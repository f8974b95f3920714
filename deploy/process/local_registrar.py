"""The registrar of simulated devices within the plane's process: it uses the folds and the log directly."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping

from drivers.simulators.simulator import DpuRefused
from eventstore.ids import envelope, uuid7
from eventstore.log import ZONES
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from schemas.events import DpuRegistered

REGISTER_TIMEOUT_S = 20.0


class LocalRegistrar:
    """A simulator's DpuRegistrar over a replica that folds zones. `expected` zones are returned before they exist."""

    def __init__(
        self, replica: Replica, *, now_ms: Callable[[], int], rng: random.Random, expected: Collection[str] = ()
    ) -> None:
        self._replica = replica
        self._states = FoldStates(replica)
        self._now_ms = now_ms
        self._rng = rng
        self._last_zones: frozenset[str] = frozenset()
        self._expected = frozenset(expected)
        self._watch = replica.watch(ZONES)

    async def zones(self) -> Collection[str]:
        """The zones, as soon as they differ from those of the previous call. The first call waits for a zone."""
        while (there := self._zones()) == self._last_zones:
            await self._watch.changed()
        self._last_zones = there
        return there

    async def registered(self, zone: str) -> Mapping[str, str]:
        dpus = self._states.zone(zone).dpus.rows
        return {name: dpu.bmc_address for name, dpu in dpus.items() if dpu.zone == zone}

    async def register(self, zone: str, dpu: str, node: str, serial: str, bmc_address: str) -> None:
        """Raises DpuRefused; LogUnavailable or AppendUnknown while the outcome is unknown."""
        said = envelope(dpu, "simulator", uuid7(self._now_ms(), self._rng))
        event = DpuRegistered(said, zone, dpu, node, serial, bmc_address)
        partition = self._replica.partition_for(ZONES, zone)
        answer = await self._replica.submit(partition, zone.encode(), event, timeout_s=REGISTER_TIMEOUT_S)
        if answer.outcome.code == "refused":
            raise DpuRefused(answer.outcome.reason)

    def _zones(self) -> frozenset[str]:
        return self._expected.union(*(state.zones() for state in self._states.all_zones()))
