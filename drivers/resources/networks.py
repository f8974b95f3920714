"""The network documents of DPUs: hands the wanted documents to zones, begins staged changes, and reports where chains
are ready.

Each resources partition has one task, which works like the handover of wanted DPUs (`handover`): it derives the
document of each DPU, and states those that a zone lacks as of an offset, which the fold accepts only at its mark. Zones
know what relays reported of each document. The task counts this per chain and interface, and states the counts as
observations of those objects, never one per DPU.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator

from drivers.internal_events import TURN_S
from drivers.resources.partition_task import PartitionTask, TaskContext
from eventstore.bounded_batches import bounded_batches
from eventstore.log import RESOURCES, ZONES, Partition
from eventstore.replicas.role_names import API
from projections.resources import kinds
from projections.resources.network_documents.needs import NetworkSides, Standing, standing
from projections.resources.network_documents.progress import NetworkProgress, fault_observation
from projections.resources.network_documents.staged import SourceDocuments, source_documents
from projections.resources.state import object_id
from projections.staging.plan import StagePlan
from projections.zones.fold import ZonesFold2
from schemas.events import MAX_COMMAND_BYTES, MAX_ITEMS, Event, NetworksStaged, NetworksWanted, ResourcesObserved

BATCH_KEYS = 200
"""Number of DPUs of one pass: a few milliseconds of work."""
WINDOW_S = 0.5
"""Time after a pass in which changes gather for the next one, so that many DPUs share one observation."""
LANDING_S = 2.0
"""Longest wait for the folds to show an append."""
RETRY_S = 1.0
"""Wait before needs that could not be met are computed again. Replicas act by rank, so it needs no jitter."""

_NETWORKS = frozenset(
    (
        kinds.DPF_OPERATOR_CONFIG,
        kinds.DPU_CLUSTER,
        kinds.DPU_DEPLOYMENT,
        kinds.DPU_SERVICE,
        kinds.DPU_SERVICE_CHAIN,
        kinds.DPU_SERVICE_INTERFACE,
        kinds.DPU_SERVICE_IPAM,
    )
)
"""Kinds whose changes may change the documents of a source."""

_REPORTED = (kinds.DPU_SERVICE_CHAIN, kinds.DPU_SERVICE_INTERFACE)
"""Kinds of which this driver states observations."""

logger = logging.getLogger(__name__)


class Networks(PartitionTask):
    """The network documents of one resources partition."""

    actor = "networks"

    def __init__(self, context: TaskContext) -> None:
        super().__init__(context)
        self._documents: dict[str, SourceDocuments] = {}
        self._progress = NetworkProgress()
        self._revisions: dict[object, int] = {}
        self._by_name: dict[str, dict[str, None]] = {}
        """The wanted DPUs by name."""
        self._pending: dict[str, None] = {}
        self._unreported: dict[str, None] = {}
        """The chains and interfaces whose observations may be out of date."""
        self._is_unstaged = False
        """Whether a staged change has not begun that should have."""

    async def run(self) -> None:
        """Append the records that are needed, for ever."""
        zones = self._replica.partitions(ZONES)
        while True:
            is_waiting = self._pending or self._unreported or self._is_unstaged
            timeout_s = RETRY_S if is_waiting else None
            await self._replica.fold_waits.wait_for(self._is_changed, self._partition, *zones, timeout_s=timeout_s)
            await self._take_changes()
            if await self._stage() | await self._pass() | await self._report():
                await asyncio.sleep(WINDOW_S)

    def _is_changed(self) -> bool:
        state = self._state
        if (self._revisions.get(RESOURCES), self._revisions.get("stages")) != (
            state.journal.revision,
            state.stage_journal.revision,
        ):
            return True
        return bool(self._by_name) and any(
            self._revisions.get(journal) != revision for journal, revision, _ in self._journals()
        )

    def _journals(self) -> Iterator[tuple[object, int, Callable[[int], list[str] | None]]]:
        """The journals of DPUs and of their networks in all zones, each with its key, revision and content."""
        for partition in self._replica.partitions(ZONES):
            zones = self._states.zones_at(partition)
            for journal in (zones.dpu_journal, zones.network_journal):
                yield (partition, journal is zones.dpu_journal), journal.revision, journal.since

    async def _take_changes(self) -> None:
        """Add the DPUs whose documents, or what is known of them, may have changed to the pending ones."""
        state = self._state
        changed = state.journal.since(self._revisions.get(RESOURCES, -1))
        staged = state.stage_journal.since(self._revisions.get("stages", -1))
        self._revisions |= {RESOURCES: state.journal.revision, "stages": state.stage_journal.revision}
        await self._derive()
        derived = self._live.changed.since(self._revisions.get("derived", -1))
        self._revisions["derived"] = self._live.changed.revision
        if changed is None or derived is None or staged is None:
            self._restart()
        else:
            self._follow((*changed, *derived), staged)
        for journal, revision, since in self._journals():
            names = since(self._revisions.get(journal, -1))
            self._revisions[journal] = revision
            for keys in self._by_name.values() if names is None else map(self._by_name.get, names):
                self._pending |= keys or {}

    def _restart(self) -> None:
        """Take all DPUs for changed: at the start, and after changes that are not remembered."""
        dpus = self._derivation.dpus.winners
        self._documents.clear()
        for key in (*dpus, *self._progress.dpus()):
            self._add(key)
        state = self._state
        for source in dict.fromkeys((*(object_id(key).source for key in dpus), *state.staged_networks.rows)):
            self._read_networks(source)
        self._unreported |= {key: None for key in state.observed.rows if object_id(key).kind in _REPORTED}

    def _follow(self, changed: Iterable[str], staged: Iterable[str]) -> None:
        sources = dict.fromkeys(staged)
        for key in changed:
            at = object_id(key)
            if at.kind == kinds.DPU:
                self._add(key)
                if at.source not in self._documents:
                    sources[at.source] = None
            elif at.kind == kinds.NODE:
                self._pending |= self._by_name.get(at.name, {})
            elif at.kind in _NETWORKS:
                sources[at.source] = None
                if at.kind in _REPORTED:
                    self._unreported[key] = None
        for source in sources:
            if self._read_networks(source):
                dpus = self._derivation.dpus
                self._pending |= dict.fromkeys(dpus.of_kind(source, kinds.DPU))

    def _add(self, key: str) -> None:
        self._pending[key] = None
        self._by_name.setdefault(object_id(key).name, {})[key] = None

    def _read_networks(self, source: str) -> bool:
        """Read the networks of a source and their stages again. Returns whether they have changed."""
        known = self._documents.get(source)
        found = source_documents(self._state, self._derivation, source, known)
        if found is known:
            return False
        self._documents[source] = found
        faults = {**found.networks.faults, **(known.networks.faults if known is not None else {})}
        self._unreported |= {key: None for key in faults if object_id(key).kind in _REPORTED}
        return True

    def _follow_stages(self) -> None:
        """Read the networks again of sources whose stages have changed: a document that is stated as of an offset must
        not be that of a stage before it."""
        rows = self._state.staged_networks.rows
        for source in [each for each, found in self._documents.items() if found.row is not rows.get(each)]:
            if self._read_networks(source):
                self._pending |= dict.fromkeys(self._derivation.dpus.of_kind(source, kinds.DPU))

    def _sides(self) -> NetworkSides:
        return NetworkSides(self._state, self._derivation, self._documents, self._states.zone)

    # --- the beginning of staged changes ------------------------------------------------------------------------------

    async def _stage(self) -> bool:
        """Begin the staged changes that are needed. Returns whether any was."""
        found = self._next_changes()
        if found and (turn := self._ranks.rank(str(self._partition), API)):
            await asyncio.sleep(turn * TURN_S)
            await self._derive()
            found = self._next_changes()
        if not found:
            self._is_unstaged = False
            return False
        await self._append_all(self._partition, found)
        await self._derive()
        self._is_unstaged = bool(self._next_changes())
        return True

    def _next_changes(self) -> list[NetworksStaged]:
        """The changes that are to begin, as of the state before the next await."""
        to_offset, found = self._replica.position(self._partition), []
        for source in [each for each, documents in self._documents.items() if documents.next_change() is not None]:
            if self._read_networks(source):
                self._pending |= dict.fromkeys(self._derivation.dpus.of_kind(source, kinds.DPU))
            if change := self._documents[source].next_change():
                plan, envelope = change.stages or StagePlan((), 0, ""), self._envelope(source)
                stages = [*plan.stages]
                found.append(
                    NetworksStaged(envelope, source, to_offset, change.text, stages, plan.bake_ms, plan.failure_budget)
                )
        return found

    # --- documents to zones -------------------------------------------------------------------------------------------

    async def _pass(self) -> bool:
        """Hand the documents of the pending DPUs to the zones that lack them. Returns whether a zone lacked one. DPUs
        whose zones still lack their document stay pending."""
        left, acted = [*self._pending], False
        while left:
            keys, left = left[:BATCH_KEYS], left[BATCH_KEYS:]
            await self._derive()
            lacking = self._settle(keys)
            if lacking and (turn := self._ranks.rank(str(self._partition), API)):
                await asyncio.sleep(turn * TURN_S)
                await self._derive()
                lacking = self._settle(keys)
            if lacking:
                acted = True
                await self._hand_over(lacking)
                await self._derive()
                self._settle(keys)
            else:
                await asyncio.sleep(0)
        return acted

    def _settle(self, keys: Iterable[str]) -> dict[str, Standing]:
        """Count how it stands with these DPUs. Returns those whose zones lack a document; the others are settled."""
        self._follow_stages()
        sides, winners = self._sides(), self._derivation.dpus.winners
        found = {}
        for key in keys:
            if key in winners and object_id(key).source not in self._documents:
                continue  # it became wanted after the networks of its source were read last
            standing_of = standing(sides, key) if key in winners else None
            self._unreported |= self._progress.put(key, standing_of)
            if standing_of is not None and standing_of.is_lacking:
                found[key] = standing_of
                continue
            self._pending.pop(key, None)
            if standing_of is None:
                self._forget(key)
        return found

    def _forget(self, key: str) -> None:
        name = object_id(key).name
        self._by_name.get(name, {}).pop(key, None)
        if not self._by_name.get(name, True):
            del self._by_name[name]

    async def _hand_over(self, lacking: dict[str, Standing]) -> None:
        """Append the documents that zones lack, as of the states before the next await."""
        to_offset = self._replica.position(self._partition)
        by_zones: dict[Partition, dict[str, Standing]] = {}
        for key, found in lacking.items():
            by_zones.setdefault(self._replica.partition_for(ZONES, found.zone), {})[key] = found
        events = {partition: [*self._wanted(partition, rows, to_offset)] for partition, rows in by_zones.items()}
        async with asyncio.TaskGroup() as tasks:
            for partition, records in events.items():
                tasks.create_task(self._append_all(partition, records))

    def _wanted(self, partition: Partition, rows: dict[str, Standing], to_offset: int) -> Iterator[Event]:
        first = self._states.zones_at(partition).networks_before(self._partition.number)
        if first > to_offset:  # this replica lags behind another one
            return
        by_document: dict[str, list[str]] = {}
        for key, found in rows.items():
            by_document.setdefault(found.document.text, []).append(key)
        pairs = ((text, key) for text, keys in by_document.items() for key in keys)
        texts: dict[str, int] = {}
        for batch in bounded_batches(pairs, _sizes(), items_max=MAX_ITEMS, bytes_max=MAX_COMMAND_BYTES // 2):
            texts = {text: number for number, text in enumerate(dict.fromkeys(text for text, _ in batch))}
            keys = [key for _, key in batch]
            yield NetworksWanted(
                self._envelope(str(self._partition)),
                self._partition.number,
                first,
                to_offset,
                keys,
                [object_id(key).name for key in keys],
                [texts[text] for text, _ in batch],
                [*texts],
            )
            first = to_offset

    # --- observations of chains and interfaces ------------------------------------------------------------------------

    async def _report(self) -> bool:
        """State the observations that are out of date. Returns whether any was."""
        found = self._outdated()
        if found and (turn := self._ranks.rank(str(self._partition), API)):
            await asyncio.sleep(turn * TURN_S)
            found = self._outdated()
        if not found:
            return False
        records = [*self._observed(found)]
        await self._append_all(self._partition, records)
        self._outdated()
        return True

    def _outdated(self) -> dict[str, str]:
        """The observations that differ from the log; the others are settled."""
        found = {}
        for key in [*self._unreported]:
            text, seen = self._observation(key), self._state.observed.rows.get(key)
            if text == (seen.observation if seen is not None else ""):
                del self._unreported[key]
            else:
                found[key] = text
        return found

    def _observation(self, key: str) -> str:
        documents = self._documents.get(object_id(key).source)
        fault = documents.networks.faults.get(key) if documents is not None else None
        return fault_observation(fault) if fault is not None else self._progress.observation(key)

    def _observed(self, texts: dict[str, str]) -> Iterator[Event]:
        groups: dict[tuple[str, str], list[str]] = {}
        for key in texts:
            at = object_id(key)
            groups.setdefault((at.source, at.kind), []).append(key)
        for (source, kind), keys in groups.items():
            for batch in bounded_batches(
                keys, lambda key: len(texts[key]) + len(key), items_max=MAX_ITEMS, bytes_max=MAX_COMMAND_BYTES // 2
            ):
                ids = [object_id(key) for key in batch]
                yield ResourcesObserved(
                    self._envelope(source),
                    source,
                    [kind],
                    [at.namespace for at in ids],
                    [at.name for at in ids],
                    [],
                    [texts[key] for key in batch],
                )

    async def _append_all(self, partition: Partition, records: Iterable[Event]) -> None:
        """Append records in order, and wait until they are folded."""
        if self._replica.folded(partition).halted:
            return
        if partition.topic == ZONES and self._replica.folded(partition).version < ZonesFold2.version:
            return  # the handover upgrades a partition before it hands a DPU over
        for event in records:
            before = self._replica.position(partition)
            if not await self._events.append(partition, event.envelope.subject, event):
                return

            def is_folded(position: int = before) -> bool:
                return self._replica.position(partition) > position

            await self._replica.fold_waits.wait_for(is_folded, partition, timeout_s=LANDING_S)


def _sizes() -> Callable[[tuple[str, str]], int]:
    """The size of each DPU of a record: that of a document counts where the document first occurs."""
    last = ""

    def size(item: tuple[str, str]) -> int:
        nonlocal last
        text, key = item
        own = 2 * len(key) + (len(text.encode()) if text != last else 0)
        last = text
        return own

    return size
