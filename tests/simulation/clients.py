"""Clients: each sends one command after the other to any live process, and repeats a command without a response.

A command whose outcome is unknown is sent again, to another process, under the same id and with the same bytes, until
the answer is definite or the client gives up. After that the checkers treat it as open: it may have taken effect, but
at most once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from eventstore.errors import AppendRefused, LogUnavailable, PlaneError
from eventstore.log import ZONES
from eventstore.replicas.replica import Answer
from schemas.events import Event
from tests.simulation.history import Answered, AttemptFailed, History, Invoked, QueryAnswered
from tests.simulation.process import Process
from tests.simulation.script import Director
from tests.simulation.workload import KINDS, Request, Workload
from tests.support.virtual_loop import current_loop

ATTEMPTS = 8
TIMEOUT_S = 4.0
RESIGNS = 0.2
"""Share of tries that certainly failed after which a client asks no more."""
REPEATS = 0.03
"""Share of answers after which a client sends the same command again, as one whose answer was lost."""
READS = 0.1
"""Share of answers after which a client reads what it wrote."""


class Client:
    """One caller with its own clock and its own random generator."""

    def __init__(
        self,
        name: str,
        processes: Sequence[Process],
        zones: Sequence[str],
        history: History,
        *,
        rng: random.Random,
        now_ms: Callable[[], int],
        pause_s: float,
    ) -> None:
        self.name = name
        self._processes = processes
        self._history = history
        self._rng = rng
        self._pause_s = pause_s
        self._workload = Workload(name, zones, now_ms)

    async def run(self, director: Director, seed: int) -> None:
        """Send commands for ever."""
        async for deed in director.deeds(self.name, self._draw):
            self._rng = deed.rng(seed)
            process = self._rng.choice(self._processes)
            if process.life is None or not process.life.is_up:
                continue
            request = self._workload.request(deed.what, self._rng, process.life.replica)
            if request is not None:
                deed.says = f"{process.name}: {_shown(request.event)}"
                await self.ask(request, process)

    def _draw(self, rng: random.Random) -> tuple[float, str]:
        return rng.expovariate(1 / self._pause_s), rng.choices(list(KINDS), list(KINDS.values()))[0]

    async def ask(self, request: Request, process: Process) -> Answer | None:
        """Send one command until its outcome is known; None if the client gave up."""
        command_id, now = request.event.envelope.command_id, current_loop().time
        self._history.note(now(), "invoke", self.name, command_id, type(request.event).__name__, request.partition)
        for attempt in range(ATTEMPTS):
            self._history.add(Invoked(now(), self.name, command_id, request.partition))
            try:
                answer = await process.call(request, TIMEOUT_S)
            except PlaneError as error:
                if isinstance(error, LogUnavailable | AppendRefused):
                    self._history.add(AttemptFailed(now(), command_id))
                    if self._rng.random() < RESIGNS:
                        self._history.note(now(), "resigned", self.name, command_id)
                        return None
                self._history.note(now(), "unknown", self.name, command_id, type(error).__name__)
            else:
                self._tell(request, process, answer)
                if self._rng.random() < READS:
                    await self._read_back(answer)
                if self._rng.random() >= REPEATS:
                    return answer
                self._history.note(now(), "repeat", self.name, command_id)
            await asyncio.sleep(self._rng.uniform(0.05, 0.5 * 2 ** min(attempt, 4)))
            process = self._rng.choice(self._processes)
        self._history.note(now(), "gave up", self.name, command_id)
        return None

    async def _read_back(self, answer: Answer) -> None:
        """Query any process at a minimum position of this answer."""
        process, partition, least = self._rng.choice(self._processes), answer.partition, answer.offset + 1
        began_s, of_fleet = current_loop().time(), partition.topic == ZONES and self._rng.random() < 0.5
        try:
            position, fleet = await process.read(partition, least, of_fleet=of_fleet, timeout_s=TIMEOUT_S)
        except PlaneError:
            return
        at_s = current_loop().time()
        self._history.counts["read"] += 1
        self._history.add(QueryAnswered(began_s, at_s, self.name, process.name, partition, least, position, fleet))

    def _tell(self, request: Request, process: Process, answer: Answer) -> None:
        now, command_id = current_loop().time(), request.event.envelope.command_id
        self._history.add(Answered(now, self.name, process.name, command_id, answer))
        outcome = answer.outcome
        self._history.note(now, outcome.code, self.name, command_id, answer.offset, outcome)


def _shown(event: Event) -> str:
    """A command as text, for people."""
    fields = (getattr(event, field) for field in event.__struct_fields__ if field != "envelope")
    return " ".join([type(event).__name__, *(str(field) for field in fields if field not in ("", b"", [], {}))])
