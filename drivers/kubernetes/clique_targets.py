"""The objects of cliques and the statuses of compute domains as targets of the writer, computed from the cliques fold.

Each difference between the fold and an object is one PUT of the whole object with its resource version. A deleted
object is created again from the fold, with the same indices. An object whose rows were computed from a later position
of the log is not written until this replica has folded that position.

In mode `beside`, upstream's controller writes the status of ComputeDomains from the same rows, so the plane does not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from math import inf
from typing import Any

import msgspec

from drivers.kubernetes.ahead import LASTING_S, ObjectsAhead
from drivers.kubernetes.writer import Plan, Request, Wait
from eventstore.log import CLIQUES
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
    domain_status,
    domain_status_body,
    owners_of,
    place_of,
)
from projections.kubernetes.daemon_pods import DaemonPods
from projections.kubernetes.object_cache import ObjectCache
from schemas.kubernetes.compute_domains import CliqueObject, DomainObject
from schemas.resources.compute_domain import COMPUTE_DOMAIN, COMPUTE_DOMAIN_CLIQUE

logger = logging.getLogger(__name__)

INTERVAL_S = 0.25
"""Minimum time between two writes of an object. Changes within this time share a write."""
_clique = msgspec.json.Decoder(CliqueObject)
_domain = msgspec.json.Decoder(DomainObject)


@dataclass(slots=True)
class CliqueSources:
    """The data from which the objects of one source cluster are computed. List-watches fill the caches.

    `namespace` is the namespace of the DRA driver: clique objects and daemon pods are in it. `mode` may change at any
    time.
    """

    replica: Replica
    namespace: str
    pods: DaemonPods
    cliques: ObjectCache[CliqueObject]
    domains: ObjectCache[DomainObject]
    mode: Mode
    source: str = ""
    """The name of the cluster, for warnings."""

    @property
    def is_complete(self) -> bool:
        """Whether every collection was listed at least once."""
        return bool(self.pods.lists) and self.cliques.is_complete and self.domains.is_complete

    def state(self, domain: str) -> CliquesState:
        return FoldStates(self.replica).cliques_at(self.replica.partition_for(CLIQUES, domain))

    def place(self, domain: str) -> LogPlace:
        """The position that the fold of a domain has reached."""
        replica = self.replica
        return LogPlace(replica.generation, replica.position(replica.partition_for(CLIQUES, domain)))

    def is_known(self, domain: str) -> bool:
        """Whether the domain is one of this cluster."""
        return domain in self.domains.objects or domain in self.pods.by_domain

    def is_gone(self, domain: str) -> bool:
        """Whether the ComputeDomain was deleted. An empty list of domains proves nothing."""
        found = self.domains.objects.get(domain)
        if found is not None:
            return found.metadata.deletion_timestamp is not None
        return self.domains.is_complete and bool(self.domains.objects)


class CliqueTarget:
    """The ComputeDomainClique objects, by name."""

    def __init__(self, sources: CliqueSources, writes: Counter[str]) -> None:
        self.faults: dict[str, dict[str, str]] = {}
        """Faults of rows, by the name of the object and by node."""
        self.unclaimed: dict[str, frozenset[str]] = {}
        """Nodes whose rows have no claim in the log, by the name of the object."""
        self.ahead = ObjectsAhead()
        self._sources = sources
        self._writes = writes
        self._spacing = _Spacing()

    def path(self, name: str) -> str:
        return COMPUTE_DOMAIN_CLIQUE.path(self._sources.namespace, name)

    def version(self, name: str) -> int:
        return self._sources.cliques.version(name)

    def saw(self, name: str, answer: bytes, *, sent_at: int) -> None:
        self._sources.cliques.put(_clique.decode(answer), sent_at=sent_at)

    def saw_none(self, name: str) -> None:
        self._sources.cliques.forget(name)

    def wrote(self, name: str) -> None:
        self._spacing.wrote(name)
        self._writes[COMPUTE_DOMAIN_CLIQUE.plural] += 1

    def plan(self, name: str) -> Plan:
        """The next write of an object: creation, replacement or deletion."""
        shown = self._sources.cliques.objects.get(name)
        domain, _, clique = name.partition(".")  # the uid of a domain has no dot
        if not self._sources.is_complete:
            return None
        place = self._sources.place(domain)
        if place_of(shown) > place:
            about = {"source": self._sources.source, "object": self.path(name), "position": str(place)}
            self.ahead.add(name, _now_s(), about)
            return Wait(LASTING_S)
        self.ahead.discard(name)
        write = self._write(CliqueId(domain, clique), shown)
        if write is None:
            return None
        if write.body is None:
            uid = shown.metadata.uid if shown is not None else None
            return self._spacing.spaced(name, Request("delete", self.path(name), uid))
        if write.is_create:
            collection = COMPUTE_DOMAIN_CLIQUE.path(self._sources.namespace)
            return self._spacing.spaced(name, Request("create", collection, write.body))
        return self._spacing.spaced(name, Request("replace", self.path(name), write.body))

    def _write(self, of: CliqueId, shown: CliqueObject | None) -> CliqueWrite | None:
        """The write that an object needs now. Records the faults of the object's rows."""
        sources = self._sources
        state, place, is_gone = sources.state(of.domain), sources.place(of.domain), sources.is_gone(of.domain)
        if shown is None and (is_gone or not sources.is_known(of.domain)):
            return None
        found = clique_rows(state, of, shown, sources.pods, sources.mode)
        self._note(of, found)
        return clique_write(
            of,
            found,
            shown,
            owners=owners_of(state, of, shown, sources.pods, sources.namespace),
            namespace=sources.namespace,
            place=place,
            is_domain_gone=is_gone and sources.mode == "assign",
        )

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
                about = {"source": self._sources.source, "object": name, "node": node}
                logger.warning("row of another writer replaced: %s", fault, extra=about)


class DomainTarget:
    """The statuses of ComputeDomains, by the uid of the domain."""

    def __init__(self, sources: CliqueSources, writes: Counter[str]) -> None:
        self._sources = sources
        self._writes = writes
        self._spacing = _Spacing()

    def path(self, name: str) -> str | None:
        found = self._sources.domains.objects.get(name)
        return COMPUTE_DOMAIN.path(found.metadata.namespace, found.metadata.name) if found is not None else None

    def version(self, name: str) -> int:
        return self._sources.domains.version(name)

    def saw(self, name: str, answer: bytes, *, sent_at: int) -> None:
        found = _domain.decode(answer)
        if found.metadata.uid != name:
            self._sources.domains.forget(name)  # a new domain has the name of the deleted one
        self._sources.domains.put(found, sent_at=sent_at)

    def saw_none(self, name: str) -> None:
        self._sources.domains.forget(name)

    def wrote(self, name: str) -> None:
        self._spacing.wrote(name)
        self._writes[COMPUTE_DOMAIN.plural] += 1

    def plan(self, name: str) -> Plan:
        found = self._sources.domains.objects.get(name)
        body = self._body(found) if found is not None and self._sources.is_complete else None
        if found is None or body is None:
            return None
        path = COMPUTE_DOMAIN.path(found.metadata.namespace, found.metadata.name, "status")
        return self._spacing.spaced(name, Request("replace", path, body))

    def _body(self, found: DomainObject) -> dict[str, Any] | None:
        """The body of the status that a domain needs now."""
        if self._sources.mode == "beside" or found.metadata.deletion_timestamp is not None:
            return None
        state = self._sources.state(found.metadata.uid)
        return domain_status_body(found, domain_status(state, found, self._sources.pods))


class _Spacing:
    """Keeps the writes of an object `INTERVAL_S` apart."""

    def __init__(self) -> None:
        self._written_s: dict[str, float] = {}

    def wrote(self, name: str) -> None:
        self._written_s[name] = _now_s()

    def spaced(self, name: str, request: Request) -> Plan:
        """The request, or the remaining wait."""
        wait_s = self._written_s.get(name, -inf) + INTERVAL_S - _now_s()
        if wait_s > 0:
            return Wait(wait_s)
        self._written_s.pop(name, None)
        return request


def _now_s() -> float:
    return asyncio.get_running_loop().time()
