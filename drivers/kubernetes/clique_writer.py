"""Marks the objects of cliques and the statuses of compute domains for the writer, when they may differ from the fold.

Each change of the fold, of an object or of a pod marks the objects that depend on it. The changes within `LINGER_S` of
the first one share a write, and so do the changes within an interval after the object's last write: 18 claims at once
cause at most two writes. Replicas act in order of rank: each waits one turn longer than the previous one, and writes
only what still differs then.
"""

from __future__ import annotations

from collections import Counter

from drivers.internal_events import TURN_S
from drivers.kubernetes.clique_targets import CliqueSources, CliqueTarget, DomainTarget
from drivers.kubernetes.writer import Target, Writer
from eventstore.log import CLIQUES
from eventstore.replicas.beacons import Ranks
from eventstore.replicas.role_names import KUBERNETES
from projections.kubernetes.clique_objects import CliqueId, Mode, domain_of
from schemas.kubernetes.compute_domains import CliqueObject
from schemas.resources.compute_domain import CLIQUE_LABEL

LINGER_S = 0.05


class CliqueWriter:
    """Keeps the objects of one source cluster equal to the fold while `run` and the writer run."""

    def __init__(self, sources: CliqueSources, ranks: Ranks, writer: Writer) -> None:
        self.writes: Counter[str] = Counter()
        """Number of confirmed writes, by the plural of the kind."""
        self.cliques = CliqueTarget(sources, self.writes)
        self.domains = DomainTarget(sources, self.writes)
        self._sources = sources
        self._ranks = ranks
        self._writer = writer
        sources.pods.subscribe(self._mark_domain, self._mark_all)
        sources.cliques.subscribe(self._mark_object, self._mark_all)
        sources.domains.subscribe(lambda item: self._mark_domain(item.metadata.uid), self._mark_all)

    def set_mode(self, mode: Mode) -> None:
        """Change the mode, and compare every object."""
        self._sources.mode = mode
        self._mark_all()

    async def run(self) -> None:
        """Follow the fold until cancelled."""
        replica = self._sources.replica
        await replica.ready()
        self._mark_all()
        with replica.watch(CLIQUES) as watch:
            while True:
                changed = await watch.changed()
                for domain in self._known_domains():
                    if replica.partition_for(CLIQUES, domain) in changed:
                        self._mark_domain(domain)

    def _mark(self, target: Target, name: str) -> None:
        self._writer.mark(target, name, delay_s=LINGER_S + self._ranks.rank(name, KUBERNETES) * TURN_S)

    def _mark_object(self, item: CliqueObject) -> None:
        domain = domain_of(item)
        clique = (item.metadata.labels or {}).get(CLIQUE_LABEL) or item.metadata.name.removeprefix(f"{domain}.")
        self._mark(self.cliques, CliqueId(domain, clique).object_name)

    def _mark_domain(self, domain: str) -> None:
        for key in self._sources.state(domain).domains.get(domain, ()):
            self._mark(self.cliques, CliqueId(domain, key.partition("/")[2]).object_name)
        self._mark(self.domains, domain)

    def _mark_all(self) -> None:
        for item in self._sources.cliques.objects.values():
            self._mark_object(item)
        for domain in {*self._sources.domains.objects, *self._sources.pods.by_domain}:
            self._mark_domain(domain)

    def _known_domains(self) -> set[str]:
        """The domains of this cluster."""
        found = {*self._sources.domains.objects, *self._sources.pods.by_domain}
        return found | {domain_of(item) for item in self._sources.cliques.objects.values()}
