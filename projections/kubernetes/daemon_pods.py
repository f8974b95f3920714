"""The daemon pods of compute domains, as a list-watch reports them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from projections.field_checks import BadAddress, canonical_address, check_clique, check_name
from schemas.kubernetes.objects import Pod
from schemas.resources.compute_domain import CLIQUE_LABEL, DOMAIN_LABEL


class DaemonPod(NamedTuple):
    """A daemon pod. `clique` is None until the daemon has labelled its pod, and empty on a node without a fabric."""

    name: str
    namespace: str
    uid: str
    created_ms: int
    node: str
    address: str
    domain: str
    clique: str | None
    is_ready: bool
    is_terminating: bool

    @property
    def can_claim(self) -> bool:
        """Whether the pod has a clique, a node and an address, as a claim needs, and is not terminating."""
        return bool(self.clique and self.node and self.address) and not self.is_terminating


def read_daemon_pod(pod: Pod) -> DaemonPod | str | None:
    """The daemon pod of a Pod object; None if the object is not a daemon pod; one sentence if a field is invalid."""
    labels = pod.metadata.labels or {}
    domain, clique, node = labels.get(DOMAIN_LABEL, ""), labels.get(CLIQUE_LABEL), pod.spec.node_name
    if not domain:
        return None
    fault = check_clique("domain", domain) or (check_clique("clique", clique) if clique else None)
    fault = fault or (check_name("node", node) if node else None)
    if fault is not None:
        return fault
    address = pod.status.pod_ip
    try:
        address = canonical_address("podIP", address) if address else ""
    except BadAddress as error:
        return str(error)
    about = pod.metadata
    is_terminating = about.deletion_timestamp is not None
    return DaemonPod(
        about.name,
        about.namespace,
        about.uid,
        about.created_ms,
        node,
        address,
        domain,
        clique,
        pod.is_ready and not is_terminating,
        is_terminating,
    )


ENDED_MAX = 10_000
"""Maximum number of deleted pods whose addresses are remembered; at this limit, all of them are dropped."""


class DaemonPods:
    """Daemon pods by uid and by domain. It is the handler of a list-watch. Listeners get the uid of a domain."""

    def __init__(self) -> None:
        self.by_uid: dict[str, DaemonPod] = {}
        self.by_domain: dict[str, dict[str, None]] = {}
        """Uids of pods by domain."""
        self._by_clique: dict[tuple[str, str | None], dict[str, None]] = {}
        self.gone: dict[str, str] = {}
        """Domains of pods that the watch reported as deleted, by pod uid. The reader removes the entries after use."""
        self.ended: dict[tuple[str, str], str] = {}
        """The address of the pod that a node had last in a domain and has no more, by domain and node."""
        self.faults: dict[str, str] = {}
        """The fault of each invalid pod, in one sentence, by the name of the pod."""
        self.lists = 0
        """The number of complete lists."""
        self.went_back = False
        """Whether the API server was restored from an older backup. Pods that its lists lack may then still run."""
        self._listed: set[str] | None = None
        self._listeners: list[Callable[[str], None]] = []
        self._list_listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[str], None], on_list: Callable[[], None] | None = None) -> None:
        """Call the first function after each change of a domain's pods, the second one after each complete list."""
        self._listeners.append(listener)
        if on_list is not None:
            self._list_listeners.append(on_list)

    def newest_by_node(self, domain: str, clique: str | None = None) -> dict[str, DaemonPod]:
        """The newest pod of each node of a domain or clique. A node has two while one terminates or is unreachable."""
        uids = self.by_domain.get(domain, {}) if clique is None else self._by_clique.get((domain, clique), {})
        found: dict[str, DaemonPod] = {}
        for uid in uids:
            pod = self.by_uid[uid]
            other = found.get(pod.node)
            if other is None or _age(pod) > _age(other):
                found[pod.node] = pod
        return found

    # -- the handler of the list-watch

    def list_began(self) -> None:
        self._listed = set()

    def present(self, item: Pod) -> None:
        uid = item.metadata.uid
        if self._listed is not None:
            self._listed.add(uid)
        self.faults.pop(item.metadata.name, None)
        found = read_daemon_pod(item)
        if isinstance(found, str):
            self.faults[item.metadata.name] = found
            found = None
        if found == self.by_uid.get(uid):
            return
        self._remove(uid)
        if found is not None:
            self.ended.pop((found.domain, found.node), None)
            self.by_uid[uid] = found
            self.by_domain.setdefault(found.domain, {})[uid] = None
            self._by_clique.setdefault((found.domain, found.clique), {})[uid] = None
            self._notify(found.domain)

    def deleted(self, item: Pod) -> None:
        self.faults.pop(item.metadata.name, None)
        uid, domain = item.metadata.uid, (item.metadata.labels or {}).get(DOMAIN_LABEL, "")
        if self._listed is not None:
            self._listed.discard(uid)
        known = self.by_uid.get(uid)
        self.gone[uid] = known.domain if known is not None else domain
        self._end(uid)
        self._notify(self.gone[uid])

    def list_completed(self, *, went_back: bool) -> None:
        listed, self._listed = self._listed or set(), None
        self.went_back = self.went_back or went_back
        for uid in [uid for uid in self.by_uid if uid not in listed]:
            self._end(uid)
        self.lists += 1
        for listener in self._list_listeners:
            listener()

    def _end(self, uid: str) -> None:
        """Remove a pod that the cluster has no more."""
        known = self.by_uid.get(uid)
        if known is not None:
            if len(self.ended) >= ENDED_MAX:
                self.ended.clear()
            self.ended[known.domain, known.node] = known.address
        self._remove(uid)

    def _remove(self, uid: str) -> None:
        known = self.by_uid.pop(uid, None)
        if known is None:
            return
        del self.by_domain[known.domain][uid], self._by_clique[known.domain, known.clique][uid]
        if not self.by_domain[known.domain]:
            del self.by_domain[known.domain]
        if not self._by_clique[known.domain, known.clique]:
            del self._by_clique[known.domain, known.clique]
        self._notify(known.domain)

    def _notify(self, domain: str) -> None:
        for listener in self._listeners:
            listener(domain)


def _age(pod: DaemonPod) -> tuple[bool, int, str]:
    return not pod.is_terminating, pod.created_ms, pod.uid
