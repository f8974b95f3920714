"""An operator in a simulation who installs images on certain DPUs again and again, and ends what hinders that."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from eventstore.ids import envelope, uuid7
from eventstore.log import ZONES, Partition, partition_of
from projections.zones.dpus.phases import ERROR
from projections.zones.rows import Dpu
from projections.zones.state import ZonesState
from schemas import events as e
from tests.simulation.clients import Client
from tests.simulation.process import Process
from tests.simulation.script import Director
from tests.simulation.workload import IMAGES, Request

NAME = "installer"
"""The author of its actions, from which their draws follow: with another name a seed would be another run."""
PAUSE_S = 3.0


class ImageOperator:
    """The operator. `places` has the zone and the BMC address of each DPU. One request per mean pause."""

    def __init__(
        self,
        client: Client,
        processes: Sequence[Process],
        now_ms: Callable[[], int],
        places: Mapping[str, tuple[str, str]],
    ) -> None:
        self._client = client
        self._processes = processes
        self._now_ms = now_ms
        self._places = places
        self._rng = random.Random(0)

    async def run(self, director: Director, seed: int) -> None:
        """Send requests until cancelled."""
        async for action in director.actions(NAME, self._draw):
            self._rng = action.rng(seed)
            process, dpu = self._rng.choice(self._processes), self._rng.choice([*self._places])
            if process.instance is None or not process.instance.is_up:
                continue
            zone, address = self._places[dpu]
            replica = process.instance.replica
            partition = Partition(ZONES, partition_of(zone.encode(), len(replica.partitions(ZONES))))
            state: ZonesState = replica.state(partition)
            event = self._event(dpu, zone, address, state.dpus.rows.get(dpu))
            action.description = f"{process.name}: {type(event).__name__} {dpu}"
            await self._client.send(Request(partition, zone.encode(), event), process)

    def _draw(self, rng: random.Random) -> tuple[float, str]:
        return rng.expovariate(1 / PAUSE_S), "install"

    def _event(self, dpu: str, zone: str, address: str, row: Dpu | None) -> e.Event:
        sender = envelope(dpu, NAME, uuid7(self._now_ms(), self._rng))
        if row is None:
            return e.DpuRegistered(sender, zone, dpu, "", "", address)
        if row.paused:
            return e.LifecycleRequested(sender, zone, dpu, "resume", "")
        if row.phase == ERROR:
            return e.LifecycleRequested(sender, zone, dpu, "retry", "")
        return e.LifecycleRequested(sender, zone, dpu, "provision", self._rng.choice(IMAGES))
