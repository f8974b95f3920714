"""The writer of ComputeDomainClique objects and of the status of ComputeDomains, from the cliques fold.

The writer keeps objects equal to the fold. Each change of the fold, of an object or of a pod causes a comparison, and
each difference causes one PUT of the whole object with its resource version. Changes within `LINGER_S`, and changes
within `INTERVAL_S` of the object's last write, share a write: a burst of 18 claims causes at most two writes. A deleted
object is created again from the fold, with the same indices. An object whose rows were computed from a later position
of the log is not written until this replica has folded that position.

In mode `beside`, upstream's controller writes the status of ComputeDomains from the same rows, so this writer does not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from random import Random
from typing import Any

import msgspec

from drivers.internal_events import TURN_S
from drivers.kubernetes.object_writes import ObjectWrites, RequestBudget, WriteResult
from eventstore.log import CLIQUES
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.replica import Replica
from projections.cliques.state import CliquesState
from projections.fold_states import FoldStates
from projections.kubernetes.clique_objects import (
    CliqueId,
    CliqueRows,
    CliqueWrite,
    LogPlace,
    Mode,
    clique_rows,
    clique_write,
    domain_of,
    domain_status,
    domain_status_body,
    owners_of,
    place_of,
)
from projections.kubernetes.daemon_pods import DaemonPods
from projections.kubernetes.object_cache import ObjectCache
from schemas.kubernetes.api import NOT_FOUND, ApiError, KubernetesApi
from schemas.kubernetes.compute_domains import CliqueObject, DomainObject
from schemas.resources.compute_domain import CLIQUE_LABEL, COMPUTE_DOMAIN, COMPUTE_DOMAIN_CLIQUE

logger = logging.getLogger(__name__)

LINGER_S = 0.05
INTERVAL_S = 0.25
REFUSED_RETRY_S = 60.0
"""Time after which a refused write is attempted again."""
ROLE = "kubernetes"
_clique = msgspec.json.Decoder(CliqueObject)
_domain = msgspec.json.Decoder(DomainObject)
_DOMAIN_STATUS = ""
"""A CliqueId with this clique stands for the status of the domain, not for the object of a clique."""


class CliqueWriter:
    """Writes the objects of one source cluster while `run` runs. List-watches fill the caches.

    `namespace` is the namespace of the DRA driver: clique objects and daemon pods are in it. `mode` may change at any
    time.
    """

    def __init__(
        self,
        replica: Replica,
        ranks: Ranks,
        api: KubernetesApi,
        *,
        namespace: str,
        pods: DaemonPods,
        cliques: ObjectCache[CliqueObject],
        domains: ObjectCache[DomainObject],
        mode: Mode,
        rng: Random,
        budget: RequestBudget,
    ) -> None:
        self.mode: Mode = mode
        self.writes: Counter[str] = Counter()
        """Number of writes, by the plural of the kind."""
        self.faults: dict[str, dict[str, str]] = {}
        """Faults of rows, by the name of the object and by node."""
        self.unclaimed: dict[str, frozenset[str]] = {}
        """Nodes whose rows have no claim in the log, by the name of the object."""
        self.refused: dict[str, str] = {}
        """Reasons of refused writes, by the name of the object."""
        self.requests = ObjectWrites(budget, rng)
        self._replica = replica
        self._states = FoldStates(replica)
        self._ranks = ranks
        self._api = api
        self._namespace = namespace
        self._pods = pods
        self._cliques = cliques
        self._domains = domains
        self._rng = rng
        self._dirty: dict[CliqueId, None] = {}
        self._running: set[CliqueId] = set()
        self._work = asyncio.Event()
        pods.subscribe(self._mark_domain, self._mark_all)
        cliques.subscribe(self._mark_clique, self._mark_all)
        domains.subscribe(lambda item: self._mark_domain(item.metadata.uid), self._mark_all)

    def set_mode(self, mode: Mode) -> None:
        """Change the mode, and compare every object."""
        self.mode = mode
        self._mark_all()

    # -- what has to be compared

    def _mark(self, of: CliqueId) -> None:
        self._dirty[of] = None
        self._work.set()

    def _mark_clique(self, item: CliqueObject) -> None:
        domain = domain_of(item)
        clique = (item.metadata.labels or {}).get(CLIQUE_LABEL) or item.metadata.name.removeprefix(f"{domain}.")
        self._mark(CliqueId(domain, clique))

    def _mark_domain(self, domain: str) -> None:
        for key in self._state(domain).domains.get(domain, ()):
            self._mark(CliqueId(domain, key.partition("/")[2]))
        self._mark(CliqueId(domain, _DOMAIN_STATUS))

    def _mark_all(self) -> None:
        for item in self._cliques.objects.values():
            self._mark_clique(item)
        for domain in {*self._domains.objects, *self._pods.by_domain}:
            self._mark_domain(domain)

    async def _follow_fold(self) -> None:
        with self._replica.watch(CLIQUES) as watch:
            while True:
                changed = await watch.changed()
                for domain in self._known_domains():
                    if self._replica.partition_for(CLIQUES, domain) in changed:
                        self._mark_domain(domain)

    def _known_domains(self) -> set[str]:
        """The domains of this cluster."""
        found = {*self._domains.objects, *self._pods.by_domain}
        return found | {domain_of(item) for item in self._cliques.objects.values()}

    # -- the writes

    async def run(self) -> None:
        """Write differences until cancelled."""
        await self._replica.ready()
        self._mark_all()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_fold())
            while True:
                await self._work.wait()
                self._work.clear()
                if not (self._pods.lists and self._cliques.is_complete and self._domains.is_complete):
                    continue  # each list marks everything
                for of in [of for of in self._dirty if of not in self._running]:
                    del self._dirty[of]
                    self._running.add(of)
                    tasks.create_task(self._serve(of))

    async def _serve(self, of: CliqueId) -> None:
        try:
            await asyncio.sleep(LINGER_S)
            if not self._is_due(of):
                return
            await asyncio.sleep(self._ranks.rank(of.object_name, ROLE) * TURN_S)
            result, message = await self.requests.write(lambda: self._attempt(of), lambda: self._read(of))
            await asyncio.sleep(self._after(of, result, message))
        finally:
            self._running.discard(of)
            self._work.set()

    def _after(self, of: CliqueId, result: WriteResult, message: str) -> float:
        """Record the result of a write. Returns the seconds until the next write of this object."""
        name = of.object_name
        if result is WriteResult.DONE:
            self.refused.pop(name, None)
            return INTERVAL_S
        about = {"object": name, "namespace": self._namespace}
        if result is WriteResult.POSTPONED:
            logger.warning("object not written, retrying: %s", message, extra=about)
            self._mark(of)
            return INTERVAL_S * self._rng.uniform(2.0, 6.0)
        if self.refused.get(name) != message:
            logger.error("object refused by the API server: %s", message, extra=about)
        self.refused[name] = message
        self._mark(of)
        return REFUSED_RETRY_S

    def _is_due(self, of: CliqueId) -> bool:
        """Whether the object needs a write now."""
        if of.clique == _DOMAIN_STATUS:
            return self._wanted_status(of.domain) is not None
        return self._plan(of) is not None

    async def _attempt(self, of: CliqueId) -> bool:
        if of.clique == _DOMAIN_STATUS:
            return await self._write_status(of.domain)
        return await self._write_clique(of)

    def _plan(self, of: CliqueId) -> CliqueWrite | None:
        """The write that an object needs now. Records the faults of the object's rows."""
        state, shown = self._state(of.domain), self._cliques.objects.get(of.object_name)
        partition = self._replica.partition_for(CLIQUES, of.domain)
        place = LogPlace(self._replica.generation, self._replica.position(partition))
        is_gone = self._is_gone(of.domain)
        if place_of(shown) > place or (shown is None and (is_gone or not self._is_known(of.domain))):
            return None
        found = clique_rows(state, of, shown, self._pods, self.mode)
        self._note(of, found)
        owners = owners_of(state, of, shown, self._pods, self._namespace)
        is_gone = is_gone and self.mode == "assign"
        return clique_write(
            of, found, shown, owners=owners, namespace=self._namespace, place=place, is_domain_gone=is_gone
        )

    def _is_known(self, domain: str) -> bool:
        """Whether the domain is one of this cluster."""
        return domain in self._domains.objects or domain in self._pods.by_domain

    def _is_gone(self, domain: str) -> bool:
        """Whether the ComputeDomain was deleted. An empty list of domains proves nothing."""
        found = self._domains.objects.get(domain)
        if found is not None:
            return found.metadata.deletion_timestamp is not None
        return self._domains.is_complete and bool(self._domains.objects)

    def _note(self, of: CliqueId, found: CliqueRows) -> None:
        name = of.object_name
        known = self.faults.pop(name, {})
        self.unclaimed.pop(name, None)
        if found.faults:
            self.faults[name] = dict(found.faults)
        if found.unclaimed:
            self.unclaimed[name] = found.unclaimed
        for node, fault in found.faults.items():
            if known.get(node) != fault:
                logger.warning("row of another writer replaced: %s", fault, extra={"object": name, "node": node})

    def _wanted_status(self, domain: str) -> dict[str, Any] | None:
        """The body of the status that a domain needs now."""
        found = self._domains.objects.get(domain)
        if found is None or self.mode == "beside" or found.metadata.deletion_timestamp is not None:
            return None
        return domain_status_body(found, domain_status(self._state(domain), found, self._pods))

    def _state(self, domain: str) -> CliquesState:
        return self._states.cliques_at(self._replica.partition_for(CLIQUES, domain))

    async def _write_clique(self, of: CliqueId) -> bool:
        plan = self._plan(of)
        if plan is None:
            return False
        path = COMPUTE_DOMAIN_CLIQUE.path(self._namespace, of.object_name)
        if plan.body is None:
            shown = self._cliques.objects[of.object_name]
            await self._api.delete(path, uid=shown.metadata.uid)
            self._cliques.forget(of.object_name)
        elif plan.is_create:
            created = await self._api.create(COMPUTE_DOMAIN_CLIQUE.path(self._namespace), plan.body)
            self._cliques.put(_clique.decode(created))
        else:
            self._cliques.put(_clique.decode(await self._api.replace(path, plan.body)))
        self.writes[COMPUTE_DOMAIN_CLIQUE.plural] += 1
        return True

    async def _write_status(self, domain: str) -> bool:
        body = self._wanted_status(domain)
        if body is None:
            return False
        about = self._domains.objects[domain].metadata
        path = COMPUTE_DOMAIN.path(about.namespace, about.name, "status")
        self._domains.put(_domain.decode(await self._api.replace(path, body)))
        self.writes[COMPUTE_DOMAIN.plural] += 1
        return True

    async def _read(self, of: CliqueId) -> None:
        """Read an object again. Raises ApiError."""
        try:
            if of.clique == _DOMAIN_STATUS:
                found = self._domains.objects.get(of.domain)
                if found is not None:
                    path = COMPUTE_DOMAIN.path(found.metadata.namespace, found.metadata.name)
                    self._domains.put(_domain.decode(await self._api.get(path)))
                return
            path = COMPUTE_DOMAIN_CLIQUE.path(self._namespace, of.object_name)
            self._cliques.put(_clique.decode(await self._api.get(path)))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            if of.clique == _DOMAIN_STATUS:
                self._domains.forget(of.domain)
            else:
                self._cliques.forget(of.object_name)
