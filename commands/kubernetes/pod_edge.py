"""Appends the daemon pods of compute domains to topic cliques, as claims, readiness and releases.

The edge compares the pods that it watches with the claims in the fold, domain by domain, and appends the difference
until there is none. The edge ends a claim only on evidence about its pod that is newer than the claim: a watched
deletion of that uid, or the pod's absence from a complete list and from a live list of its domain that began after the
claim was folded. A list without any pod of a domain is not evidence while the domain exists. A list of an API server
that was restored from a backup is not evidence either. Without evidence, a claim stays and is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, TypeAlias

import msgspec

from commands.kubernetes.clique_plan import (
    HeldClaim,
    Shown,
    WantedClaim,
    claims,
    gone_claims,
    held_claims,
    lacking_claims,
    readiness,
    releases,
    unlisted_claims,
)
from commands.kubernetes.list_watch import PAGE
from eventstore.errors import FatalError, PlaneError
from eventstore.folding.fold import ItemOutcome, Outcome
from eventstore.ids import envelope, uuid7
from eventstore.log import CLIQUES, Partition
from eventstore.replicas.replica import Replica
from projections.fold_states import FoldStates
from projections.kubernetes.clique_objects import Mode, domain_of
from projections.kubernetes.daemon_pods import DaemonPods
from projections.kubernetes.object_cache import ObjectCache
from projections.kubernetes.object_events import ObjectEvent, Regarding, Report, ignore
from schemas.events import DaemonReadinessReported, Envelope, IndicesClaimed, IndicesReleased
from schemas.kubernetes.api import ApiError, KubernetesApi
from schemas.kubernetes.compute_domains import CliqueObject, DomainObject
from schemas.kubernetes.objects import ObjectList, Pod
from schemas.resources.compute_domain import COMPUTE_DOMAIN, COMPUTE_DOMAIN_CLIQUE, DOMAIN_LABEL

CliqueEvent: TypeAlias = IndicesClaimed | IndicesReleased | DaemonReadinessReported

logger = logging.getLogger(__name__)
_pods = msgspec.json.Decoder(ObjectList[Pod])

LINGER_S = 0.02
"""How long watched changes linger, so that the changes of a clique share one record. If the last comparison of a domain
took longer than this, its changes linger for the duration of that comparison, at most LINGER_S_MAX."""
LINGER_S_MAX = 0.5
SUBMIT_TIMEOUT_S = 10.0
CONCURRENT = 16
"""Maximum number of domains that are compared at the same time, and of cliques whose records are submitted at the same
time, per partition: a partition that is slow does not delay the domains of others.
"""
RETRY_S = 1.0
GRACE_S = 5.0
"""Minimum age of a list before the absence of a pod from it counts as evidence. Until then, another list may show that
the API server was restored."""
MAX_GONE = 2_000
"""Maximum number of deleted pods that are remembered."""
REFUSED_RETRY_S = 600.0
"""Time after which a refused claim is submitted again, because the reason may no longer apply."""


class _Slots(dict[Partition, asyncio.Semaphore]):
    """The concurrency of each partition."""

    def __missing__(self, partition: Partition) -> asyncio.Semaphore:
        found = self[partition] = asyncio.Semaphore(CONCURRENT)
        return found


class PodEdge:
    """Appends what the log lacks of the daemon pods of one source cluster, while `run` runs.

    List-watches fill `pods`, `cliques` and `domains`, which the writer of cliques shares. `pods_path` is the collection
    of the watched pods. `mode` may change at any time.
    """

    def __init__(
        self,
        replica: Replica,
        source: str,
        api: KubernetesApi,
        pods_path: str,
        *,
        pods: DaemonPods,
        cliques: ObjectCache[CliqueObject],
        domains: ObjectCache[DomainObject],
        mode: Mode,
        now_ms: Callable[[], int],
        rng: Random,
        edge: str = "",
        report: Report = ignore,
    ) -> None:
        self.mode: Mode = mode
        self.refused: dict[str, str] = {}
        """Why the fold refused the claim of a pod, by the pod's uid."""
        self.conflicts: dict[str, str] = {}
        """Why the fold gave a pod another index than its row shows, by the pod's uid."""
        self.retained: dict[str, int] = {}
        """Number of claims, by domain, that stay although no list contains their pods, because the lists are not
        sufficient evidence."""
        self.claimed = self.released = self.reported = 0
        self.pods = pods
        self._cliques = cliques
        self._domains = domains
        self._replica = replica
        self._states = FoldStates(replica)
        self._source = source
        self._api = api
        self._pods_path = pods_path
        self._now_ms = now_ms
        self._rng = rng
        self._report = report
        self._actor = f"kubernetes/{source}/{edge or replica.name}"
        self._answered: dict[str, tuple[str, str | None]] = {}
        """The address and clique of a pod's last claim that the fold has decided, by the pod's uid."""
        self._dirty: set[str] = set()
        self._busy: set[str] = set()
        """Domains that are compared now."""
        self._waiting: set[str] = set()
        """Domains that are compared again after a pause."""
        self._unlisted: set[str] = set()
        """Domains whose claims have not been compared with the last complete list."""
        self._domain_slots = _Slots()
        self._record_slots = _Slots()
        self._listed_s = 0.0
        self._restored_at_list: int | None = None
        """Number of complete pod lists that precede the first sign of a restore of the API server; None without such a
        sign."""
        self._work = asyncio.Event()
        pods.subscribe(self._mark, self._on_list)
        cliques.subscribe(lambda item: self._mark(domain_of(item)), self._work.set)
        domains.subscribe(lambda item: self._mark(item.metadata.uid), self._work.set)

    def _mark(self, domain: str) -> None:
        self._dirty.add(domain)
        self._work.set()

    def _on_list(self) -> None:
        """Compare every domain of this cluster with the new list. Domains of other clusters are not compared."""
        self._listed_s = asyncio.get_running_loop().time()
        self._unlisted = {*self.pods.by_domain, *self._domains.objects, *self.retained}
        self._unlisted.update(domain_of(item) for item in self._cliques.objects.values())
        self._dirty |= self._unlisted
        self._work.set()

    @property
    def _went_back(self) -> bool:
        """Whether one of the lists showed that the API server was restored. The other lists may not show it: writes
        after a restore raise the versions again."""
        return self.pods.went_back or self._cliques.went_back or self._domains.went_back

    async def run(self) -> None:
        """Append differences until cancelled.

        Nothing is appended before the lists of pods, cliques and domains are complete. A claim made from an incomplete
        list could lack its requested index.
        """
        await self._replica.ready()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat_refused())
            tasks.create_task(self._follow_fold())
            while True:
                await self._work.wait()
                self._work.clear()
                await asyncio.sleep(LINGER_S)
                if not (self.pods.lists and self._cliques.is_complete and self._domains.is_complete):
                    continue
                for domain in sorted(self._dirty - self._busy):
                    self._busy.add(domain)
                    tasks.create_task(self._compare(domain, tasks))
                self._end_restore()

    async def _compare(self, domain: str, tasks: asyncio.TaskGroup) -> None:
        """Append what the fold lacks of a domain until it has no more changes. Other domains do not wait for it, even
        if the log delays its records."""
        now_s = asyncio.get_running_loop().time
        slots = self._domain_slots[self._replica.partition_for(CLIQUES, domain)]
        while domain in self._dirty:
            async with slots:
                self._dirty.discard(domain)
                began_s = now_s()
                is_done = await self._reconcile_domain(domain)
            self._end_restore()
            if not is_done and domain not in self._waiting:
                self._waiting.add(domain)
                tasks.create_task(self._mark_later(domain))
            await asyncio.sleep(min(max(LINGER_S, now_s() - began_s), LINGER_S_MAX))
        self._busy.discard(domain)

    async def _mark_later(self, domain: str) -> None:
        """Compare a domain again after a pause."""
        await asyncio.sleep(RETRY_S * self._rng.uniform(0.5, 1.5))
        self._waiting.discard(domain)
        self._mark(domain)

    async def _follow_fold(self) -> None:
        """Compare the domains of a partition again when it changes: a waiting pod may have got its index, or the index
        of a running pod may have been released."""
        with self._replica.watch(CLIQUES) as watch:
            while True:
                changed = await watch.changed()
                for domain in {*self.pods.by_domain, *self.pods.gone.values()}:
                    if self._replica.partition_for(CLIQUES, domain) in changed:
                        self._mark(domain)

    def _end_restore(self) -> None:
        """Accept pod lists as evidence again, once a list after the restore contains the pods of all claims."""
        if not self._went_back:
            return
        if self._restored_at_list is None:
            self._restored_at_list = self.pods.lists - self.pods.went_back
        is_settled = asyncio.get_running_loop().time() >= self._listed_s + GRACE_S and not self._unlisted
        if is_settled and self.pods.lists > self._restored_at_list and not self.retained:
            self.pods.went_back = self._cliques.went_back = self._domains.went_back = False
            self._restored_at_list = None

    async def _reconcile_domain(self, domain: str) -> bool:
        """Append the events that the fold lacks for one domain. Returns whether every record is known to be folded."""
        state = self._states.cliques_at(self._replica.partition_for(CLIQUES, domain))
        shown = Shown(self._cliques.objects, self._domains.objects.get(domain))
        held = held_claims(state, domain)
        gone = gone_claims(held, self.pods, shown, self.mode)
        is_done = True
        if domain in self._unlisted:
            unlisted = await self._unlisted_claims(domain, held)
            is_done = unlisted is not None
            gone += unlisted or []
        ended = {claim.member.uid for claim in gone}
        stay = [claim for claim in held if claim.member.uid not in ended]
        is_done &= await self._submit_all(releases(self._envelope, gone))
        if not self._is_domain_gone(domain):
            state = self._states.cliques_at(self._replica.partition_for(CLIQUES, domain))
            newest = self.pods.newest_by_node(domain).values()
            lacking = lacking_claims(state, stay, newest, shown, self.mode)
            is_done &= await self._submit_all(claims(self._envelope, self._unanswered(lacking, stay)))
        is_done &= await self._submit_all(readiness(self._envelope, stay, self.pods.by_uid))
        if is_done:
            self._unlisted.discard(domain)
            self._forget()
        return is_done

    async def _unlisted_claims(self, domain: str, held: Iterable[HeldClaim]) -> list[HeldClaim] | None:
        """The claims whose pods are missing from two lists, the second of which began after the claim was folded. None
        if the second list is not available yet."""
        found = unlisted_claims(held, self.pods)
        is_proof = not self._went_back and bool(self.pods.by_uid)
        if not is_proof or not (domain in self.pods.by_domain or self._is_domain_gone(domain)):
            self._count_retained(domain, len(found))
            return []
        self._count_retained(domain, 0)
        if not found:
            return []
        if asyncio.get_running_loop().time() < self._listed_s + GRACE_S:
            return None
        try:
            live = await self._live_uids(domain)
        except ApiError as error:
            about = {"source": self._source, "domain": domain}
            logger.warning("daemon pods not listed, their claims were kept: %s", error, extra=about)
            return None
        return [claim for claim in found if claim.member.uid not in live]

    async def _live_uids(self, domain: str) -> set[str]:
        """The uids of a domain's pods, from a list that begins now. Raises ApiError."""
        query = {"labelSelector": f"{DOMAIN_LABEL}={domain}", "limit": str(PAGE)}
        found: set[str] = set()
        while True:
            page = _pods.decode(await self._api.get(self._pods_path, query))
            found.update(pod.metadata.uid for pod in page.items)
            if not page.metadata.continue_:
                return found
            query["continue"] = page.metadata.continue_

    def _is_domain_gone(self, domain: str) -> bool:
        """Whether the ComputeDomain was deleted. An empty list of domains proves nothing."""
        found = self._domains.objects.get(domain)
        if found is not None:
            return found.metadata.deletion_timestamp is not None
        return self._domains.is_complete and bool(self._domains.objects)

    def _count_retained(self, domain: str, count: int) -> None:
        known = self.retained.pop(domain, 0)
        if count:
            self.retained[domain] = count
        if count > known:
            why = (
                "the API server was restored from an older backup"
                if self._went_back
                else "no pod of their domain is listed"
            )
            about = {"source": self._source, "domain": domain, "claims": count}
            logger.warning("claims kept without a pod: %s; `dpuplane cliques release` ends them", why, extra=about)
            self._report_retained(domain, count, why)

    def _report_retained(self, domain: str, count: int, why: str) -> None:
        """Report kept claims of a domain about its ComputeDomain; about its cliques if that is not listed either."""
        found = self._domains.objects.get(domain)
        objects: list[DomainObject | CliqueObject] = [found] if found is not None else []
        kind = COMPUTE_DOMAIN if objects else COMPUTE_DOMAIN_CLIQUE
        objects = objects or [each for each in self._cliques.objects.values() if domain_of(each) == domain]
        claims = "1 claim of an index stays" if count == 1 else f"{count} claims of indices stay"
        message = f"{claims} without a daemon pod in any list: {why}; `dpuplane cliques release` ends them"
        reason = "RestoredFromBackup" if self._went_back else "ClaimsRetained"
        for about in objects:
            metadata = about.metadata
            where = Regarding(kind.api_version, kind.name, metadata.name, metadata.uid, metadata.namespace)
            self._report(ObjectEvent(where, reason, message))

    def _unanswered(self, lacking: Iterable[WantedClaim], stay: Iterable[HeldClaim]) -> list[WantedClaim]:
        """The lacking claims, without those that the fold has answered already. The fold has either refused such a
        claim, or kept the old address of the claim. It would only repeat its answer. A claim whose requested index was
        refused is repeated without the index."""
        held, found = {claim.member.uid for claim in stay}, []
        for claim in lacking:
            pod = claim.pod
            is_answered = self._answered.get(pod.uid) == (pod.address, pod.clique)
            if is_answered and (pod.uid in held or pod.uid in self.refused):
                continue
            found.append(claim._replace(requested_index=-1) if pod.uid in self.conflicts else claim)
        return found

    async def _submit_all(self, events: Iterable[CliqueEvent]) -> bool:
        """Submit records, in order within a clique and concurrently across cliques. Returns whether all are folded and
        no claim must be repeated."""
        by_clique: defaultdict[str, list[CliqueEvent]] = defaultdict(list)
        for event in events:
            by_clique[event.clique].append(event)
        results: list[bool] = []

        async def submit(batch: list[CliqueEvent]) -> None:
            async with self._record_slots[self._replica.partition_for(CLIQUES, batch[0].domain)]:
                results.extend([await self._submit(event) for event in batch])

        async with asyncio.TaskGroup() as tasks:
            for batch in by_clique.values():
                tasks.create_task(submit(batch))
        return all(results)

    async def _submit(self, event: CliqueEvent) -> bool:
        """Submit a record. Returns whether it is folded and no claim must be repeated."""
        partition = self._replica.partition_for(CLIQUES, event.domain)
        try:
            answer = await self._replica.submit(partition, event.domain.encode(), event, timeout_s=SUBMIT_TIMEOUT_S)
        except FatalError:
            raise
        except PlaneError as error:
            about = {"source": self._source, "domain": event.domain, "event": type(event).__name__}
            logger.warning("event about daemon pods not confirmed, retrying: %s", error, extra=about)
            return False
        if isinstance(event, IndicesClaimed):
            outcome = answer.outcome
            refused: dict[str, Outcome | ItemOutcome] = {
                item.name: item for item in outcome.items if item.code == "refused"
            }
            if outcome.code == "refused" and not outcome.items:
                refused = dict.fromkeys(event.nodes, outcome)
            return self._take_answers(event, refused)
        self.released += len(event.nodes) if isinstance(event, IndicesReleased) else 0
        self.reported += isinstance(event, DaemonReadinessReported)
        return True

    def _take_answers(self, event: IndicesClaimed, refused: dict[str, Outcome | ItemOutcome]) -> bool:
        """Record the answers to the claims of an event. `refused` has the refused claims, by node. Returns False if a
        claim must be repeated without its requested index."""
        requested = event.requested_indices or [-1] * len(event.nodes)
        is_final = True
        for node, uid, address, index in zip(event.nodes, event.uids, event.addresses, requested, strict=True):
            refusal = refused.get(node)
            if refusal is not None and index >= 0:
                self.conflicts[uid] = refusal.reason
                about = {"source": self._source, "domain": event.domain, "node": node, "reason": refusal.reason}
                logger.warning("the plane refused the index of a daemon's row, claiming any free index", extra=about)
                self._report_refused(uid, "IndexRefused", "the plane refused the index of this daemon's row", refusal)
                is_final = False
                continue
            self._answered[uid] = (address, event.clique)
            self.refused.pop(uid, None)
            if refusal is not None:
                self.refused[uid] = refusal.reason
                self._report_refused(uid, "ClaimRefused", "the plane refused this daemon's claim", refusal)
            else:
                self.claimed += 1
        return is_final

    def _report_refused(self, uid: str, reason: str, message: str, refusal: Outcome | ItemOutcome) -> None:
        pod = self.pods.by_uid.get(uid)
        if pod is not None:
            about, text = Regarding("v1", "Pod", pod.name, uid, pod.namespace), f"{message}: {refusal.reason}"
            self._report(ObjectEvent(about, reason, text, code=refusal.reason_code))

    def _forget(self) -> None:
        """Forget deleted pods, except the last MAX_GONE. They are still needed: an append of unknown outcome may reach
        the log after the deletion of its pod, and add a claim that must be ended."""
        for uid in [*self.pods.gone][:-MAX_GONE]:
            del self.pods.gone[uid]
        answers: tuple[dict[str, Any], ...] = (self._answered, self.conflicts, self.refused)
        for kept in answers:
            if len(kept) > 2 * len(self.pods.by_uid) + CONCURRENT:
                for uid in [uid for uid in kept if uid not in self.pods.by_uid]:
                    del kept[uid]

    def _envelope(self, subject: str) -> Envelope:
        return envelope(subject, self._actor, uuid7(self._now_ms(), self._rng))

    async def _repeat_refused(self) -> None:
        while True:
            await asyncio.sleep(REFUSED_RETRY_S * self._rng.uniform(0.8, 1.2))
            for uid in self.refused:
                self._answered.pop(uid, None)
                if uid in self.pods.by_uid:
                    self._mark(self.pods.by_uid[uid].domain)
            self.refused.clear()
