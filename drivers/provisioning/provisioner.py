"""The provisioner: it executes the pending steps of DPUs, in order of rank, and appends their results.

    an open step -> StepStarted -> the fold names this attempt -> its executor works -> StepSucceeded or StepFailed

Only the actor that the fold names calls a device, and it checks this before every call. If that actor's beacon is
missing for too long, the replica of the lowest rank appends StepFailed (lost), and every replica may take the next
attempt. If the actor hangs, the step's deadline ends the attempt. An actor is a replica name and an id of the process:
attempts of an earlier process are lost.

A Ready DPU has no open step. Its device is visited when the fold says so (renewals of its certificate), as an attempt
at the step of its phase.

In a frozen zone no attempt is started. An attempt that runs makes no further change to its device: it follows the
device's running task, or waits for the thaw until its deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from itertools import islice
from random import Random
from typing import Any, NamedTuple, TypeAlias

from drivers.backends.bmc import SessionEnded, TaskFailed, without_tokens
from drivers.fold_upgrades import FoldUpgrades
from drivers.internal_events import InternalEvents
from drivers.provisioning.attempts import Attempt, AttemptSuperseded, CallTiming, Executor
from drivers.provisioning.early_visits import EarlyVisits
from eventstore.errors import FatalError, PermanentError, TransientError
from eventstore.ids import internal_envelope
from eventstore.log import FLEET_0, ZONES, Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import PROVISIONER
from projections.field_checks import check_text, quoted
from projections.fold_states import FoldStates
from projections.zones.dpus.decide import LOST, MAX_MESSAGE
from projections.zones.dpus.install_interfaces import check_executors, step_of
from projections.zones.dpus.lifecycle import wait_ms
from projections.zones.dpus.phases import READY, Step
from projections.zones.fold import ZonesFold2
from projections.zones.rows import Dpu
from schemas.events import Envelope, Event, FoldVersionUpgraded, StepFailed, StepProgressed, StepStarted, StepSucceeded

logger = logging.getLogger(__name__)


class ProvisionerSettings(NamedTuple):
    """Settings of a provisioner; times are in seconds."""

    attempts_at_once: int = 1_000
    """Maximum number of concurrent attempts in this process; most of them wait for a device."""
    visits_at_once: int = 16
    """Maximum number of concurrent visits to the devices of Ready DPUs in this process. They have days."""
    visits_examined: int = 500
    """Maximum number of due visits that one check of a partition looks at. A zone that stays frozen for months has tens
    of thousands."""
    calls_at_once: int = 64
    """Maximum number of concurrent calls to devices in this process. A call that takes longer than `calls.prompt_s` no
    longer counts."""
    lost_after_s: float = 3.0
    """Time without an actor's beacon after which its attempt is lost."""
    pause_s: float = 0.02
    """Shortest time between two checks of a partition."""
    idle_check_s: float = 1.0
    """Longest time between two checks of a partition with running attempts, or with steps that wait for a thaw. The log
    has no record of a lost beacon, so no change of the fold reveals it."""
    landing_s: float = 2.0
    """Longest wait for the fold to show an append. After it the event is appended again, because an append of
    unknown outcome may have failed."""
    retry_s: float = 1.0
    """Wait after an internal event that changed nothing, with jitter."""
    visit_check_s: float = 3_600.0
    """Longest time until the times of visits are compared with the clock again, which may have been set."""
    upgrade_s: float = 60.0
    """Wait until the upgrade of a partition to the rules of visits is tried again."""
    calls: CallTiming = CallTiming()


_SETTINGS = ProvisionerSettings()
_VISITS = "renewals of certificates"


class _Step(NamedTuple):
    """A step of a DPU, as of one read of the fold."""

    partition: Partition
    name: str
    dpu: Dpu


_Work: TypeAlias = Callable[[_Step], Coroutine[Any, Any, None]]


Accepts: TypeAlias = Callable[[str, Dpu], bool]
"""Whether this process can execute the step of a DPU: it may have no connection to the cluster of its host."""


def _accept_all(dpu: str, row: Dpu) -> bool:
    return True


class Provisioner:
    """Provisions the DPUs of every partition of topic zones until `run` is cancelled. It takes only steps that
    `accepts` allows, and takes turns with the other replicas of its role.

    `under_way` counts the DPUs with an attempt in this process. `ended` counts attempts by phase and result: done,
    abandoned (superseded by another attempt), lost (the actor's beacon is missing), or the kind of the failure.
    """

    def __init__(
        self,
        replica: Replica,
        ranks: Ranks,
        executors: Mapping[str, Executor],
        *,
        now_ms: Callable[[], int],
        rng: Random,
        settings: ProvisionerSettings = _SETTINGS,
        accepts: Accepts = _accept_all,
        role: str = PROVISIONER,
    ) -> None:
        self._accepts = accepts
        self.ended: Counter[tuple[str, str]] = Counter()
        self.under_way = 0
        self._replica = replica
        self._states = FoldStates(replica)
        self._ranks = ranks
        if fault := check_executors(executors):
            raise FatalError(fault)
        self._executors = executors
        self._now_ms = now_ms
        self._rng = rng
        self._settings = settings
        self.internal_events = InternalEvents(replica, ranks, role)
        self._upgrades = FoldUpgrades(replica, ranks, self.internal_events)
        self._upgrading: set[Partition] = set()
        self._visits = 0
        self._early_visits = EarlyVisits()
        self._examined: dict[Partition, int] = {}
        self._calls = asyncio.Semaphore(settings.calls_at_once)
        self._actor = f"{replica.name}#{now_ms():x}{rng.getrandbits(16):04x}"
        self._busy: dict[Partition, set[str]] = {partition: set() for partition in replica.partitions(ZONES)}
        self._silent_since_s: dict[str, float] = {}
        self._started_s: dict[tuple[Partition, str], float] = {}
        """The time of each attempt of this actor, by the loop's clock, before the append of its StepStarted."""

    async def run(self) -> None:
        await self._replica.ready()
        async with asyncio.TaskGroup() as tasks:
            for partition in self._replica.partitions(ZONES):
                tasks.create_task(self._serve(partition, tasks))

    # -- due work

    async def _serve(self, partition: Partition, tasks: asyncio.TaskGroup) -> None:
        while True:
            wait_s = self._start_due_work(partition, tasks)
            try:
                async with asyncio.timeout(wait_s):
                    await self._replica.fold_waits.changed(partition)
            except TimeoutError:
                continue
            await asyncio.sleep(self._settings.pause_s)

    def _start_due_work(self, partition: Partition, tasks: asyncio.TaskGroup) -> float | None:
        """Start the due work. Returns the longest time until the next check, in seconds."""
        if self._replica.folded(partition).halted:  # no event is folded: the same attempts would start forever
            return None
        state, now_ms, busy = self._states.zones_at(partition), self._now_ms(), self._busy[partition]
        waits = [self._settings.idle_check_s] if state.dpu_index.running else []
        for name in sorted(state.dpu_index.running.keys() - busy):
            step = _Step(partition, name, state.dpus.rows[name])
            work = self._work_on_running(step)
            if work is not None:
                self._begin(tasks, step, work)
        for name in sorted(state.dpu_index.open.keys() - busy):
            step = _Step(partition, name, state.dpus.rows[name])
            if step.dpu.paused:
                continue
            if not self._accepts(name, step.dpu):
                waits.append(self._settings.idle_check_s)
                continue
            if self._is_frozen(step):
                waits.append(self._settings.idle_check_s)
            elif left_ms := wait_ms(step.dpu, now_ms):
                waits.append(left_ms / 1_000)
            elif self.under_way < self._settings.attempts_at_once:
                self._begin(tasks, step, self._start_attempt)
            else:
                waits.append(self._settings.idle_check_s)
        waits += self._start_visits(partition, tasks, now_ms)
        return min(waits, default=None)

    def _start_visits(self, partition: Partition, tasks: asyncio.TaskGroup, now_ms: int) -> list[float]:
        """Start visits to the devices of Ready DPUs. Returns the longest times until the next check, in seconds.

        A check continues after the visits that the last one looked at, so that those which cannot begin, as in a frozen
        zone, keep no others waiting.
        """
        state, settings, waits = self._states.zones_at(partition), self._settings, []
        visits, is_frozen = state.dpu_index.visits, cache(self._states.fleet.is_frozen)
        next_ms = visits.next_ms(now_ms)
        if next_ms is not None:
            waits.append(min((next_ms - now_ms) / 1_000, settings.visit_check_s))
        now_s = asyncio.get_running_loop().time()
        first = examined = self._examined.get(partition, 0)
        for name in islice(visits.due(now_ms), first, first + settings.visits_examined):
            if self._visits >= settings.visits_at_once or self.under_way >= settings.attempts_at_once:
                return [*waits, settings.idle_check_s]
            examined += 1
            step = _Step(partition, name, state.dpus.rows[name])
            if name in self._busy[partition]:
                continue
            if not self._accepts(name, step.dpu) or is_frozen(step.dpu.zone):
                waits.append(settings.idle_check_s)
            elif left_s := self._early_visits.left_s(partition, name, step.dpu, now_s):
                waits.append(left_s)
            elif self._replica.folded(partition).version < ZonesFold2.version:
                self._begin_upgrade(step, tasks)
                return [*waits, settings.upgrade_s]
            else:
                self._visits += 1
                self._begin(tasks, step, self._visit)
        is_last = examined < first + settings.visits_examined
        self._examined[partition] = 0 if is_last else examined
        return waits if is_last and not first else [*waits, settings.idle_check_s]

    def _begin_upgrade(self, step: _Step, tasks: asyncio.TaskGroup) -> None:
        """Upgrade the partition to the rules of this visit, unless a task does so already. Visits to DPUs of other
        partitions do not wait for it."""
        if step.partition not in self._upgrading:
            self._upgrading.add(step.partition)
            tasks.create_task(self._upgrade(step))

    def _work_on_running(self, step: _Step) -> _Work | None:
        """The work on a running attempt that no task of this process works on; None if there is none."""
        if step.dpu.provisioner == self._actor:
            return self._execute if self._left_s(step) > 0 else None
        replica = step.dpu.provisioner.partition("#")[0]
        return self._report_lost if replica == self._replica.name or self._is_lost(replica) else None

    def _begin(self, tasks: asyncio.TaskGroup, step: _Step, work: _Work) -> None:
        self._busy[step.partition].add(step.name)
        self.under_way += 1
        tasks.create_task(self._run_alone(step, work))

    async def _run_alone(self, step: _Step, work: _Work) -> None:
        """Run this work, the only one on its DPU (`_busy`)."""
        try:
            await work(step)
        finally:
            if not self._runs_for_us(step):
                self._started_s.pop((step.partition, step.name), None)
            self._busy[step.partition].discard(step.name)
            self.under_way -= 1
            self._replica.fold_waits.wake(step.partition)

    def _is_lost(self, replica: str) -> bool:
        """Whether a replica's beacon has been missing for `lost_after_s`."""
        now_s = asyncio.get_running_loop().time()
        if self._ranks.is_alive(replica):
            self._silent_since_s.pop(replica, None)
            return False
        return now_s - self._silent_since_s.setdefault(replica, now_s) >= self._settings.lost_after_s

    # -- one attempt

    async def _visit(self, step: _Step) -> None:
        """Start an attempt at the step of a Ready DPU."""
        try:
            await self._start_attempt(step)
        finally:
            self._visits -= 1

    async def _upgrade(self, step: _Step) -> None:
        """Upgrade the partition of a step to the rules of visits. If it cannot be upgraded yet, wait a while."""
        partition = step.partition

        def has_rules() -> bool:
            return self._replica.folded(partition).version >= ZonesFold2.version

        try:
            event = FoldVersionUpgraded(self._envelope(step), ZonesFold2.version)
            if await self.internal_events.wait_for_turn(step.name, partition, has_rules):
                return
            if not await self._upgrades.ensure(partition, event, _VISITS):
                await self._replica.fold_waits.wait_for(has_rules, partition, timeout_s=self._settings.upgrade_s)
        finally:
            self._upgrading.discard(partition)
            self._replica.fold_waits.wake(partition)

    async def _start_attempt(self, step: _Step) -> None:
        """Append StepStarted for the next attempt, and execute it if the fold names this actor."""
        number = step.dpu.attempt + 1
        if await self._wait_for_turn(step) or self._is_frozen(step):
            return
        event = StepStarted(self._envelope(step), step.dpu.zone, step.name, step.dpu.phase, number, self._actor)
        self._started_s[step.partition, step.name] = asyncio.get_running_loop().time()
        if not await self._append(step, event):
            log_ms, now_s = self._replica.folded(step.partition).time_ms, asyncio.get_running_loop().time()
            self._early_visits.refused(
                step.partition, step.name, step.dpu, log_ms=log_ms, now_s=now_s, longest_s=self._settings.visit_check_s
            )
            await self._back_off()
            return
        now = self._now(step)
        if now is not None and self._is_ours(now):
            await self._execute(now)

    async def _execute(self, step: _Step) -> None:
        """Execute a step that the fold assigned to this actor, and append its result while the attempt is current."""
        logger.info("step started", extra=_about(step))
        try:
            event = await self._attempt(step)
        except (AttemptSuperseded, SessionEnded) as error:
            self.ended[step.dpu.phase, "abandoned"] += 1
            logger.info(
                "step abandoned: its attempt was superseded or its session ended", extra=_about(step, _shortened(error))
            )
            await self._replica.fold_waits.wait_for(
                lambda: self._moved(step), step.partition, timeout_s=self._settings.landing_s
            )
            return
        if isinstance(event, StepSucceeded):
            self.ended[event.phase, "done"] += 1
            logger.info("step succeeded", extra=_about(step))
        else:
            self.ended[event.phase, event.kind] += 1
            logger.warning("step failed", extra=_about(step, event.message) | {"kind": event.kind})
        while self._is_current(step) and not await self._append(step, event):  # also after the step's deadline
            await self._back_off()

    async def _attempt(self, step: _Step) -> StepSucceeded | StepFailed:
        about = (self._envelope(step), step.dpu.zone, step.name, step.dpu.phase, step.dpu.attempt)

        def check() -> None:
            if not self._is_ours(step):
                raise AttemptSuperseded(f"attempt {step.dpu.attempt} is over")

        async def until_thawed() -> None:
            while self._is_frozen(step):
                check()
                await self._replica.fold_waits.changed(step.partition, FLEET_0)

        async def report_progress(task: str, percent: int) -> None:
            event = StepProgressed(*about, without_tokens(task), percent)
            if fault := check_text("task", event.task):
                raise TaskFailed(f"{fault}; the installer reported this value")
            check()
            while not await self._append_progress(step, event):
                await self._back_off()
                check()
            check()

        try:
            row = _row_of(step)
            async with asyncio.timeout(max(0.0, self._left_s(step))):
                attempt = Attempt(
                    step.name, step.dpu, row, check, until_thawed, report_progress, self._calls, self._settings.calls
                )
                facts = await self._executors[row.executor].run(attempt)
                return StepSucceeded(*about, {key: without_tokens(value) for key, value in facts.items()})
        except SessionEnded:
            raise
        except TimeoutError:
            if step.dpu.phase == READY and self._is_frozen(step):
                return StepFailed(*about, LOST, "the zone was frozen until the deadline of the visit")
            return StepFailed(*about, "transient", "the step's deadline passed")
        except TransientError as error:
            return StepFailed(*about, "transient", _shortened(error))
        except TaskFailed as error:
            return StepFailed(*about, "device", _shortened(error))
        except PermanentError as error:
            return StepFailed(*about, "operator", _shortened(error))

    async def _report_lost(self, step: _Step) -> None:
        """Append StepFailed for an attempt whose actor is lost."""
        if await self._wait_for_turn(step):
            return
        message = f"provisioner {quoted(step.dpu.provisioner)} is no longer alive"
        dpu = step.dpu
        event = StepFailed(self._envelope(step), dpu.zone, step.name, dpu.phase, dpu.attempt, LOST, message)
        logger.warning("step attempt lost: its provisioner is no longer alive", extra=_about(step, message))
        self.ended[dpu.phase, LOST] += 1
        if not await self._append(step, event):
            await self._back_off()

    # -- events

    async def _wait_for_turn(self, step: _Step) -> bool:
        """Wait for the turn of this replica. Returns whether the step has changed meanwhile, so that nothing is left to
        do."""
        return await self.internal_events.wait_for_turn(step.name, step.partition, lambda: self._moved(step))

    async def _append(self, step: _Step, event: Event) -> bool:
        """Append an internal event, and wait until the fold has taken this event or another one about the DPU."""
        await self.internal_events.append(step.partition, step.dpu.zone, event)
        return await self._replica.fold_waits.wait_for(
            lambda: self._moved(step), step.partition, timeout_s=self._settings.landing_s
        )

    async def _append_progress(self, step: _Step, event: StepProgressed) -> bool:
        """Append the progress of an attempt, and wait until the fold shows it or the attempt is over: a successor must
        know what this attempt is about to ask of a device."""
        await self.internal_events.append(step.partition, step.dpu.zone, event)

        def is_shown() -> bool:
            now = self._now(step)
            if now is None or not self._is_current(step):
                return True
            return (now.dpu.task, now.dpu.percent) == (event.task, event.percent)

        return await self._replica.fold_waits.wait_for(is_shown, step.partition, timeout_s=self._settings.landing_s)

    async def _back_off(self) -> None:
        await asyncio.sleep(self._settings.retry_s * self._rng.uniform(0.5, 1.5))

    def _envelope(self, step: _Step) -> Envelope:
        return internal_envelope(step.name, f"provisioner/{self._replica.name}", self._now_ms())

    # -- reads of the fold

    def _now(self, step: _Step) -> _Step | None:
        """The present state of the DPU; None if it was deleted."""
        dpu = self._states.zones_at(step.partition).dpus.rows.get(step.name)
        return None if dpu is None else step._replace(dpu=dpu)

    def _moved(self, step: _Step) -> bool:
        """Whether the step has changed since it was read. Progress does not count as a change."""
        now = self._now(step)
        return now is None or _step_version(now.dpu) != _step_version(step.dpu)

    def _is_ours(self, step: _Step) -> bool:
        """Whether this attempt may call its device: the fold names it as running and ours, and its time is not over."""
        return self._is_current(step) and self._left_s(step) > 0

    def _is_current(self, step: _Step) -> bool:
        """Whether the fold names this attempt as running and ours."""
        now = self._now(step)
        return now is not None and now.dpu.attempt == step.dpu.attempt and self._runs_for_us(now)

    def _runs_for_us(self, step: _Step) -> bool:
        """Whether the fold names an attempt at this DPU as running and ours."""
        now = self._now(step)
        return now is not None and now.dpu.step_state == "running" and now.dpu.provisioner == self._actor

    def _is_frozen(self, step: _Step) -> bool:
        """Whether a freeze forbids changes of the device."""
        return self._states.fleet.is_frozen(step.dpu.zone)

    def _left_s(self, step: _Step) -> float:
        """The remaining time of an attempt of this actor. The time runs on the loop's clock from before the append of
        StepStarted. So it ends here no later than in the log, even if the clocks of hosts differ by hours.
        """
        now_s = asyncio.get_running_loop().time()
        started_s = self._started_s.setdefault((step.partition, step.name), now_s)
        return started_s + _row_of(step).deadline_ms / 1_000 - now_s


def _row_of(step: _Step) -> Step:
    return step_of(step.dpu.bmc_address, step.dpu.phase)


def _shortened(error: Exception) -> str:
    """A failure's text, truncated to the length that the fold stores: a device's text has no limit. It may repeat the
    URL of a download, whose token is a secret."""
    return without_tokens(str(error))[:MAX_MESSAGE]


def _about(step: _Step, reason: str = "") -> dict[str, object]:
    """The fields of a log line about a step."""
    about: dict[str, object] = {"dpu": step.name, "phase": step.dpu.phase, "attempt": step.dpu.attempt}
    return about | {"reason": reason} if reason else about


def _step_version(dpu: Dpu) -> tuple[str, str, int, int]:
    return dpu.phase, dpu.step_state, dpu.attempt, dpu.since
