"""The handover of wanted DPUs: tells their zones what is wanted, and reports their phases to the resources fold.

Each resources partition has one task. It compares both sides (projections/resources/handover_needs.py): all DPUs at
the start, then those whose objects or rows changed. A record states what is wanted as of an offset, computed in one
step of the event loop, and the fold accepts it only at its mark. Hence copies, and records of a replica that lags
behind, change nothing. The need is computed again after each append, so an append of unknown outcome is safe to repeat.

After a pass the task waits, so that the changes of a busy fleet share records.

Zones begin with a fold version that does not know wanted DPUs. The task upgrades the partitions of zones that it needs
as soon as every living replica has the rules.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable
from random import Random

from drivers.fold_upgrades import FoldUpgrades
from drivers.internal_events import TURN_S
from drivers.resources.partition_task import PartitionTask, TaskContext
from eventstore.bounded_batches import bounded_batches
from eventstore.log import ZONES, Partition
from eventstore.replicas.role_names import API
from projections.resources import kinds
from projections.resources.change_journal import JournalReader
from projections.resources.handover_needs import HandoverSides, Needs, all_keys, needs
from projections.resources.state import object_id
from projections.zones.fold import ZonesFold2
from projections.zones.rows import WantedDpu
from schemas.events import (
    MAX_COMMAND_BYTES,
    MAX_ITEMS,
    DpusPlaced,
    DpusWanted,
    Event,
    FoldVersionUpgraded,
    ResourcesObserved,
)

BATCH_KEYS = 200
"""Number of DPUs of one pass: about 5 ms of work."""
WINDOW_S = 0.3
"""Time after a pass in which changes gather for the next one."""
LANDING_S = 2.0
"""Longest wait for the folds to show an append."""
RETRY_S = 1.0
"""Wait before needs that could not be met are computed again, with jitter."""

_OF_ALL = frozenset(
    (
        kinds.BFB,
        kinds.BLUEFIELD_SOFTWARE,
        kinds.DPU_DEPLOYMENT,
        kinds.DPU_FLAVOR,
        kinds.DPU_FLAVOR_TEMPLATE,
        kinds.DPU_SET,
    )
)
"""Kinds whose changes may concern any DPU. They are rare, and all DPUs are compared again."""

logger = logging.getLogger(__name__)


class Handover(PartitionTask):
    """The handover of one resources partition."""

    actor = "handover"

    def __init__(self, context: TaskContext, *, rng: Random) -> None:
        super().__init__(context)
        self._rng = rng
        self._upgrades = FoldUpgrades(self._replica, self._ranks, self._events)
        self._pending: dict[str, None] = {}
        self._stated = JournalReader()
        self._zones: dict[Partition, JournalReader] = defaultdict(JournalReader)
        self._by_host: dict[str, dict[str, None]] = {}
        """Known DPUs by source and host."""
        self._host_of: dict[str, str] = {}
        self._by_name: dict[str, dict[str, None]] = {}
        """Known DPUs by name."""

    async def run(self) -> None:
        zones = self._replica.partitions(ZONES)
        while True:
            timeout_s = RETRY_S * self._rng.uniform(0.5, 1.5) if self._pending else None
            await self._replica.fold_waits.wait_for(self._is_changed, self._partition, *zones, timeout_s=timeout_s)
            await self._take_changes()
            if await self._pass():
                await asyncio.sleep(WINDOW_S)

    def _is_changed(self) -> bool:
        if self._stated.is_behind(self._state.journal):
            return True
        if not self._state.placements.rows:
            return False
        parts = self._replica.partitions(ZONES)
        return any(self._zones[part].is_behind(self._states.zones_at(part).dpu_journal) for part in parts)

    async def _take_changes(self) -> None:
        """Add the DPUs that may have changed to the pending ones."""
        changed = self._stated.read(self._state.journal)
        await self._derive()
        if changed is None or any(object_id(key).kind in _OF_ALL for key in changed):
            self._add(all_keys(self._sides()))
        else:
            for key in changed:
                self._add(self._concerned(key))
        for partition in self._replica.partitions(ZONES):
            names = self._zones[partition].read(self._states.zones_at(partition).dpu_journal)
            known = self._by_name.values() if names is None else map(self._by_name.get, names)
            for keys in known:
                self._pending |= keys or {}

    def _concerned(self, key: str) -> Iterable[str]:
        """The DPUs that a changed object concerns."""
        at, derivation = object_id(key), self._derivation
        if at.kind == kinds.DPU:
            return (key,)
        if at.kind == kinds.DPU_DEVICE:
            return derivation.dpus.of_owner(key)
        if at.kind not in (kinds.NODE, kinds.DPU_NODE):
            return ()
        known = self._by_host.get(f"{at.source}/{at.name}", {})
        devices = derivation.selection.hosts.of_host(key)
        return (*known, *(each for device in devices for each in derivation.dpus.of_owner(device)))

    def _add(self, keys: Iterable[str]) -> None:
        derivation = self._derivation
        for key in keys:
            self._pending[key] = None
            self._by_name.setdefault(object_id(key).name, {})[key] = None
            device = derivation.selection.hosts.devices.get(derivation.dpus.holders.get(key, ""))
            if device is not None:
                host = self._host_of[key] = f"{device.source}/{device.host}"
                self._by_host.setdefault(host, {})[key] = None

    def _sides(self) -> HandoverSides:
        return HandoverSides(self._state, self._derivation, self._partition.number, self._states.zone)

    async def _pass(self) -> bool:
        """Meet the needs of the pending DPUs once. Returns whether there were any. DPUs that still need something stay
        pending."""
        left, acted = [*self._pending], False
        while left:
            keys, left = left[:BATCH_KEYS], left[BATCH_KEYS:]
            found = await self._needs(keys)
            if found and (turn := self._ranks.rank(str(self._partition), API)):
                await asyncio.sleep(turn * TURN_S)
                found = await self._needs(keys)
            if not found:
                self._settle(keys)
                await asyncio.sleep(0)
                continue
            acted = True
            await self._meet(found)
            again = await self._needs(keys)
            rest = {*again.placements, *again.wanted, *again.reports}
            self._settle([key for key in keys if key not in rest])
            if {*found.placements} - {*again.placements}:  # the next step of these DPUs is known now
                left = [*(key for key in keys if key in rest), *left]
        return acted

    def _settle(self, keys: Collection[str]) -> None:
        derivation, placements = self._derivation, self._state.placements.rows
        for key in keys:
            self._pending.pop(key, None)
            if key not in derivation.dpus.winners and key not in placements:
                self._forget(key)

    def _forget(self, key: str) -> None:
        """Drop a DPU that no object wants and no zone has from the indexes."""
        for index, at in ((self._by_host, self._host_of.pop(key, "")), (self._by_name, object_id(key).name)):
            index.get(at, {}).pop(key, None)
            if not index.get(at, True):
                del index[at]

    async def _needs(self, keys: Iterable[str]) -> Needs:
        await self._derive()
        return needs(self._sides(), keys)

    async def _meet(self, found: Needs) -> None:
        """Append the records that these needs call for, computed from the states before the next await."""
        to_offset = self._replica.position(self._partition)
        events: dict[Partition, list[Event]] = {}
        events.setdefault(self._partition, []).extend(self._placed(found))
        by_zones: dict[Partition, list[tuple[str, WantedDpu]]] = {}
        for key, (zone, row) in found.wanted.items():
            by_zones.setdefault(self._replica.partition_for(ZONES, zone), []).append((key, row))
        for partition, rows in by_zones.items():
            events[partition] = [*self._wanted(partition, rows, to_offset)]
        reports: dict[Partition, dict[str, str]] = {}
        for key, (zone, text) in found.reports.items():
            reports.setdefault(self._replica.partition_for(ZONES, zone), {})[key] = text
        for partition, texts in reports.items():
            events[self._partition] += self._observed(partition, texts)
        async with asyncio.TaskGroup() as tasks:
            for partition, records in events.items():
                tasks.create_task(self._append_all(partition, records))

    def _placed(self, found: Needs) -> Iterable[Event]:
        by_source: dict[str, list[str]] = {}
        for key in found.placements:
            by_source.setdefault(object_id(key).source, []).append(key)
        for source, keys in by_source.items():
            ids = [object_id(key) for key in keys]
            yield DpusPlaced(
                self._envelope(source),
                source,
                [kinds.DPU],
                [at.namespace for at in ids],
                [at.name for at in ids],
                [found.placements[key] for key in keys],
            )

    def _wanted(self, partition: Partition, rows: Iterable[tuple[str, WantedDpu]], to_offset: int) -> Iterable[Event]:
        first = self._states.zones_at(partition).wanted_before(self._partition.number)
        if first > to_offset:  # this replica lags behind another one
            return
        for batch in bounded_batches(rows, _size, items_max=MAX_ITEMS, bytes_max=MAX_COMMAND_BYTES // 2):
            of = [row for _, row in batch]
            yield DpusWanted(
                self._envelope(str(self._partition)),
                self._partition.number,
                first,
                to_offset,
                [key for key, _ in batch],
                [object_id(key).name for key, _ in batch],
                [row.zone for row in of],
                [row.node for row in of],
                [row.serial for row in of],
                [row.bmc_address for row in of],
                [row.image for row in of],
            )
            first = to_offset

    def _observed(self, partition: Partition, texts: dict[str, str]) -> Iterable[Event]:
        number, to_offset = partition.number, self._replica.position(partition)
        first = self._state.observed_before(number)
        if first > to_offset:
            return
        seen = self._states.zones_at(partition).wanted_before(self._partition.number)
        by_source: dict[str, list[str]] = {}
        for key in texts:
            by_source.setdefault(object_id(key).source, []).append(key)
        for source, keys in by_source.items():
            for batch in bounded_batches(
                keys, lambda key: len(texts[key]) + len(key), items_max=MAX_ITEMS, bytes_max=MAX_COMMAND_BYTES // 2
            ):
                ids = [object_id(key) for key in batch]
                yield ResourcesObserved(
                    self._envelope(source),
                    source,
                    [kinds.DPU],
                    [at.namespace for at in ids],
                    [at.name for at in ids],
                    [],
                    [texts[key] for key in batch],
                    number,
                    first,
                    to_offset,
                    seen,
                )
                first = to_offset

    async def _append_all(self, partition: Partition, records: Iterable[Event]) -> None:
        """Append records in order, and wait until they are folded."""
        if self._replica.folded(partition).halted:
            return
        if partition.topic == ZONES:
            upgrade = FoldVersionUpgraded(self._envelope("fold"), ZonesFold2.version)
            if not await self._upgrades.ensure(partition, upgrade, "wanted DPUs"):
                return
        for event in records:
            before = self._replica.position(partition)
            if not await self._events.append(partition, event.envelope.subject, event):
                return
            await self._folded_beyond(partition, before)

    async def _folded_beyond(self, partition: Partition, position: int) -> None:
        def is_folded() -> bool:
            return self._replica.position(partition) > position

        await self._replica.fold_waits.wait_for(is_folded, partition, timeout_s=LANDING_S)


def _size(item: tuple[str, WantedDpu]) -> int:
    key, row = item
    return 2 * len(key) + sum(map(len, (row.zone, row.node, row.serial, row.bmc_address, row.image)))
