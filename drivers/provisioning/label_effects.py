"""The node effects of changed labels: with `applyOnLabelChange`, the host of a DPU gives way while its labels change.

The DPU joins the maintenance of its host under a name of its own, gets its labels once the effect is applied, and
leaves when its node was observed with them. The labels and the maintenances alone show how far each DPU is, so another
process can take over at any time. Processes act in order of rank: a later one may be the only one that is connected to
the cluster. If two act at once, they share the maintenance.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, TypeAlias

from drivers.provisioning.attempts import TimedCalls
from drivers.provisioning.maintenance import Maintenances
from drivers.provisioning.object_facts import ObjectFacts
from eventstore.errors import PermanentError, TransientError
from projections.resources.host_effects import NO_EFFECT, label_requestor
from projections.resources.step_facts import StepFacts

logger = logging.getLogger(__name__)

RECHECK_S = 30.0
"""Time after which a DPU is tried again whose host or cluster was away, or whose process ended."""
OBSERVED_S = 5.0
"""Time in which a node should be observed with its new labels. After it they are set again."""
AT_ONCE = 64
"""Maximum number of hosts that this process brings into maintenance for labels. Most of them wait."""

SetLabels: TypeAlias = Callable[[str, StepFacts], Awaitable[bool]]
"""Give the node of a DPU its labels. Returns whether the node has them."""


class _Ended(Exception):
    """The labels are as wanted, or the DPU does not serve any more."""


class LabelEffects:
    """Follows `want` and `forget` until `run` is cancelled."""

    def __init__(
        self,
        maintenances: Maintenances,
        facts: ObjectFacts,
        set_labels: SetLabels,
        *,
        rank: Callable[[str], int],
        rng: Random,
    ) -> None:
        self._maintenances = maintenances
        self._facts = facts
        self._set_labels = set_labels
        self._rank = rank
        self._rng = rng
        self._wanted: dict[str, StepFacts] = {}
        self._running: dict[str, None] = {}
        self._since_s: dict[str, float] = {}
        """The time since which each DPU is to join or to leave a maintenance."""
        self._moved = asyncio.Event()

    def want(self, dpu: str, facts: StepFacts) -> None:
        """The labels of a DPU differ from these facts."""
        if dpu not in self._wanted:
            self._moved.set()
        self._wanted[dpu] = facts

    def forget(self, dpu: str) -> None:
        """The labels of a DPU are as wanted, or the DPU does not serve any more."""
        if self._wanted.pop(dpu, None) is not None:
            self._moved.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._moved.clear()
                waiting = self._facts.label_requestors()
                now_s = asyncio.get_running_loop().time()
                self._since_s = {dpu: self._since_s.get(dpu, now_s) for dpu in (*self._wanted, *waiting)}
                for dpu in [*self._wanted]:
                    self._begin(tasks, dpu, self._change)
                for dpu in waiting.keys() - self._wanted.keys():
                    self._begin(tasks, dpu, self._end)
                is_idle = not (self._wanted or waiting or self._running)
                try:
                    async with asyncio.timeout(None if is_idle else RECHECK_S * self._rng.uniform(0.5, 1.0)):
                        await self._moved.wait()
                except TimeoutError:
                    continue

    def _begin(self, tasks: asyncio.TaskGroup, dpu: str, work: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        if dpu in self._running or len(self._running) >= AT_ONCE:
            return
        if asyncio.get_running_loop().time() < self._since_s[dpu] + RECHECK_S * self._rank(dpu):
            return
        self._running[dpu] = None
        tasks.create_task(self._do(dpu, work))

    async def _do(self, dpu: str, work: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        try:
            await work(dpu)
        except _Ended:
            self._moved.set()
        except (TransientError, PermanentError) as error:
            logger.warning("labels not changed under the node effect, retrying: %s", error, extra={"dpu": dpu})
        finally:
            del self._running[dpu]

    async def _change(self, dpu: str) -> None:
        """Apply the effect, and set labels until the node is observed with them."""

        def check() -> None:
            if dpu not in self._wanted:
                raise _Ended

        calls = TimedCalls(check)
        await asyncio.sleep(OBSERVED_S)  # a step may have just set the labels, and the node is not observed with them
        check()
        await self._maintenances.hold(calls, label_requestor(dpu), self._wanted[dpu], "")
        while True:
            check()
            if not await self._set_labels(dpu, self._wanted[dpu]):
                return
            await asyncio.sleep(OBSERVED_S)

    async def _end(self, dpu: str) -> None:
        """Lift the effect of a DPU whose labels are as wanted."""
        for finding in self._facts.label_requestors().get(dpu, ()):
            await self._maintenances.release(TimedCalls(), finding, "", label_requestor(dpu))
        self._moved.set()


def needs_effect(facts: StepFacts) -> bool:
    """Whether the host of a DPU gives way before labels of the DPU's node change."""
    return facts.effect.applies_on_label_change and facts.effect.kind != NO_EFFECT
