"""An operator in a simulation who states stages for changes of networks, and pauses, resumes and rolls these back."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from eventstore.ids import envelope, uuid7
from eventstore.log import RESOURCES, Partition, partition_of
from projections.resources import kinds
from projections.resources.network_stages.annotations import BAKE_TIME, FAILURE_BUDGET, STAGES
from projections.resources.state import LOCAL, ResourcesState
from projections.staging.decide import PAUSE, RESUME, UNDO
from schemas import events as e
from tests.simulation.clients import Client
from tests.simulation.plan import PARTITIONS
from tests.simulation.process import Process
from tests.simulation.resource_editor import NAMESPACE
from tests.simulation.script import Director
from tests.simulation.workload import Request

NAME = "network-stager"
CONFIG = "config"
PLANS = ("1", "1,50%", "2,50%")
BAKES = ("2s", "10s")
BUDGETS = ("0", "1", "100%")


class NetworkStager:
    """The operator. `client` sends the requests, one per mean pause."""

    def __init__(self, client: Client, processes: Sequence[Process], now_ms: Callable[[], int], pause_s: float) -> None:
        self._client = client
        self._processes = processes
        self._now_ms = now_ms
        self._pause_s = pause_s
        self._rng = random.Random(0)
        self._partition = Partition(RESOURCES, partition_of(LOCAL.encode(), PARTITIONS))

    async def run(self, director: Director, seed: int) -> None:
        """Send requests until cancelled."""
        async for action in director.actions(NAME, self._draw):
            self._rng = action.rng(seed)
            process = self._rng.choice(self._processes)
            if process.instance is None or not process.instance.is_up:
                continue
            event = self._event(process.instance.replica.state(self._partition))
            action.description = f"{process.name}: {type(event).__name__}"
            await self._client.send(Request(self._partition, LOCAL.encode(), event), process)

    def _draw(self, rng: random.Random) -> tuple[float, str]:
        return rng.expovariate(1 / self._pause_s), "stage networks"

    def _event(self, state: ResourcesState) -> e.Event:
        rng, row = self._rng, state.staged_networks.rows.get(LOCAL)
        if row is None or not row.is_open or rng.random() < 0.1:
            return self._stated(is_staged=row is None or rng.random() < 0.8)
        verbs = (RESUME,) if row.held or row.paused_by else (PAUSE, RESUME)
        return e.StagesRequested(self._envelope(), LOCAL, UNDO if rng.random() < 0.4 else rng.choice(verbs))

    def _stated(self, *, is_staged: bool) -> e.ResourcesApplied:
        """The DPFOperatorConfig with stages, or without."""
        rng = self._rng
        stages = {STAGES: rng.choice(PLANS), BAKE_TIME: rng.choice(BAKES), FAILURE_BUDGET: rng.choice(BUDGETS)}
        return e.ResourcesApplied(
            self._envelope(),
            LOCAL,
            [kinds.DPF_OPERATOR_CONFIG],
            [NAMESPACE],
            [CONFIG],
            uids=[],
            generations=[],
            created_ms=[],
            deleted_ms=[],
            labels=[{}],
            annotations=[stages if is_staged else {}],
            specs=["{}"],
            expected_generations=[],
        )

    def _envelope(self) -> e.Envelope:
        return envelope(LOCAL, NAME, uuid7(self._now_ms(), self._rng))
