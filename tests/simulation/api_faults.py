"""Faults of the API server of a source cluster: slow, away, throttled, restored from a backup, wrong lists.

Each fault has its own random generator, as the faults of `nemesis` have. Faults may overlap.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from schemas.kubernetes.api import ApiError
from tests.simulation.nemesis import InjectionBase
from tests.simulation.script import Action
from tests.simulation.source_cluster import SourceCluster
from tests.support.kubernetes.simulated.faults import WRITES
from tests.support.kubernetes.simulated.store import Saved

if TYPE_CHECKING:
    from tests.simulation.world import World

API_NEMESIS = "api-nemesis"
"""The author of these faults."""
AWAY = "API server away"
API_FAULT_WEIGHTS: Mapping[str, int] = {
    "slow": 3,
    "away": 3,
    "stall_watches": 3,
    "cut_watches": 3,
    "expire_watches": 2,
    "throttle": 3,
    "fail": 3,
    "time_out_after_commit": 4,
    "refuse_as_conflict": 3,
    "hide_nodes": 2,
    "repeat_events": 2,
    "back_up": 3,
    "restore": 2,
}
"""The relative frequency of each kind of fault. A kind names the method of `ApiInjection` that injects the fault."""


class ApiNemesis:
    """Injects faults of the API server until it is cancelled."""

    def __init__(self, world: World, cluster: SourceCluster, every_s: float) -> None:
        self._world = world
        self._cluster = cluster
        self._every_s = every_s
        self._backups: list[Saved] = [cluster.api.save()]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            async for action in self._world.director.actions(API_NEMESIS, self._draw):
                tasks.create_task(ApiInjection(self._world, action, self._cluster, self._backups).inject())

    def _draw(self, rng: random.Random) -> tuple[float, str]:
        kinds, weights = list(API_FAULT_WEIGHTS), list(API_FAULT_WEIGHTS.values())
        return rng.expovariate(1 / self._every_s), rng.choices(kinds, weights)[0]


class ApiInjection(InjectionBase):
    """The injection of one fault into the API server."""

    _is_outside = True

    def __init__(self, world: World, action: Action, cluster: SourceCluster, backups: list[Saved]) -> None:
        super().__init__(world, action)
        self._cluster = cluster
        self._api = cluster.api
        self._backups = backups

    async def _slow(self) -> None:
        latency_s = self._rng.choice((0.5, 3.0, 12.0, 40.0))
        with self._injecting("slow API server", latency_s):
            self._api.faults.latency_s = latency_s
            await asyncio.sleep(self._rng.uniform(5.0, 40.0))
            self._api.faults.latency_s = 0.0

    async def _away(self) -> None:
        seconds = self._rng.choice((2.0, 15.0, 60.0))
        with self._injecting(AWAY, seconds):
            self._api.go_down()
            await asyncio.sleep(seconds)
            self._api.faults.is_down = False

    # --- watches

    async def _stall_watches(self) -> None:
        with self._injecting("stalled watches", self._api.watch_count):
            self._api.stall_watches()

    async def _cut_watches(self) -> None:
        with self._injecting("cut watches", self._api.watch_count):
            self._api.end_watches(ApiError(0, "Unreachable", "the connection broke"))

    async def _expire_watches(self) -> None:
        with self._injecting("expired watches", self._api.watch_count):
            self._api.expire_watches()

    async def _repeat_events(self) -> None:
        with self._injecting("repeated events"):
            self._api.faults.disorder = self._rng
            await asyncio.sleep(self._rng.uniform(5.0, 40.0))
            self._api.faults.disorder = None

    # --- answers

    async def _throttle(self) -> None:
        retry_after_s = self._rng.choice((1.0, 5.0, 20.0))
        with self._injecting("throttled requests", retry_after_s):
            self._api.faults.refuse(429, times=self._rng.randint(3, 30), retry_after_s=retry_after_s)

    async def _fail(self) -> None:
        status = self._rng.choice((500, 503))
        with self._injecting("failed requests", status):
            self._api.faults.refuse(status, times=self._rng.randint(1, 10))

    async def _time_out_after_commit(self) -> None:
        with self._injecting("lost commits"):
            self._api.faults.refuse(504, *sorted(WRITES), times=self._rng.randint(1, 6), is_committed=True)

    async def _refuse_as_conflict(self) -> None:
        with self._injecting("conflicts"):
            self._api.faults.refuse(409, *sorted(WRITES), times=self._rng.randint(3, 25))

    # --- lists and backups

    async def _hide_nodes(self) -> None:
        """Leave some Nodes out of every list, or all."""
        names = self._cluster.node_names
        hidden = names if self._rng.random() < 0.4 else self._rng.sample(names, self._rng.randint(1, len(names)))
        with self._injecting("hidden Nodes", len(hidden)):
            self._cluster.hide(frozenset(hidden))
            await asyncio.sleep(self._rng.uniform(5.0, 30.0))
            self._cluster.show_all()

    async def _back_up(self) -> None:
        self._note("backup of the API server", self._api.version)
        self._backups.append(self._api.save())

    async def _restore(self) -> None:
        saved = self._rng.choice(self._backups[-3:])
        self._backups[:] = [backup for backup in self._backups if backup.version <= saved.version]
        with self._injecting("restored API server", self._api.version, saved.version):
            lost = self._cluster.restore(saved, ends_watches=self._rng.random() < 0.7)
            await asyncio.sleep(self._rng.uniform(5.0, 60.0))
            await self._cluster.create_again([name for name in lost if self._rng.random() < 0.8])
