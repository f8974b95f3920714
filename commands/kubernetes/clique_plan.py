"""Compares the daemon pods of one domain with the cliques fold: claims, releases and readiness to append. Pure.

In mode `assign`, a pod claims an index as soon as its daemon has labelled it. In mode `beside`, the daemon chooses an
index and writes a row; the pod then claims the index of that row. In mode `assign` too, an existing row requests its
index, so that a switch of the mode keeps every index. Claims that request an index come first: other claims could
otherwise be given these indices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from commands.requests.validation import EnvelopeFactory
from eventstore.ids import is_command_id
from projections.cliques.state import CliqueMember, CliquesState
from projections.kubernetes.clique_objects import CliqueId, Mode, node_name
from projections.kubernetes.daemon_pods import DaemonPod, DaemonPods
from schemas.events import MAX_ITEMS, DaemonReadinessReported, IndicesClaimed, IndicesReleased
from schemas.kubernetes.compute_domains import CliqueObject, DomainObject

MAX_RECORD_ITEMS = min(MAX_ITEMS, 256)
"""Maximum number of items of one record. An item has at most 700 bytes, so the record fits the log's size limit."""


class WantedClaim(NamedTuple):
    """A claim to append: a pod, the name of its node in the fold, and the requested index (-1 requests none)."""

    pod: DaemonPod
    node: str
    requested_index: int


class HeldClaim(NamedTuple):
    """A claim in the fold."""

    of: CliqueId
    node: str
    member: CliqueMember


class Shown(NamedTuple):
    """The objects of a domain in its cluster: the object of each clique by its name, and the ComputeDomain."""

    cliques: Mapping[str, CliqueObject]
    domain: DomainObject | None

    def index_of(self, of: CliqueId, name: str) -> int | None:
        """The index that the objects show for a Node. A clique without an object has its rows in the status of the
        domain."""
        found = self.cliques.get(of.object_name)
        if found is not None:
            row = found.row(name)
            return row.index if row is not None else None
        status = self.domain.status if self.domain is not None else None
        rows = status.nodes or () if status is not None else ()
        return next((row.index for row in rows if (row.name, row.clique_id) == (name, of.clique)), None)

    def has_row(self, of: CliqueId, name: str) -> bool:
        """Whether the object of a clique has a row of a Node."""
        found = self.cliques.get(of.object_name)
        return found is not None and found.row(name) is not None


def held_claims(state: CliquesState, domain: str) -> list[HeldClaim]:
    """The claims of a domain that hold an index or wait for one."""
    found: list[HeldClaim] = []
    for key in state.domains.get(domain, ()):
        clique = state.cliques[key]
        of = CliqueId(domain, key.partition("/")[2])
        nodes = (*clique.holders.values(), *clique.queue)
        found.extend(HeldClaim(of, node, state.members.rows[f"{key}/{node}"]) for node in nodes)
    return found


def lacking_claims(
    state: CliquesState, held: Iterable[HeldClaim], pods: Iterable[DaemonPod], shown: Shown, mode: Mode
) -> list[WantedClaim]:
    """Claims to append: the fold lacks them, or has them with another address."""
    by_uid = {claim.member.uid: claim for claim in held}
    found = []
    for pod in pods:
        if not pod.can_claim:
            continue
        of = CliqueId(pod.domain, pod.clique or "")
        claim = by_uid.get(pod.uid)
        if claim is not None and claim.of == of:
            if claim.member.address != pod.address:
                found.append(WantedClaim(pod, claim.node, -1))
        elif mode == "assign" or shown.has_row(of, pod.node):
            found.append(WantedClaim(pod, pod.node, _requested_index(state, of, pod, shown)))
    return sorted(found, key=lambda claim: (claim.requested_index < 0, claim.pod.created_ms, claim.node))


def _requested_index(state: CliquesState, of: CliqueId, pod: DaemonPod, shown: Shown) -> int:
    """The index to request for a pod: the index of its row. It is -1 (no request) if the pod has no row, if the index
    is not below the clique's capacity, or if the node had that index last: the fold then gives it the same index
    without a request."""
    index = shown.index_of(of, pod.node)
    clique = state.cliques.get(of.key)
    if index is None or index < 0:
        return -1
    former = state.member(of.key, pod.node)
    if former is not None and former.last == index:
        return -1
    return index if clique is None or index < clique.capacity else -1


def claims(make: EnvelopeFactory, wanted: Iterable[WantedClaim]) -> Iterator[IndicesClaimed]:
    """Records of claims, each of one clique. An address occurs at most once in a record."""
    by_clique: defaultdict[CliqueId, list[list[WantedClaim]]] = defaultdict(list)
    for claim in wanted:
        batches = by_clique[CliqueId(claim.pod.domain, claim.pod.clique or "")]
        used = {other.pod.address for other in batches[-1]} if batches else set()
        if not batches or claim.pod.address in used or len(batches[-1]) >= MAX_RECORD_ITEMS:
            batches.append([])
        batches[-1].append(claim)
    for of, batches in by_clique.items():
        for batch in batches:
            indices = [claim.requested_index for claim in batch]
            yield IndicesClaimed(
                make(of.key),
                of.domain,
                of.clique,
                [claim.node for claim in batch],
                [claim.pod.address for claim in batch],
                [claim.pod.created_ms for claim in batch],
                [claim.pod.uid for claim in batch],
                indices if max(indices) >= 0 else [],
            )


def gone_claims(held: Iterable[HeldClaim], pods: DaemonPods, shown: Shown, mode: Mode) -> list[HeldClaim]:
    """The claims whose pods were deleted.

    In mode `beside`, a daemon removes its own row when it stops. Its terminating pod then no longer needs the index.
    """
    found = []
    for claim in held:
        pod = pods.by_uid.get(claim.member.uid)
        if pod is None:
            is_over = claim.member.uid in pods.gone
        else:
            is_stopping = mode == "beside" and pod.is_terminating
            is_over = is_stopping and not shown.has_row(claim.of, node_name(claim.node))
        if is_over:
            found.append(claim)
    return found


def unlisted_claims(held: Iterable[HeldClaim], pods: DaemonPods) -> list[HeldClaim]:
    """The claims whose pods are neither present nor known to be deleted. A claim with a command id as its uid has no
    pod, and only its caller releases it."""
    return [
        claim
        for claim in held
        if claim.member.uid not in pods.by_uid
        and claim.member.uid not in pods.gone
        and not is_command_id(claim.member.uid)
    ]


def releases(make: EnvelopeFactory, gone: Iterable[HeldClaim]) -> Iterator[IndicesReleased]:
    """Records of releases, each of one clique; they contain the uids of the pods whose claims end."""
    by_clique: defaultdict[CliqueId, list[HeldClaim]] = defaultdict(list)
    for claim in gone:
        by_clique[claim.of].append(claim)
    for of, found in by_clique.items():
        for start in range(0, len(found), MAX_RECORD_ITEMS):
            batch = found[start : start + MAX_RECORD_ITEMS]
            nodes, uids = [claim.node for claim in batch], [claim.member.uid for claim in batch]
            yield IndicesReleased(make(of.key), of.domain, of.clique, nodes, uids)


def readiness(
    make: EnvelopeFactory, held: Iterable[HeldClaim], pods: Mapping[str, DaemonPod]
) -> Iterator[DaemonReadinessReported]:
    """Reports of pods whose readiness differs from the fold's. A daemon with a session reports its own readiness."""
    for claim in held:
        pod, member = pods.get(claim.member.uid), claim.member
        if pod is None or member.claim_state != "holds" or member.session or member.ready == pod.is_ready:
            continue
        of = claim.of
        yield DaemonReadinessReported(make(of.key), of.domain, of.clique, claim.node, member.uid, pod.is_ready)
