"""DPUDiscovery: searches ranges of addresses for BMCs, and states a DPUDevice for each new DPU.

A search is due when its object is new or changed, and then after each interval. Replicas take turns by rank. The one
whose turn it is observes the object as being searched for, so that the others wait for its result, at most until the
longest possible end of the search. Two searches at once find the same DPUs: the fold takes the first statement of an
object and refuses the second, so an object that a user has changed meanwhile stays as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec

from drivers.discovery.prober import Prober
from drivers.discovery.scan import PROBE_S, Scan
from drivers.internal_events import InternalEvents
from eventstore.as_of import format_time
from eventstore.ids import internal_envelope
from eventstore.log import RESOURCES, Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import PROVISIONER
from projections.fold_states import FoldStates
from projections.resources.discovery import (
    SCANNED,
    SCANNING,
    DiscoveredObject,
    Search,
    due_ms,
    endpoints_of,
    faults_text,
    objects_of,
    search_of,
)
from projections.resources.kinds import DPF_OPERATOR_CONFIG, DPU_DEVICE, DPU_DISCOVERY
from projections.resources.observation import Observation
from projections.resources.specs import Spec, read
from projections.resources.state import ObjectId, Resource, ResourcesState, object_id
from schemas.events import ResourcesApplied, ResourcesObserved

logger = logging.getLogger(__name__)

GRACE_S = 10.0
"""Time beyond the longest possible duration of a search after which another replica searches."""
LANDING_S = 2.0
"""Longest wait for the fold to show an append."""
RETRY_S = 2.0
"""Wait after an append that may have failed, with jitter."""
WAIT_S_MAX = 3_600.0
"""Longest wait for the next search, so that a host clock that jumps delays none for longer."""
OBJECTS_PER_RECORD = 500
DEVICES_PER_SLICE = 500
"""Number of DPUDevices whose addresses are read at once: about a millisecond."""

_NO_PROBER = "no interface of this plane can be searched: a search needs simulated BMCs (setting simulate)"
_KEPT = frozenset({"ready", "message", "lastScanTime", "scannedMs", "foundDPUs"})
"""The fields of the last result that hold until the next one."""


class _Redfish(Spec, frozen=True):
    skip_nodes: bool = msgspec.field(default=True, name="skipDPUNodeDiscovery")


class _Interface(Spec, frozen=True):
    install_via_redfish: _Redfish = _Redfish()


class _Controller(Spec, frozen=True):
    install_interface: _Interface = _Interface()


class _OperatorConfigSpec(Spec, frozen=True):
    provisioning_controller: _Controller = _Controller()


class _Due(NamedTuple):
    """A search that is due at a time."""

    at_ms: int
    key: str
    search: Search
    row: Resource


class Discoverer:
    """Runs the searches of all DPUDiscoveries until `run` is cancelled, one at a time in each partition.

    Without a prober it observes that no installed interface can be searched for.
    """

    def __init__(
        self, replica: Replica, ranks: Ranks, prober: Prober | None, *, now_ms: Callable[[], int], rng: Random
    ) -> None:
        self.searches = 0
        self.found = 0
        self._replica = replica
        self._prober = prober
        self._states = FoldStates(replica)
        self._now_ms = now_ms
        self._rng = rng
        self._actor = f"discovery/{replica.name}"
        self.internal_events = InternalEvents(replica, ranks, PROVISIONER)

    async def run(self) -> None:
        await self._replica.ready()
        async with asyncio.TaskGroup() as tasks:
            for partition in self._replica.partitions(RESOURCES):
                tasks.create_task(self._serve(partition))

    async def _serve(self, partition: Partition) -> None:
        while True:
            due = self._next(partition)
            wait_s = None if due is None else min(WAIT_S_MAX, (due.at_ms - self._now_ms()) / 1_000)
            if self._replica.folded(partition).halted:
                wait_s = None
            if due is None or wait_s is None or wait_s > 0:
                await self._sleep(partition, wait_s)
            else:
                await self._take(partition, due)

    async def _sleep(self, partition: Partition, wait_s: float | None) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._replica.fold_waits.changed(partition)
        except TimeoutError:
            return

    def _next(self, partition: Partition) -> _Due | None:
        """The next search of a partition. An object with a fault has none: a condition says why."""
        state = self._states.resources_at(partition)
        found = []
        for collection, keys in state.by_kind.items():
            if collection.partition("/")[2] != DPU_DISCOVERY:
                continue
            for key in keys:
                row = state.objects.rows[key]
                search = search_of(row)
                if not row.deleted_ms and isinstance(search, Search):
                    found.append(_Due(due_ms(search, row.generation, _seen(state, key, row)), key, search, row))
        return min(found, key=lambda due: (due.at_ms, due.key), default=None)

    async def _take(self, partition: Partition, due: _Due) -> None:
        def is_over() -> bool:
            following = self._next(partition)
            return following is None or following[:2] != due[:2]

        if await self.internal_events.wait_for_turn(due.key, partition, is_over) or is_over():
            return
        longest_s = PROBE_S * (due.search.address_count // due.search.workers + 1) + GRACE_S
        began = {"phase": SCANNING, "endMs": self._now_ms() + int(longest_s * 1_000)}
        prober = self._prober
        if prober is None:
            result = self._result(due, 0) | {"ready": False, "message": _NO_PROBER}
            await self._observe(partition, due, result)
            return
        earlier = _seen(self._states.resources_at(partition), due.key, due.row)
        kept = {name: value for name, value in (earlier.fields if earlier else {}).items() if name in _KEPT}
        began = {"ready": False, "phase": SCANNING, "message": "its first search has not ended yet"}
        ends = {"generation": due.row.generation, "endMs": self._now_ms() + int(longest_s * 1_000)}
        if not await self._observe(partition, due, began | kept | ends | {"phase": SCANNING}):
            return
        scan = Scan(due.search, await self._known(partition, object_id(due.key).source))
        await scan.run(prober)
        await self._finish(partition, due, scan)

    async def _finish(self, partition: Partition, due: _Due, scan: Scan) -> None:
        at, faults = object_id(due.key), scan.faults
        with_node = not _skips_nodes(self._states.resources_at(partition), at.source)
        objects: list[DiscoveredObject] = []
        for found in sorted(scan.found, key=lambda each: each.probed.serial):
            made = objects_of(found.probed, found.address, due.search.port, with_node=with_node)
            if isinstance(made, str):
                faults.append(f"{found.address}: {made}")
            else:
                objects += made
        for start in range(0, len(objects), OBJECTS_PER_RECORD):
            part = objects[start : start + OBJECTS_PER_RECORD]
            if not await self.internal_events.append(partition, at.source, self._applied(at, part)):
                return  # the search is due again at its longest possible end
        self.searches += 1
        self.found += len(scan.found)
        fields = {"object": due.key, "found": len(scan.found), "known": scan.skipped, "tried": scan.tried}
        logger.info("addresses searched for DPUs", extra=fields)
        result = self._result(due, len(scan.found) + scan.skipped)
        await self._observe(partition, due, result | {"ready": not faults, "message": faults_text(faults)})

    async def _known(self, partition: Partition, source: str) -> frozenset[str]:
        """Where the BMCs of the DPUDevices of a source are, read in slices."""
        state = self._states.resources_at(partition)
        found: set[str] = set()
        for number, key in enumerate([*state.by_kind.get(f"{source}/{DPU_DEVICE}", ())], 1):
            row = self._states.resources_at(partition).objects.rows.get(key)
            if row is not None:
                found.update(endpoints_of(row))
            if number % DEVICES_PER_SLICE == 0:
                await asyncio.sleep(0)
        return frozenset(found)

    async def _observe(self, partition: Partition, due: _Due, fields: Mapping[str, Any]) -> bool:
        """Observe the object of a search. Returns whether the fold shows the observation."""
        text = msgspec.json.encode(fields, order="sorted").decode()
        at = object_id(due.key)
        event = ResourcesObserved(
            internal_envelope(at.source, self._actor, self._now_ms()),
            source=at.source,
            kinds=[at.kind],
            namespaces=[at.namespace],
            names=[at.name],
            uids=[due.row.uid],
            observations=[text],
        )

        def is_shown() -> bool:
            seen = self._states.resources_at(partition).seen.get(due.key)
            return seen is not None and seen.text == text

        if await self.internal_events.append(partition, at.source, event) and await self._replica.fold_waits.wait_for(
            is_shown, partition, timeout_s=LANDING_S
        ):
            return True
        await asyncio.sleep(RETRY_S * self._rng.uniform(0.5, 1.5))
        return False

    def _result(self, due: _Due, found: int) -> dict[str, Any]:
        now_ms = self._now_ms()
        last_scan = format_time(now_ms // 1_000 * 1_000).replace(".000Z", "Z")  # times of Kubernetes are in seconds
        times = {"scannedMs": now_ms, "lastScanTime": last_scan}
        return {"phase": SCANNED, "generation": due.row.generation, "foundDPUs": found} | times

    def _applied(self, at: ObjectId, objects: Sequence[DiscoveredObject]) -> ResourcesApplied:
        count = len(objects)
        return ResourcesApplied(
            internal_envelope(at.source, self._actor, self._now_ms()),
            source=at.source,
            kinds=[each.kind for each in objects],
            namespaces=[at.namespace] * count,
            names=[each.name for each in objects],
            uids=[],
            generations=[],
            created_ms=[],
            deleted_ms=[],
            labels=[each.labels for each in objects],
            annotations=[each.annotations for each in objects],
            specs=[msgspec.json.encode(each.spec, order="sorted").decode() for each in objects],
            expected_generations=[0] * count,
        )


def _seen(state: ResourcesState, key: str, row: Resource) -> Observation | None:
    """The last result of a search, unless it is of an earlier object with this name, which was deleted."""
    observed = state.observed.rows.get(key)
    return state.seen.get(key) if observed is not None and observed.uid == row.uid else None


def _skips_nodes(state: ResourcesState, source: str) -> bool:
    """Whether the configuration of a source says that found DPUs get no DPUNodes, as by default."""
    for key in state.of_kind(source, DPF_OPERATOR_CONFIG):
        spec = read(_OperatorConfigSpec, state.objects.rows[key])
        if not isinstance(spec, str):
            return spec.provisioning_controller.install_interface.install_via_redfish.skip_nodes
    return True
