"""A process of the plane in a simulation: the production components, assembled as `deploy` does, in one task group.

It can die between any two steps of the loop. Its wire, its disk and its links are cut first, and only then are its
tasks cancelled, so that no cleanup does what a dead process cannot do. Its memory is lost; its disk stays, or an older
copy of the disk replaces it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from drivers.backends.simulated_bmc import SimulatedBmcs
from drivers.relays.relay import Relay
from drivers.stall_detector import StallDetector
from drivers.wire.links import Busy, LinkClosed
from eventstore.errors import AppendUnknown, LogUnavailable, PlaneError
from eventstore.log import EventLog, Partition
from eventstore.replicas.beacons import Beacons
from eventstore.replicas.replica import Answer, Replica
from eventstore.state_store.store import SavedHead
from tests.simulation.api import Api, asked
from tests.simulation.history import History, ProcessLived, StateSaved
from tests.simulation.network import LinkEnd, Wire, WiredLog, link_pair
from tests.simulation.roles import start_roles
from tests.simulation.workload import Request
from tests.support.memory_disk import Disk, DiskStore
from tests.support.virtual_loop import current_loop, owned_by

ENDS_WITHIN_S = 60.0


class Life:
    """One life of a process, from a start to a crash."""

    def __init__(self, name: str, wire: Wire, store: DiskStore) -> None:
        self.name = name
        self.from_s = current_loop().time()
        self.wire = wire
        self.store = store
        self.replica: Replica
        self.relay: Relay | None = None
        self.beacons: Beacons
        self.stall_detector: StallDetector | None = None
        self.api: Api | None = None
        self.group: asyncio.TaskGroup
        self.is_up = False
        self.links: list[LinkEnd] = []
        self.calls: set[asyncio.Future[Answer]] = set()

    def spawn(self, work: Awaitable[None], name: str) -> None:
        """Start a task that ends with this life at the latest."""
        with owned_by(self.name):
            self.group.create_task(work, name=name)  # type: ignore[arg-type]


@dataclass
class Process:
    """A process of the plane, over all its lives."""

    name: str
    log: EventLog
    rng: random.Random
    history: History
    now_ms: Callable[[], int]
    bmcs: SimulatedBmcs
    roles: frozenset[str]
    disk: Disk = field(default_factory=Disk)
    life_copies: list[dict[Partition, Any]] = field(default_factory=list)
    """What was on the disk at earlier deaths."""
    wire_slow_s: float = 0.0
    lives: int = 0
    life: Life | None = None
    faults: list[str] = field(default_factory=list)
    _main: asyncio.Task[None] | None = None

    # --- life and death

    def start(self) -> None:
        """Begin a new life with the current content of the disk."""
        assert self.life is None
        self.lives += 1
        name = f"{self.name}#{self.lives}"
        wire = Wire(random.Random(f"{self.rng.random()}"), slow_s=self.wire_slow_s)
        store = DiskStore(self.disk, random.Random(f"{self.rng.random()}"), self._committed)
        self.life = Life(name, wire, store)
        with owned_by(name):
            self._main = current_loop().create_task(self._live(self.life), name=name)

    async def crash(self, *, in_the_dark: bool = False) -> None:
        """Die at this instant. With `in_the_dark`, the machine loses power, so its peers see no closed link."""
        life, main = self.life, self._main
        if life is None or main is None:
            return
        self.life = self._main = None
        self.history.add(self.lived(life))
        life.is_up = False
        life.wire.is_cut = True
        life.store.cut()
        for link in life.links:
            link.is_dark = in_the_dark
            link.abort()
        for call in life.calls:
            if not call.done():
                call.set_exception(AppendUnknown(f"{self.name} is gone"))
        main.cancel()
        _, pending = await asyncio.wait({main}, timeout=ENDS_WITHIN_S)
        if pending:
            self.faults.append(f"{life.name} still runs {ENDS_WITHIN_S:g} s after it was cancelled")
        await asyncio.sleep(0.01)
        if left := current_loop().tasks_of(life.name):
            self.faults.append(f"{life.name} left tasks behind: {left[:5]}")

    def lived(self, life: Life) -> ProcessLived:
        """This life, up to now."""
        return ProcessLived(self.name, tuple(sorted(self.roles)), life.from_s, current_loop().time())

    async def _live(self, life: Life) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                life.group = group
                start_roles(self, life, WiredLog(self.log, life.wire))
                await life.replica.ready()
                life.is_up = True
                self.history.note(current_loop().time(), "ready", life.name)
        except* PlaneError as group:
            self._died(life, group.exceptions[0])
        except* Exception as group:
            self._died(life, group.exceptions[0])

    def _died(self, life: Life, error: BaseException) -> None:
        """Record that the process ended by itself, which is a fault in every simulation."""
        if not life.wire.is_cut:
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            self.faults.append(f"{life.name} died of {type(error).__name__}: {error}")
            life.is_up = False

    def _committed(self, partition: Partition, head: SavedHead) -> None:
        self.history.add(StateSaved(self.name, partition, head.position, head.digest, head.running))

    # --- what reaches it

    async def call(self, request: Request, timeout_s: float) -> Answer:
        """Send a command over the network. Raises AppendUnknown; LogUnavailable if nothing was appended."""
        life = self.life
        if life is None or not life.is_up:
            raise LogUnavailable(f"{self.name} takes no connections")
        await asyncio.sleep(self.rng.uniform(0.0001, 0.003))
        if life is not self.life:
            raise AppendUnknown(f"{self.name} is gone")
        answer: asyncio.Future[Answer] = current_loop().create_future()
        life.calls.add(answer)
        life.spawn(_handle(life, request, answer, timeout_s), "call")
        try:
            async with asyncio.timeout(timeout_s + 5.0):
                return await answer
        except TimeoutError:
            raise AppendUnknown(f"{self.name} gave no answer") from None
        finally:
            life.calls.discard(answer)

    async def read(self, partition: Partition, least: int, *, of_fleet: bool, timeout_s: float) -> tuple[int, int]:
        """Query at a minimum position; the positions, of the partition and of fleet (else -1), of the response.

        Raises LogUnavailable.
        """
        life = self.life
        if life is None or not life.is_up:
            raise LogUnavailable(f"{self.name} takes no connections")
        assert life.api is not None, "whoever takes commands answers queries"
        return await life.api.read(partition, least, of_fleet=of_fleet, timeout_s=timeout_s)

    async def dial(self, agent: str) -> LinkEnd:
        """Open a link to this process's relay. Raises LinkClosed, Busy."""
        life = self.life
        await asyncio.sleep(self.rng.uniform(0.0001, 0.003))
        if life is None or life is not self.life or not life.is_up or life.relay is None:
            raise LinkClosed(f"{self.name} takes no connections")
        if wait_s := life.relay.admit(agent, is_one_dpu=False):
            raise Busy(f"{self.name} takes no more links now", wait_s)
        relays, agents = link_pair(self.name, agent, self.rng)
        life.links = [link for link in life.links if not link.is_closed] + [relays]
        life.spawn(life.relay.serve(relays), f"link of {agent}")
        return agents


async def _handle(life: Life, request: Request, answer: asyncio.Future[Answer], timeout_s: float) -> None:
    """Handle one command inside the process."""
    try:
        found = await _answer(life, request, timeout_s)
    except PlaneError as error:
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(found)


async def _answer(life: Life, request: Request, timeout_s: float) -> Answer:
    """Send a command through the API if it has a form there, and otherwise as the plane's components do."""
    form = asked(request.event)
    if form is None or life.api is None:
        return await life.replica.submit(request.partition, request.key, request.event, timeout_s=timeout_s)
    method, message = form
    return await life.api.state(method, message, request.event.envelope.actor, timeout_s)
