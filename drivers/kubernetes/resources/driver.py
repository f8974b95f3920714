"""Makes a source cluster and its DPU clusters hold what follows from the objects of the log.

The driver follows the fold, what is derived from it, and the objects of the clusters. It checks an object when one of
them changes: what it shall be is computed again, and the object is marked for the writer of its cluster if it differs.
The status of an object also depends on other objects, so all objects with a status are checked in passes while
anything changes. A pass is short or takes at most a tenth of the time. Without changes, nothing is computed and no
request is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import NamedTuple, Protocol

from drivers.kubernetes.request_budget import RequestBudget
from drivers.kubernetes.resources.cluster import ClusterWriter, OpenWatch, Shared
from drivers.kubernetes.resources.contents import SecretContents
from drivers.resource_worlds import ResourceWorlds
from eventstore.log import Partition
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.catch_up import CatchUp
from eventstore.replicas.replica import Replica
from projections.kubernetes.object_events import Report, ignore
from projections.kubernetes.resources.api_kinds import IN_DPU_CLUSTER, IN_SOURCE, STATED
from projections.kubernetes.resources.goals import DISCOVERED, Goals, LiveObjects, key_of, wanted_object
from projections.kubernetes.resources.manifests import is_own
from projections.resources import kinds
from projections.resources.change_journal import JournalReader
from projections.resources.conditions.world import World
from projections.resources.derivation import Derivation
from projections.resources.live_derivation import LiveDerivation
from projections.resources.state import ResourcesState, object_id
from projections.resources.wanted import SecretSource
from schemas.kubernetes.api import KubernetesApi

LINGER_S = 0.02
PASS_S = 1.0
"""Minimum pause after a pass over the objects with a status."""
CHECK_S = 0.5
"""Pause between two comparisons of the fold with the objects of the source cluster."""
UNSTATED_S = 300.0
"""Time after which objects are deleted although the fold does not know every object of the source cluster: it may have
refused one."""
SLICE = 20
"""Objects checked before other tasks get the event loop."""

_PER_HOST = frozenset((kinds.DPU, kinds.DPU_NODE, kinds.DPU_DEVICE))
"""Kinds with an object for each host. Their statuses depend on few other objects, and are checked with these."""
_HOST_FIELDS = (("dpuNodeName", kinds.DPU_NODE), ("dpuDeviceName", kinds.DPU_DEVICE))


class Connections(Protocol):
    """The API servers of a source cluster and of its DPU clusters."""

    def sources(self) -> Iterable[str]: ...

    def api(self, source: str) -> KubernetesApi | None: ...

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function after each change. Returns the function that ends this."""
        ...


class _Running(NamedTuple):
    api: KubernetesApi
    task: asyncio.Task[None]


class ResourceDriver:
    """Writes the objects of one source cluster and of its DPU clusters, while `run` runs."""

    def __init__(
        self,
        replica: Replica,
        ranks: Ranks,
        partition: Partition,
        source: str,
        *,
        connections: Connections,
        open_watch: OpenWatch,
        now_ms: Callable[[], int],
        rng: Random,
        report: Report = ignore,
        requests_per_second: float = 50.0,
    ) -> None:
        self.live = LiveObjects()
        self.live.on_change = self._on_live
        self.clusters: dict[str, ClusterWriter] = {}
        self.passes = 0
        self._goals = Goals(source, self.live, self._world)
        self._goals.may_delete = lambda: self._knows_all
        self._shared = Shared(
            goals=self._goals,
            live=self.live,
            ranks=ranks,
            catch_up=self._catch_up,
            open_watch=open_watch,
            on_listed=self._on_listed,
            report=report,
            now_ms=now_ms,
            rng=rng,
        )
        self._contents = SecretContents(connections, self._mark, rng, source_of=self._secret_source)
        self._goals.content = self._contents.content
        self._replica = replica
        self._partition = partition
        self._source = source
        self._connections = connections
        self._per_s = requests_per_second
        self._worlds = ResourceWorlds(replica)
        self._fold_all = CatchUp(replica, partition)
        self._goals.is_consistent = lambda: self._worlds.live(partition).is_consistent
        self._stated, self._wanted, self._rolled_out = JournalReader(), JournalReader(), JournalReader()
        self._knows_all = False
        self._dirty: dict[str, None] = {}
        self._work = asyncio.Event()
        self._pass = asyncio.Event()
        self._is_pass_whole = True

    async def run(self) -> None:
        """Follow the fold and the clusters until cancelled."""
        await self._replica.ready()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_folds())
            tasks.create_task(self._follow_marks())
            tasks.create_task(self._follow_passes())
            tasks.create_task(self._learn_all())
            tasks.create_task(self._contents.run())
            await self._follow_connections(tasks)

    # -- what changed

    async def _follow_folds(self) -> None:
        with self._replica.watch(self._partition.topic) as watch:
            while True:
                live = await self._worlds.derived(self._partition)
                self._take_changes(live)
                await watch.changed()
                await asyncio.sleep(LINGER_S)

    def _take_changes(self, live: LiveDerivation) -> None:
        state = self._state
        stated = self._stated.read(state.journal)
        wanted = self._wanted.read(live.changed)
        sets = self._rolled_out.read(state.rollout_index.journal)
        if stated is None or wanted is None or sets is None:
            for source in self.clusters:
                self._on_listed(source)
            return
        changed = dict.fromkeys((*stated, *wanted))
        for key in changed:
            self._mark(key)
            for host in self._hosts_of(key):
                self._mark(host)
        if sets:  # a wave that ends is a change of the status of the DPUSet and its owner alone
            self._begin_pass(is_whole=False)
        if changed:
            self._begin_pass(is_whole=any(object_id(key).kind not in _PER_HOST for key in changed))

    def _hosts_of(self, key: str) -> Iterator[str]:
        """The keys of the DPUNode and the DPUDevice of a DPU."""
        at = object_id(key)
        wanted = self._derivation.dpus.winners.get(key) if at.kind == kinds.DPU else None
        for field, kind in _HOST_FIELDS if wanted is not None else ():
            if name := (wanted.spec if wanted else {}).get(field):
                yield at._replace(kind=kind, name=name).key

    def _on_live(self, key: str, owners: Iterable[str]) -> None:
        self._mark(key)
        for owner in owners:
            self._mark_owner(owner)
            if object_id(owner).kind == kinds.DPU_DEPLOYMENT and self.live.get(key) is None:
                for sibling in self.live.dependents.get(owner, ()):
                    self._mark(sibling)  # children of a deployment leave one kind after the other
        for other in self._goals.waiting(key):
            self._mark(other)
        if self.live.get(key) is None:
            for other in self._goals.after(key):
                self._mark(other)
        if object_id(key).source == self._source and not self._is_known_owner(key):
            for child in self._wanted_by(key):
                self._mark(child)

    def _mark_owner(self, key: str) -> None:
        """Check an owner of an object that has changed. One that stays is checked in the next pass: it may be the owner
        of all DPUs of a fleet, and its status then is as long a computation, for each of them."""
        live, at = self.live.get(key), object_id(key)
        is_in_passes = at.source == self._source and at.kind in STATED and at.kind not in _PER_HOST
        if is_in_passes and live is not None and live.metadata.deletion_timestamp is None:
            self._begin_pass(is_whole=False)
        else:
            self._mark(key)

    def _is_known_owner(self, key: str) -> bool:
        """Whether the objects that an object wants exist already, so that a change of it does not concern them."""
        live = self.live.get(key)
        return live is not None and live.metadata.deletion_timestamp is None and key in self.live.dependents

    def _wanted_by(self, key: str) -> Iterator[str]:
        found = self._derivation
        yield from found.children.of_owner(key)
        for device in found.selection.members(key):
            yield from found.dpus.of_owner(device)
        yield from found.in_clusters.claims.of_owner(key)

    def _on_listed(self, source: str) -> None:
        """Check every object of a cluster: those that are wanted, and those that exist."""
        found = self._derivation
        for claims in (found.children, found.dpus, found.in_clusters.claims):
            for key in claims.winners:
                if object_id(key).source == source:
                    self._mark(key)
        if source == self._source:
            for kind in DISCOVERED:
                for key in self._state.of_kind(source, kind):
                    if not self._state.objects.rows[key].is_external:
                        self._mark(key)
        cluster = self.clusters.get(source)
        for target in cluster.targets.values() if cluster else ():
            for name in target.cache.objects:
                self._mark(target.key(name))

    # -- checks

    def _mark(self, key: str) -> None:
        self._dirty[key] = None
        self._work.set()

    def _begin_pass(self, *, is_whole: bool) -> None:
        self._is_pass_whole = self._is_pass_whole or is_whole
        self._pass.set()

    async def _follow_marks(self) -> None:
        while True:
            await self._work.wait()
            await asyncio.sleep(LINGER_S)
            self._work.clear()
            dirty, self._dirty = self._dirty, {}
            await self._check_all(dirty)

    async def _follow_passes(self) -> None:
        now_s = asyncio.get_running_loop().time
        while True:
            await self._pass.wait()
            self._pass.clear()
            is_whole, self._is_pass_whole = self._is_pass_whole, False
            began_s = now_s()
            checked = [kind for kind in STATED if is_whole or kind not in _PER_HOST]
            await self._check_all([key for kind in checked for key in self.live.keys(self._source, kind)])
            self.passes += 1
            await asyncio.sleep(max(PASS_S, 9 * (now_s() - began_s)))

    async def _check_all(self, keys: Iterable[str]) -> None:
        for place, key in enumerate(keys):
            if place and place % SLICE == 0:
                await asyncio.sleep(0)
            await self._worlds.derived(self._partition)  # nothing is checked while what is wanted is inconsistent
            self._check(key)

    def _check(self, key: str) -> None:
        """Mark an object for the writer of its cluster, if it needs a write."""
        at = object_id(key)
        cluster = self.clusters.get(at.source)
        if cluster is None or not cluster.is_ready:
            return  # everything is checked when the cluster is ready
        target = cluster.targets.get(at.kind)
        if target is None:
            if wanted_object(key, self._world()) is not None:
                cluster.lacks(at.kind)
            return
        name = f"{at.namespace}/{at.name}" if at.namespace else at.name
        if target.cache.is_complete and target.is_due(name):
            cluster.writer.mark(target, name)

    # -- the clusters

    async def _follow_connections(self, tasks: asyncio.TaskGroup) -> None:
        changed = asyncio.Event()
        unsubscribe = self._connections.subscribe(changed.set)
        running: dict[str, _Running] = {}
        try:
            while True:
                changed.clear()
                for source in sorted({*self._connections.sources(), *running}):
                    api, known = self._connections.api(source), running.get(source)
                    if known is not None and known.api is api:
                        continue
                    if known is not None:
                        known.task.cancel()
                        await asyncio.wait([known.task])
                        del running[source], self.clusters[source]
                    if api is not None:
                        cluster = self.clusters[source] = self._cluster(source, api)
                        running[source] = _Running(api, tasks.create_task(cluster.run()))
                await changed.wait()
                self._contents.refresh()
        finally:
            unsubscribe()

    def _cluster(self, source: str, api: KubernetesApi) -> ClusterWriter:
        keys = (*STATED, *IN_SOURCE) if source == self._source else IN_DPU_CLUSTER
        return ClusterWriter(source, api, keys, RequestBudget(self._per_s), self._shared)

    # -- the folds

    async def _catch_up(self) -> bool:
        """Fold and derive what the log has now. Returns False if that takes too long."""
        if not await self._fold_all():
            return False
        await self._worlds.derived(self._partition)
        return True

    @property
    def _state(self) -> ResourcesState:
        found: ResourcesState = self._replica.folded(self._partition).state
        return found

    @property
    def _derivation(self) -> Derivation:
        return self._worlds.live(self._partition).derivation

    def _world(self) -> World:
        return World.of(self._state, self._derivation)

    def _secret_source(self, key: str) -> SecretSource | None:
        """The source of a wanted Secret."""
        wanted = wanted_object(key, self._world())
        return wanted.secret if wanted is not None else None

    async def _learn_all(self) -> None:
        """Wait until the fold knows what the source cluster has: only then, an object that nothing wants is known to
        be unwanted. A new log knows nothing at first."""
        now_s = asyncio.get_running_loop().time
        end_s = now_s() + UNSTATED_S
        while not self._is_stated() and now_s() < end_s:
            await asyncio.sleep(CHECK_S)
            if not self._state.objects.rows:
                end_s = now_s() + UNSTATED_S
        self._knows_all = True
        for source in self.clusters:
            self._on_listed(source)

    def _is_stated(self) -> bool:
        cluster = self.clusters.get(self._source)
        if cluster is None or not cluster.is_ready or not self._goals.is_consistent():
            return False
        rows = self._state.objects.rows
        for kind in STATED:
            cache = self.live.caches.get((self._source, kind))
            if cache is not None and not cache.is_complete:
                return False
            for name, live in cache.objects.items() if cache is not None else ():
                row = rows.get(key_of(self._source, kind, name))
                if not is_own(live.metadata) and (row is None or row.uid != live.metadata.uid):
                    return False
        return True
