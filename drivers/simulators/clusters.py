"""Simulated clusters: observations of wanted objects in place of those by Kamaji, Argo CD and DPU clusters.

A plane without Kubernetes has no cluster in which a wanted object could be applied. This actor observes each one as
applied, and as ready a short time later, so that the steps which wait for it continue. After a change, an object is not
ready at first. The observations in the log name the content that they are about, so a restart repeats none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

import msgspec

from drivers.internal_events import InternalEvents
from drivers.resource_worlds import ResourceWorlds
from eventstore.bounded_batches import bounded_batches
from eventstore.ids import internal_envelope
from eventstore.log import RESOURCES
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from eventstore.replicas.role_names import PROVISIONER
from projections.fold_states import FoldStates
from projections.resources import kinds
from projections.resources.clusters import in_cluster
from projections.resources.derivation import Derivation
from projections.resources.services.config_ports import NAMESPACE_FIELD, PORTS, SERVICE_FIELD
from projections.resources.state import ObjectId, ResourcesState, object_id
from projections.resources.wanted import Wanted, digest
from schemas.events import ResourcesObserved
from schemas.resources.dpf.names import CLUSTER_NAME, CLUSTER_NAMESPACE, SERVICE_NAME, SERVICE_NAMESPACE

logger = logging.getLogger(__name__)

JITTER = (0.7, 1.3)
WINDOW_S = 0.05
"""Shortest time between two records of observations."""
LANDING_S = 2.0
ITEMS_MAX, BYTES_MAX = 500, 100_000
OBSERVER = "simulated-clusters"
VERSION = "v1.31.4"
NODE_PORT = 31_443


class Reported(NamedTuple):
    """What is reported of objects of a kind: `before` they are ready and afterwards, `ready_s` after they were made."""

    ready_s: float
    before: Mapping[str, Any]
    after: Mapping[str, Any]


_APPLIED = Reported(0.2, {"message": "waits for its controller"}, {})
_REPORTED: Mapping[str, Reported] = {
    kinds.DPU_CLUSTER: Reported(0.3, {"phase": "Creating"}, {"phase": "Ready", "version": VERSION}),
    kinds.TENANT_CONTROL_PLANE: Reported(
        0.5, {"phase": "Provisioning"}, {"phase": "Ready", "version": VERSION, "endpoint": "198.18.0.1:6443"}
    ),
    kinds.SERVICE: Reported(0.1, {}, {"nodePort": NODE_PORT}),
    kinds.APPLICATION: Reported(
        1.0,
        {"phase": "Progressing", "health": "Progressing", "sync": "Synced", "message": "its pods are starting"},
        {"phase": "Healthy", "health": "Healthy", "sync": "Synced"},
    ),
    kinds.SERVICE_CHAIN_SET: _APPLIED,
    kinds.SERVICE_INTERFACE_SET: _APPLIED,
    kinds.CIDR_POOL: _APPLIED,
    kinds.IP_POOL: _APPLIED,
    kinds.NETWORK_ATTACHMENT: _APPLIED,
}


class SimulatedClusters:
    """Observes the wanted objects of one source, which has no Kubernetes, until `run` is cancelled."""

    def __init__(
        self, replica: Replica, ranks: Ranks, source: str, *, now_ms: Callable[[], int], rng: Random, pace: float = 1.0
    ) -> None:
        self._replica = replica
        self._partition = replica.partition_for(RESOURCES, source)
        self._states = FoldStates(replica)
        self._source = source
        self._now_ms = now_ms
        self._rng = rng
        self._pace = pace
        self._worlds = ResourceWorlds(replica)
        self._ready_s: dict[tuple[str, str], float] = {}
        """When objects will be ready, by key and digest of the content."""
        self._state: ResourcesState | None = None
        self._observed: dict[str, None] = {}
        """The objects that this actor, or an earlier one, has observed."""
        self.internal_events = InternalEvents(replica, ranks, PROVISIONER)

    async def run(self) -> None:
        await self._replica.ready()
        while True:
            world = await self._worlds.world(self._partition)
            due = self._due(world.state, world.derivation, asyncio.get_running_loop().time())
            if due and not self._replica.folded(self._partition).halted:
                await self._observe(due)
                await asyncio.sleep(WINDOW_S)
            else:
                await self._sleep()

    def _due(self, state: ResourcesState, derivation: Derivation, now_s: float) -> dict[str, str]:
        """The observations that must be stated now: by key, an empty one for an object that is gone."""
        found: dict[str, str] = {}
        reported: dict[str, None] = {}
        for key, (content, rule) in self._reported(state, derivation):
            reported[key] = None
            known = _content_of(state, key)
            if known is None or known["content"] != content or not known["ready"]:
                is_new = known is None or known["content"] != content
                ready_s = self._ready_s.setdefault(
                    (key, content), now_s + rule.ready_s * self._pace * self._rng.uniform(*JITTER)
                )
                if now_s >= ready_s:
                    found[key] = _text(content, rule.after, ready=True)
                    del self._ready_s[key, content]
                elif is_new:
                    found[key] = _text(content, rule.before, ready=False)
        if self._state is not state:  # the first time, or after the state was loaded again
            rows = state.observed.rows
            self._observed = {key: None for key, row in rows.items() if row.observer.startswith(OBSERVER)}
            self._state = state
        self._observed |= reported
        gone = [key for key in self._observed if key not in reported]
        for key in gone:
            if _content_of(state, key) is None:
                del self._observed[key]
            else:
                found[key] = ""
        return found

    def _reported(self, state: ResourcesState, derivation: Derivation) -> Iterator[tuple[str, tuple[str, Reported]]]:
        """The objects that somebody reports: the digest of the content of each, and what is reported of it."""
        for key, content in _wanted(state, derivation, self._source):
            yield key, (content, _REPORTED[object_id(key).kind])
        for application in derivation.in_clusters.claims.of_kind(self._source, kinds.APPLICATION):
            wanted = derivation.in_clusters.claims.winners[application]
            if (service := _chart_service(wanted)) is not None:
                yield service[0], (_digest(wanted), Reported(1.0, {}, service[1]))

    async def _sleep(self) -> None:
        """Wait for a change of the fold, or until an object becomes ready."""
        now_s = asyncio.get_running_loop().time()
        left_s = min(self._ready_s.values(), default=None)
        try:
            async with asyncio.timeout(None if left_s is None else max(0.0, left_s - now_s)):
                await self._replica.fold_waits.changed(self._partition)
            await asyncio.sleep(WINDOW_S)
        except TimeoutError:
            return

    async def _observe(self, due: Mapping[str, str]) -> None:
        """State observations, in batches, and wait until the fold shows them."""
        by_source: dict[str, list[str]] = {}
        for key in sorted(due):
            by_source.setdefault(object_id(key).source, []).append(key)
        for source, keys in by_source.items():
            for part in bounded_batches(
                keys, lambda key: len(key) + len(due[key]), items_max=ITEMS_MAX, bytes_max=BYTES_MAX
            ):
                await self._append(source, part, due)

    async def _append(self, source: str, keys: list[str], due: Mapping[str, str]) -> None:
        ids = [object_id(key) for key in keys]
        event = ResourcesObserved(
            internal_envelope(self._source, f"{OBSERVER}/{self._replica.name}", self._now_ms()),
            source=source,
            kinds=[at.kind for at in ids],
            namespaces=[at.namespace for at in ids],
            names=[at.name for at in ids],
            uids=[],
            observations=[due[key] for key in keys],
        )

        def is_shown() -> bool:
            seen = self._states.resources_at(self._partition).seen
            return all((seen[key].text if key in seen else "") == due[key] for key in keys)

        await self.internal_events.append(self._partition, self._source, event)
        await self._replica.fold_waits.wait_for(is_shown, self._partition, timeout_s=LANDING_S)


def _wanted(state: ResourcesState, derivation: Derivation, source: str) -> Iterator[tuple[str, str]]:
    """The objects of a source and of its DPU clusters that somebody reports, each with the digest of its content."""
    for key in state.of_kind(source, kinds.DPU_CLUSTER):
        row = state.objects.rows[key]
        if not row.is_external and state.serves(key):
            yield key, digest(row.spec)
    for key, wanted in derivation.in_clusters.claims.winners.items():
        at = wanted.at
        if at.kind in _REPORTED and (at.source == source or at.source.startswith(f"{source}.")):
            yield key, _digest(wanted)


def _chart_service(application: Wanted) -> tuple[str, Mapping[str, Any]] | None:
    """The Service that a chart makes in its DPU cluster for config ports: its key, and what is observed of it."""
    values = (application.spec["source"].get("helm") or {}).get("valuesObject") or {}
    names = sorted((values.get("exposedPorts") or {}).get("ports") or {})
    labels = application.labels
    if not names or CLUSTER_NAMESPACE not in labels:
        return None
    cluster = ObjectId(application.at.source, kinds.DPU_CLUSTER, labels[CLUSTER_NAMESPACE], labels[CLUSTER_NAME])
    name, namespace = labels[SERVICE_NAME], labels[SERVICE_NAMESPACE]
    ports = {each: NODE_PORT + 1 + number for number, each in enumerate(names)}
    observed = {SERVICE_FIELD: name, NAMESPACE_FIELD: namespace, PORTS: ports}
    return in_cluster(cluster.key, kinds.SERVICE, namespace, name).key, observed


def _digest(wanted: Wanted) -> str:
    return digest(wanted.spec, wanted.labels, wanted.annotations, wanted.fields)


def _content_of(state: ResourcesState, key: str) -> dict[str, Any] | None:
    """What this actor has observed of an object."""
    seen = state.seen.get(key)
    fields = seen.fields if seen is not None else {}
    return fields if "content" in fields else None


def _text(content: str, fields: Mapping[str, Any], *, ready: bool) -> str:
    return msgspec.json.encode({**fields, "content": content, "ready": ready}, order="sorted").decode()
