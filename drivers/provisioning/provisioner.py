"""The provisioner: it takes the steps that DPUs wait for, by rank, and states how they went.

    an open step -> StepStarted -> the fold names this attempt -> the device (steps) -> StepSucceeded or StepFailed

Only the actor that the fold names touches a device, and it looks before every call. If that actor's beacon is gone,
whoever is first in rank states so (StepFailed, lost) and the next attempt is open to all; if it hangs, the step's
deadline ends it. An actor is a replica's name and a mark of this life of its process: what a former life began is lost.

In a zone that is frozen no attempt is taken, and one that was taken alters nothing more: it follows the task that its
device runs already, and else waits for the thaw, for as long as it has time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, NamedTuple, TypeAlias

from drivers.backends.bmc import Connect, SessionEnded, TaskFailed
from drivers.fold_watcher import FoldWatcher
from drivers.internal_events import InternalEvents
from drivers.provisioning import steps
from eventstore.errors import PermanentError, TransientError
from eventstore.ids import internal_envelope
from eventstore.log import FLEET, FLEET_0, ZONES, Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from projections.field_checks import quoted
from projections.fold_states import FoldStates
from projections.zones.dpus import LOST, MAX_MESSAGE
from projections.zones.lifecycle import wait_ms
from projections.zones.phases import STEPS
from projections.zones.rows import Dpu
from schemas.events import Envelope, Event, StepFailed, StepProgressed, StepStarted, StepSucceeded

logger = logging.getLogger(__name__)


class ProvisionerSettings(NamedTuple):
    """How a provisioner goes about it; times in seconds."""

    attempts_at_once: int = 1_000
    """Attempts under way in this process; most of them wait for a device."""
    calls_at_once: int = 64
    """Calls to devices under way in this process, but for those that a device leaves hanging."""
    lost_after_s: float = 3.0
    """How long an actor's beacon must be gone before its attempt is lost."""
    look_s: float = 0.02
    """Shortest time between two looks at a partition."""
    idle_look_s: float = 1.0
    """Longest time between two looks at a partition in which attempts run, since beacons end without a record, or steps
    wait for a thaw."""
    landing_s: float = 2.0
    """How long an append, also one of which nothing is known, may take to be folded before it is made again."""
    retry_s: float = 1.0
    """Wait after an internal event that changed nothing, with jitter."""
    device: steps.DeviceTiming = steps.DeviceTiming()


_SETTINGS = ProvisionerSettings()


class _Step(NamedTuple):
    """A step of a DPU, as it stood when it was looked at."""

    partition: Partition
    name: str
    dpu: Dpu


_Work: TypeAlias = Callable[[_Step], Coroutine[Any, Any, None]]


class Provisioner:
    """Serves every zones partition until `run` is cancelled.

    `under_way` counts the DPUs that it is busy with, `ended` the attempts by phase and by how they ended: done, given
    up (another has it), lost (another's, whom nobody hears any more), or the kind of the failure.
    """

    def __init__(
        self,
        replica: Replica,
        ranks: Ranks,
        connect: Connect,
        *,
        now_ms: Callable[[], int],
        rng: Random,
        settings: ProvisionerSettings = _SETTINGS,
    ) -> None:
        self.ended: Counter[tuple[str, str]] = Counter()
        self.under_way = 0
        self._replica = replica
        self._states = FoldStates(replica)
        self._ranks = ranks
        self._connect = connect
        self._now_ms = now_ms
        self._rng = rng
        self._settings = settings
        self._fold_watcher = FoldWatcher(replica, ZONES, FLEET)
        self.internal_events = InternalEvents(replica, ranks, self._fold_watcher, "provisioner")
        self._calls = asyncio.Semaphore(settings.calls_at_once)
        self._actor = f"{replica.name}#{now_ms():x}{rng.getrandbits(16):04x}"
        self._busy: dict[Partition, set[str]] = {partition: set() for partition in replica.partitions(ZONES)}
        self._silent_since_s: dict[str, float] = {}
        self._taken_s: dict[tuple[Partition, str], float] = {}

    async def run(self) -> None:
        await self._replica.ready()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._fold_watcher.run())
            for partition in self._replica.partitions(ZONES):
                tasks.create_task(self._serve(partition, tasks))

    # -- what there is to do

    async def _serve(self, partition: Partition, tasks: asyncio.TaskGroup) -> None:
        while True:
            wait_s = self._look(partition, tasks)
            try:
                async with asyncio.timeout(wait_s):
                    await self._fold_watcher.changed(partition)
            except TimeoutError:
                continue
            await asyncio.sleep(self._settings.look_s)

    def _look(self, partition: Partition, tasks: asyncio.TaskGroup) -> float | None:
        """Begin what is due; in how many seconds to look again at the latest."""
        if self._replica.folded(partition).halted:  # nothing that we begin would show, and it would begin for ever
            return None
        state, now_ms, busy = self._states.zones_at(partition), self._now_ms(), self._busy[partition]
        waits = [self._settings.idle_look_s] if state.dpu_index.running else []
        for name in sorted(state.dpu_index.running.keys() - busy):
            step = _Step(partition, name, state.dpus.rows[name])
            work = self._work_on_running(step)
            if work is not None:
                self._begin(tasks, step, work)
        for name in sorted(state.dpu_index.open.keys() - busy):
            step = _Step(partition, name, state.dpus.rows[name])
            if step.dpu.paused:
                continue
            if self._is_frozen(step):
                waits.append(self._settings.idle_look_s)
            elif left_ms := wait_ms(step.dpu, now_ms):
                waits.append(left_ms / 1_000)
            elif self.under_way < self._settings.attempts_at_once:
                self._begin(tasks, step, self._take)
            else:
                waits.append(self._settings.idle_look_s)
        return min(waits, default=None)

    def _work_on_running(self, step: _Step) -> _Work | None:
        """What to do about an attempt that runs, and with which nothing here is busy."""
        if step.dpu.provisioner == self._actor:
            return self._work if self._left_s(step) > 0 else None
        replica = step.dpu.provisioner.partition("#")[0]
        return self._report_lost if replica == self._replica.name or self._is_lost(replica) else None

    def _begin(self, tasks: asyncio.TaskGroup, step: _Step, work: _Work) -> None:
        self._busy[step.partition].add(step.name)
        self.under_way += 1
        tasks.create_task(self._do(step, work))

    async def _do(self, step: _Step, work: _Work) -> None:
        try:
            await work(step)
        finally:
            if not self._runs_for_us(step):
                self._taken_s.pop((step.partition, step.name), None)
            self._busy[step.partition].discard(step.name)
            self.under_way -= 1
            self._fold_watcher.wake(step.partition)

    def _is_lost(self, replica: str) -> bool:
        """Whether a replica has been without a beacon for long enough."""
        now_s = asyncio.get_running_loop().time()
        if self._ranks.is_alive(replica):
            self._silent_since_s.pop(replica, None)
            return False
        return now_s - self._silent_since_s.setdefault(replica, now_s) >= self._settings.lost_after_s

    # -- one attempt

    async def _take(self, step: _Step) -> None:
        """State that we take the next attempt, and work on it if the fold names us."""
        number = step.dpu.attempt + 1
        if await self._is_anothers(step) or self._is_frozen(step):
            return
        event = StepStarted(self._envelope(step), step.dpu.zone, step.name, step.dpu.phase, number, self._actor)
        self._taken_s[step.partition, step.name] = asyncio.get_running_loop().time()
        if not await self._append(step, event):
            await self._back_off()
            return
        now = self._now(step)
        if now is not None and self._is_ours(now):
            await self._work(now)

    async def _work(self, step: _Step) -> None:
        """Do the step that the fold says is ours, and state how it went, unless it is not ours any more by then."""
        logger.info("step started", extra=_about(step))
        try:
            event = await self._attempt(step)
        except (steps.AttemptSuperseded, SessionEnded) as error:
            self.ended[step.dpu.phase, "given up"] += 1
            logger.info("step given up", extra=_about(step, str(error)))
            await self._fold_watcher.wait_with_timeout(
                step.partition, lambda: self._moved(step), self._settings.landing_s
            )
            return
        if isinstance(event, StepSucceeded):
            self.ended[event.phase, "done"] += 1
            logger.info("step done", extra=_about(step))
        else:
            self.ended[event.phase, event.kind] += 1
            logger.warning("step failed", extra=_about(step, event.message) | {"kind": event.kind})
        while self._is_current(step) and not await self._append(step, event):  # also that its time is over
            await self._back_off()

    async def _attempt(self, step: _Step) -> StepSucceeded | StepFailed:
        about = (self._envelope(step), step.dpu.zone, step.name, step.dpu.phase, step.dpu.attempt)

        def check() -> None:
            if not self._is_ours(step):
                raise steps.AttemptSuperseded(f"attempt {step.dpu.attempt} is over")

        async def until_thawed() -> None:
            while self._is_frozen(step):
                check()
                await self._fold_watcher.changed(step.partition, FLEET_0)

        async def report_progress(task: str, percent: int) -> None:
            check()
            await self.internal_events.append(step.partition, step.dpu.zone, StepProgressed(*about, task, percent))

        try:
            bmc = self._connect(step.dpu.bmc_address)
            async with asyncio.timeout(max(0.0, self._left_s(step))):
                attempt = steps.Attempt(
                    bmc, step.dpu, check, until_thawed, report_progress, self._calls, self._settings.device
                )
                return StepSucceeded(*about, await steps.run_step(attempt))
        except SessionEnded:
            raise
        except TimeoutError:
            return StepFailed(*about, "transient", "the step's deadline passed")
        except TransientError as error:
            return StepFailed(*about, "transient", _shortened(error))
        except TaskFailed as error:
            return StepFailed(*about, "device", _shortened(error))
        except PermanentError as error:
            return StepFailed(*about, "operator", _shortened(error))

    async def _report_lost(self, step: _Step) -> None:
        """State that an attempt has nobody who works on it."""
        if await self._is_anothers(step):
            return
        message = f"provisioner {quoted(step.dpu.provisioner)} is no longer alive"
        dpu = step.dpu
        event = StepFailed(self._envelope(step), dpu.zone, step.name, dpu.phase, dpu.attempt, LOST, message)
        logger.warning("attempt lost", extra=_about(step, message))
        self.ended[dpu.phase, LOST] += 1
        if not await self._append(step, event):
            await self._back_off()

    # -- saying it

    async def _is_anothers(self, step: _Step) -> bool:
        return await self.internal_events.wait_for_turn(step.name, step.partition, lambda: self._moved(step))

    async def _append(self, step: _Step, event: Event) -> bool:
        """Append an internal event, and wait until the fold has taken it, or another event about this DPU."""
        await self.internal_events.append(step.partition, step.dpu.zone, event)
        return await self._fold_watcher.wait_with_timeout(
            step.partition, lambda: self._moved(step), self._settings.landing_s
        )

    async def _back_off(self) -> None:
        await asyncio.sleep(self._settings.retry_s * self._rng.uniform(0.5, 1.5))

    def _envelope(self, step: _Step) -> Envelope:
        return internal_envelope(step.name, f"provisioner/{self._replica.name}", self._now_ms())

    # -- what the fold says

    def _now(self, step: _Step) -> _Step | None:
        """The DPU as it stands now."""
        dpu = self._states.zones_at(step.partition).dpus.rows.get(step.name)
        return None if dpu is None else step._replace(dpu=dpu)

    def _moved(self, step: _Step) -> bool:
        """Whether the step stands otherwise than when it was looked at; progress is no move."""
        now = self._now(step)
        return now is None or _step_version(now.dpu) != _step_version(step.dpu)

    def _is_ours(self, step: _Step) -> bool:
        """Whether this attempt may touch its device: the fold says that it runs and is ours, and it has time left."""
        return self._is_current(step) and self._left_s(step) > 0

    def _is_current(self, step: _Step) -> bool:
        """Whether the fold says that this attempt runs, and is ours."""
        now = self._now(step)
        return now is not None and now.dpu.attempt == step.dpu.attempt and self._runs_for_us(now)

    def _runs_for_us(self, step: _Step) -> bool:
        """Whether the fold says that an attempt at this DPU runs, and is ours."""
        now = self._now(step)
        return now is not None and now.dpu.step_state == "running" and now.dpu.provisioner == self._actor

    def _is_frozen(self, step: _Step) -> bool:
        """Whether the device may not be altered now."""
        return self._states.fleet.is_frozen(step.dpu.zone)

    def _left_s(self, step: _Step) -> float:
        """What an attempt of ours has left of its time: counted from before we stated it, so that it is over no later
        than in the log, and without the clock of either, which may be hours from the other."""
        now_s = asyncio.get_running_loop().time()
        taken_s = self._taken_s.setdefault((step.partition, step.name), now_s)
        return taken_s + STEPS[step.dpu.phase].deadline_ms / 1_000 - now_s


def _shortened(error: Exception) -> str:
    """As much of a failure as the fold keeps: a device may say so much that no record would have room for it."""
    return str(error)[:MAX_MESSAGE]


def _about(step: _Step, reason: str = "") -> dict[str, object]:
    """What a log line about a step says beside what happened."""
    about: dict[str, object] = {"dpu": step.name, "phase": step.dpu.phase, "attempt": step.dpu.attempt}
    return about | {"reason": reason} if reason else about


def _step_version(dpu: Dpu) -> tuple[str, str, int, int]:
    return dpu.phase, dpu.step_state, dpu.attempt, dpu.since
