"""Clients: each sends one command after the other to any process that is up, and repeats a command without a response.

A command with an unknown outcome is sent again to any process, under the same id and with the same bytes, until the
answer is definite or the client gives up. The checkers then accept either outcome: the command may have taken effect,
but at most once.
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
from tests.simulation.workload import REQUEST_WEIGHTS, Request, Workload
from tests.support.virtual_loop import current_loop

ATTEMPTS = 8
TIMEOUT_S = 4.0
GIVE_UP_SHARE = 0.2
"""The share of failed attempts after which a client gives up."""
REPEAT_SHARE = 0.03
"""The share of answers after which a client sends the same command again, as if the answer had been lost."""
READ_BACK_SHARE = 0.1
"""The share of answers after which a client reads its own write."""


class Client:
    """One caller with its own clock and random generator."""

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
        """Send commands until cancelled."""
        async for action in director.actions(self.name, self._draw):
            self._rng = action.rng(seed)
            process = self._rng.choice(self._processes)
            if process.instance is None or not process.instance.is_up:
                continue
            request = self._workload.request(action.what, self._rng, process.instance.replica)
            if request is not None:
                action.description = f"{process.name}: {_text_of(request.event)}"
                await self.send(request, process)

    def _draw(self, rng: random.Random) -> tuple[float, str]:
        return rng.expovariate(1 / self._pause_s), rng.choices(list(REQUEST_WEIGHTS), list(REQUEST_WEIGHTS.values()))[0]

    async def send(self, request: Request, process: Process) -> Answer | None:
        """Send one command until its outcome is known; returns None if the client gave up."""
        command_id, now = request.event.envelope.command_id, current_loop().time
        self._history.note(now(), "invoke", self.name, command_id, type(request.event).__name__, request.partition)
        for attempt in range(ATTEMPTS):
            self._history.add(Invoked(now(), self.name, command_id, request.partition))
            try:
                answer = await process.call(request, TIMEOUT_S)
            except PlaneError as error:
                if isinstance(error, LogUnavailable | AppendRefused):
                    self._history.add(AttemptFailed(now(), command_id))
                    if self._rng.random() < GIVE_UP_SHARE:
                        self._history.note(now(), "gave up early", self.name, command_id)
                        return None
                self._history.note(now(), "unknown", self.name, command_id, type(error).__name__)
            else:
                self._record_answer(request, process, answer)
                if self._rng.random() < READ_BACK_SHARE:
                    await self._read_back(answer)
                if self._rng.random() >= REPEAT_SHARE:
                    return answer
                self._history.note(now(), "repeat", self.name, command_id)
            await asyncio.sleep(self._rng.uniform(0.05, 0.5 * 2 ** min(attempt, 4)))
            process = self._rng.choice(self._processes)
        self._history.note(now(), "gave up", self.name, command_id)
        return None

    async def _read_back(self, answer: Answer) -> None:
        """Query any process, with the position of this answer as the minimum."""
        process, partition, min_offset = self._rng.choice(self._processes), answer.partition, answer.offset + 1
        began_s, of_fleet = current_loop().time(), partition.topic == ZONES and self._rng.random() < 0.5
        try:
            position, fleet = await process.read(partition, min_offset, of_fleet=of_fleet, timeout_s=TIMEOUT_S)
        except PlaneError:
            return
        at_s = current_loop().time()
        self._history.counts["read"] += 1
        self._history.add(QueryAnswered(began_s, at_s, self.name, process.name, partition, min_offset, position, fleet))

    def _record_answer(self, request: Request, process: Process, answer: Answer) -> None:
        now, command_id = current_loop().time(), request.event.envelope.command_id
        self._history.add(Answered(now, self.name, process.name, command_id, answer))
        outcome = answer.outcome
        self._history.note(now, outcome.code, self.name, command_id, answer.offset, outcome)


def _text_of(event: Event) -> str:
    """A command as readable text."""
    fields = (getattr(event, field) for field in event.__struct_fields__ if field != "envelope")
    return " ".join([type(event).__name__, *(str(field) for field in fields if field not in ("", b"", [], {}))])
