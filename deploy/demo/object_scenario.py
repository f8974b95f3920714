"""What the scenarios of demos with objects have in common: commands, and waits for what the plane makes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping

from deploy.demo.load import DemoClient
from deploy.demo.platform import manifests
from deploy.demo.platform.manifests import NAMESPACE, Object
from deploy.demo.progress import Display, ProgressStep
from deploy.demo.stall_timeout import StallTimeout
from deploy.process.plane import Plane
from eventstore.log import RESOURCES, Partition
from projections.resources import kinds
from projections.resources.state import LOCAL, ObjectId, ResourcesState

POLL_S = 0.1
READY = "Ready"


class ObjectScenario:
    """A scenario in the API of a plane, whose folds it reads."""

    def __init__(self, plane: Plane, api: DemoClient, display: Display) -> None:
        self._plane = plane
        self._api = api
        self._display = display
        self._partition = plane.replica.partition_for(RESOURCES, LOCAL)

    async def until_saved(self) -> None:
        """Wait until the plane has saved everything that it has folded: only saved states have digests to compare."""
        found = self._plane.replica.partitions_status()
        ends = {each.partition: each.position for each in found}
        with self._display.step("partitions saved", len(ends)) as step:
            await self._until("save", lambda: self._saved(ends), len(ends), step)

    @property
    def _state(self) -> ResourcesState:
        return self._plane.states.resources_at(self._partition)

    def _saved(self, ends: Mapping[Partition, int]) -> int:
        found = self._plane.replica.partitions_status()
        return sum(each.saved_position >= ends[each.partition] for each in found)

    def _ready_with(self, names: Iterable[str], image: str) -> int:
        """The number of these DPUs that are ready with an image."""
        found = 0
        for name in names:
            seen = self._state.seen.get(ObjectId(LOCAL, kinds.DPU, NAMESPACE, name).key)
            if seen is not None and seen.is_ready:
                found += str(seen.fields.get("installed", "")).startswith(f"{image}/")
        return found

    async def _apply(self, objects: Collection[Object]) -> None:
        await self._api.command("ApplyResources", manifests.apply(objects))

    async def _until(self, what: str, done: Callable[[], int], total: int, step: ProgressStep) -> None:
        """Wait until `done` returns `total`. Raises DemoFailed after a time without progress."""
        stall_timeout = StallTimeout()
        while (so_far := done()) < total:
            step.set(so_far)
            stall_timeout.check(what, so_far, total, self._moves())
            await asyncio.sleep(POLL_S)

    def _moves(self) -> tuple[int, ...]:
        """Counts that show progress within a step: folded records."""
        replica = self._plane.replica
        return (sum(replica.position(p) for topic in replica.topics.deciding for p in replica.partitions(topic)),)
