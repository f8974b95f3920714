"""The reports of images to the log: the phases that the fold lacks, from the replica with the lowest rank only.

Two replicas may have different images. If both reported theirs, the phase of an image would alternate for ever. So the
log describes the folder of the replica with the lowest rank.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

import msgspec

from drivers.images.images import Images
from drivers.internal_events import InternalEvents
from eventstore.bounded_batches import bounded_batches
from eventstore.ids import internal_envelope
from eventstore.log import RESOURCES, Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import PROVISIONER
from projections.fold_states import FoldStates
from projections.resources.image_files import KINDS
from projections.resources.state import ObjectId, ResourcesState, object_id
from schemas.events import ResourcesObserved

SUBJECT = "images"
"""All images have one rank, so that one replica reports all of them."""

PACE_S = 0.2
"""Shortest time between two records: the phases of images that change together share one."""
CHECK_S = 2.0
"""Longest time between two comparisons. A change of ranks wakes nobody."""
LANDING_S = 2.0
"""Longest wait for the fold to show an append; after it the comparison is repeated."""


class _Report(NamedTuple):
    at: ObjectId
    uid: str
    observation: str


class ImageReports:
    """Reports the phases of images until `run` is cancelled."""

    def __init__(
        self, images: Images, replica: Replica, ranks: Ranks, *, now_ms: Callable[[], int], rng: Random
    ) -> None:
        self._images = images
        self._replica = replica
        self._states = FoldStates(replica)
        self._ranks = ranks
        self._now_ms = now_ms
        self._rng = rng
        self._cursors: dict[Partition, _Cursor] = {}
        self.internal_events = InternalEvents(replica, ranks, PROVISIONER)

    async def run(self) -> None:
        await self._replica.ready()
        while True:
            self._images.changed.clear()
            if self._ranks.rank(SUBJECT, PROVISIONER) == 0:
                for partition in self._replica.partitions(RESOURCES):
                    await self._report(partition)
            await asyncio.sleep(PACE_S * self._rng.uniform(0.8, 1.2))
            try:
                async with asyncio.timeout(CHECK_S):
                    await self._images.changed.wait()
            except TimeoutError:
                continue

    async def _report(self, partition: Partition) -> None:
        by_source: dict[str, list[_Report]] = {}
        for each in self._missing(partition):
            by_source.setdefault(each.at.source, []).append(each)
        for source, reports in by_source.items():
            for batch in bounded_batches(reports, lambda each: len(each.observation), items_max=500, bytes_max=200_000):
                event = ResourcesObserved(
                    internal_envelope(source, f"images/{self._replica.name}", self._now_ms()),
                    source,
                    [each.at.kind for each in batch],
                    [each.at.namespace for each in batch],
                    [each.at.name for each in batch],
                    [each.uid for each in batch],
                    [each.observation for each in batch],
                )
                await self.internal_events.append(partition, source, event)
        if by_source:
            await self._replica.fold_waits.wait_for(
                lambda: not any(self._missing(partition)), partition, timeout_s=LANDING_S
            )

    def _missing(self, partition: Partition) -> Iterator[_Report]:
        """The reports that the fold lacks, and those of objects that are gone."""
        state = self._states.resources_at(partition)
        for key, image in self._images.images.items():
            if image.status is None or key not in state.objects.rows:
                continue
            observation = msgspec.json.encode(image.status.observation()).decode()
            known = state.observed.rows.get(key)
            if known is None or (known.uid, known.observation) != (image.row.uid, observation):
                yield _Report(object_id(key), image.row.uid, observation)
        yield from self._gone(partition, state)

    def _gone(self, partition: Partition, state: ResourcesState) -> Iterator[_Report]:
        """Reports that remove those of objects that are gone. Only keys that changed since the last call are looked
        at: a partition may have hundreds of thousands of observations."""
        cursor = self._cursors.get(partition)
        changed = cursor.changed(state) if cursor is not None else None
        keys = state.observed.rows if changed is None else changed
        candidates = cursor.candidates if cursor is not None and changed is not None else {}
        candidates |= {key: None for key in keys if object_id(key).kind in KINDS}
        for key in [key for key in candidates if not _is_gone(key, state)]:
            del candidates[key]
        self._cursors[partition] = _Cursor(state, state.journal.revision, state.observed_journal.revision, candidates)
        for key in candidates:
            yield _Report(object_id(key), "", "")


class _Cursor(NamedTuple):
    """A place in the journals of a state, and the keys whose reports must be removed."""

    state: ResourcesState
    objects: int
    observed: int
    candidates: dict[str, None]

    def changed(self, state: ResourcesState) -> list[str] | None:
        """The keys that changed since; None if they are not known."""
        if state is not self.state:
            return None
        objects, observed = state.journal.since(self.objects), state.observed_journal.since(self.observed)
        return None if objects is None or observed is None else [*objects, *observed]


def _is_gone(key: str, state: ResourcesState) -> bool:
    return key in state.observed.rows and key not in state.objects.rows
