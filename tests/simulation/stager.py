"""An operator in a simulation who changes policies in stages, and pauses, resumes and rolls back these changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from eventstore.ids import envelope, uuid7
from eventstore.log import FLEET_0
from projections.fleet.fold import FleetFold2
from projections.fleet.state import FleetState
from projections.staging.decide import PAUSE, RESUME, UNDO
from schemas import events as e
from tests.simulation.clients import Client
from tests.simulation.process import Process
from tests.simulation.script import Director
from tests.simulation.workload import LABELS, POLICIES, ZONE_LABELS, Request

NAME = "stager"
STAGES = (["1", "100%"], ["1", "50%", "100%"], ["10%", "2", "50%", "100%"], ["site=a", "100%"])
BUDGETS = ("0", "1", "100%")
BAKES_MS = (0, 0, 2_000)


class Stager:
    """The operator. `client` sends the requests, one per mean pause."""

    def __init__(self, client: Client, processes: Sequence[Process], now_ms: Callable[[], int], pause_s: float) -> None:
        self._client = client
        self._processes = processes
        self._now_ms = now_ms
        self._pause_s = pause_s
        self._rng = random.Random(0)

    async def run(self, director: Director, seed: int) -> None:
        """Send requests until cancelled."""
        async for action in director.actions(NAME, self._draw):
            self._rng = action.rng(seed)
            process = self._rng.choice(self._processes)
            if process.instance is None or not process.instance.is_up:
                continue
            replica = process.instance.replica
            if replica.folded(FLEET_0).version < FleetFold2.version:
                event: e.Event = e.FoldVersionUpgraded(self._envelope("fold"), FleetFold2.version)
            else:
                event = self._event(replica.state(FLEET_0))
            action.description = f"{process.name}: {type(event).__name__}"
            await self._client.send(Request(FLEET_0, event.envelope.subject.encode(), event), process)

    def _draw(self, rng: random.Random) -> tuple[float, str]:
        return rng.expovariate(1 / self._pause_s), "stage"

    def _event(self, fleet: FleetState) -> e.Event:
        rng, staged = self._rng, fleet.staged
        if staged is None or not staged.is_open:
            return self._staged(rng.choice(POLICIES))
        verbs = (RESUME,) if staged.held or staged.paused_by else (PAUSE, RESUME)
        verb = UNDO if rng.random() < 0.3 else rng.choice(verbs)
        return e.StagesRequested(self._envelope(staged.policy), staged.policy, verb)

    def _staged(self, name: str) -> e.PolicyStaged:
        rng = self._rng
        priority, action = rng.choice((0, 10, 20)), rng.choice(("allow", "drop"))
        return e.PolicyStaged(
            self._envelope(name),
            name,
            rng.random() < 0.2,
            priority,
            action,
            "any",
            [],
            dict(rng.choice(LABELS)),
            dict(rng.choice(ZONE_LABELS)),
            list(rng.choice(STAGES)),
            rng.choice(BAKES_MS),
            rng.choice(BUDGETS),
        )

    def _envelope(self, subject: str) -> e.Envelope:
        return envelope(subject, NAME, uuid7(self._now_ms(), self._rng))
