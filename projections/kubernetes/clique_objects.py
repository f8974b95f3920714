"""The ComputeDomainClique of a clique and the status of a ComputeDomain, from the cliques fold. Pure.

If a node holds an index in the fold, the fold determines the node's row. All other rows come from other writers. Such a
row stays while its node has a pod whose claim is not folded yet. Otherwise the row is removed if its node has left, if
its index is out of range, or if the fold has given the index to another node, whose claim came first. In mode `assign`,
every row whose node has no such pod is removed once the pods have been listed. Upstream's daemons find their row by
nodeName and compare only its address.

Every daemon pod owns the object, so that the garbage collector removes it with the last pod. The fold knows the uid of
a pod, which is the claim's incarnation; the watched pods know its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from eventstore.ids import is_command_id
from projections.cliques.files import FREE_SLOT_ADDRESS
from projections.cliques.state import DEFAULT_CAPACITY, CliqueMember, CliquesState, clique_key
from projections.kubernetes.daemon_pods import DaemonPod, DaemonPods
from schemas.kubernetes.compute_domains import (
    NOT_READY,
    READY,
    CliqueObject,
    DaemonRow,
    DomainObject,
    DomainStatus,
    NodeRow,
)
from schemas.kubernetes.objects import OwnerReference
from schemas.resources.compute_domain import CLIQUE_LABEL, COMPUTE_DOMAIN, COMPUTE_DOMAIN_CLIQUE, DOMAIN_LABEL

POSITION_ANNOTATION = "dpuplane.io/position"
"""The log position that the rows were computed from (GENERATION/OFFSET). Older rows never replace newer rows."""
NO_FABRIC_INDEX = -1

Mode: TypeAlias = Literal["assign", "beside"]
"""`assign`: only the plane writes rows. `beside`: upstream's daemons write rows, too, and these rows are claims."""


class LogPlace(NamedTuple):
    """A position of a cliques partition. The generation orders positions across restores of the log."""

    generation: int
    offset: int

    def __str__(self) -> str:
        return f"{self.generation}/{self.offset}"


class CliqueRows(NamedTuple):
    """The rows that an object should have, the faults of its present rows by node, and the nodes whose rows stay
    without a claim in the fold."""

    rows: list[DaemonRow]
    faults: Mapping[str, str]
    unclaimed: frozenset[str]


class CliqueWrite(NamedTuple):
    """A write of an object: a whole body, or its deletion."""

    body: dict[str, Any] | None
    is_create: bool = False


class CliqueId(NamedTuple):
    """The identity of a clique: the uid of its domain, and the id of the clique in the domain."""

    domain: str
    clique: str

    @property
    def key(self) -> str:
        return clique_key(self.domain, self.clique)

    @property
    def object_name(self) -> str:
        return f"{self.domain}.{self.clique}"


def domain_of(found: CliqueObject) -> str:
    """The domain of an object: by its label, else by its name."""
    return (found.metadata.labels or {}).get(DOMAIN_LABEL) or found.metadata.name.partition(".")[0]


def node_name(node: str) -> str:
    """The name of the Node object for a node of the fold. The fold may name the node SOURCE/NAME."""
    return node.rpartition("/")[2]


def place_of(found: CliqueObject | None) -> LogPlace:
    """The position that the rows of an object were computed from; the lowest if there is none."""
    text = ((found.metadata.annotations or {}) if found is not None else {}).get(POSITION_ANNOTATION, "")
    generation, _, offset = text.partition("/")
    is_valid = generation.isdecimal() and offset.isdecimal() and text.isascii()
    return LogPlace(int(generation), int(offset)) if is_valid else LogPlace(-1, -1)


def clique_rows(
    state: CliquesState, of: CliqueId, shown: CliqueObject | None, pods: DaemonPods, mode: Mode
) -> CliqueRows:
    """The rows of a clique's object. `shown` is the present object; None if it does not exist.

    A missing object is not created for deleted pods, whose claims are about to end. Without an owner that exists, the
    garbage collector would never delete it.
    """
    if shown is None and _are_deleted(state, of, pods):
        return CliqueRows([], {}, frozenset())
    live = pods.newest_by_node(of.domain, of.clique)
    rows: dict[str, DaemonRow] = {}
    faults: dict[str, str] = {}
    for index, member, name in _holders(state, of):
        if name in rows:
            faults[name] = f"node: {name!r} has two claims, under names with and without a source"
            continue
        known = shown.row(name) if shown is not None else None
        row = DaemonRow(name, member.address or FREE_SLOT_ADDRESS, of.clique, index, _status(member))
        if known is not None and known.index not in (None, index):
            faults[name] = f"index: {known.index} was shown for node {name!r}, which holds {index}; restart its daemon"
        if mode == "beside":
            pod = live.get(name)
            if known is None and shown is not None and _is_ending(member, pod):
                continue  # its daemon or upstream's controller has removed the row
            if known is not None and _is_row_of_another_pod(known, index, member, pod):
                row = known
            if known is not None and _is_newer_readiness(known, row, member, pod):
                row = replace(row, status=READY)
        rows[name] = row
    is_leftover_kept = mode == "beside" or not pods.lists
    foreign = _foreign_rows(state, of, shown, rows, pods, is_leftover_kept=is_leftover_kept)
    faults |= foreign.faults
    return CliqueRows(sorted([*rows.values(), *foreign.rows], key=_by_index), faults, foreign.unclaimed)


def clique_write(
    of: CliqueId,
    found: CliqueRows,
    shown: CliqueObject | None,
    *,
    owners: list[OwnerReference],
    namespace: str,
    place: LogPlace,
    is_domain_gone: bool = False,
) -> CliqueWrite | None:
    """The write that gives an object these rows and owners; None if the object needs no write.

    The garbage collector keeps an object without owners. Without rows and owners, the object is deleted only after its
    domain is gone, because starting daemons create the object without rows.
    """
    labels = {DOMAIN_LABEL: of.domain, CLIQUE_LABEL: of.clique}
    if shown is None:
        if not found.rows:
            return None
        metadata: dict[str, Any] = {"name": of.object_name, "namespace": namespace, "labels": labels}
    else:
        about = shown.metadata
        if about.deletion_timestamp is not None:
            return None
        if is_domain_gone and not found.rows and not owners:
            return CliqueWrite(None)
        has_rows = {row.node_name: row for row in shown.daemons or ()} == {row.node_name: row for row in found.rows}
        has_labels = labels.items() <= (about.labels or {}).items()
        if has_rows and has_labels and owners == (about.owner_references or []):
            return None
        metadata = {
            "name": about.name,
            "namespace": about.namespace,
            "uid": about.uid,
            "resourceVersion": about.resource_version,
            "labels": (about.labels or {}) | labels,
            "annotations": dict(about.annotations or {}),
            "finalizers": about.finalizers or [],
        }
    metadata["annotations"] = metadata.get("annotations", {}) | {POSITION_ANNOTATION: str(place)}
    metadata["ownerReferences"] = [_reference_json(owner) for owner in owners]
    body = {
        "apiVersion": COMPUTE_DOMAIN_CLIQUE.api_version,
        "kind": COMPUTE_DOMAIN_CLIQUE.name,
        "metadata": metadata,
        "daemons": [_row_json(row) for row in found.rows],
    }
    return CliqueWrite(body, is_create=shown is None)


def owners_of(
    state: CliquesState, of: CliqueId, shown: CliqueObject | None, pods: DaemonPods, namespace: str
) -> list[OwnerReference]:
    """The owners of a clique's object: its present owners except deleted pods, and the pods of its rows.

    An object without rows, or with rows of deleted pods only, keeps its owners, so that the garbage collector finds all
    of them gone.
    """
    uids = {member.uid: None for _, member, _ in _holders(state, of)}
    owners = list((shown.metadata.owner_references if shown is not None else None) or ())
    if uids and pods.lists and not _are_deleted(state, of, pods):
        owners = [owner for owner in owners if owner.kind != "Pod" or owner.uid in pods.by_uid or owner.uid in uids]
    present = {owner.uid for owner in owners}
    for uid in uids:
        pod = pods.by_uid.get(uid)
        if pod is not None and pod.namespace == namespace and uid not in present:
            owners.append(OwnerReference("v1", "Pod", pod.name, uid))
    return owners


def domain_status(state: CliquesState, domain: DomainObject, pods: DaemonPods) -> DomainStatus:
    """The status of a domain: the nodes of its cliques, then the nodes without a fabric. It is ready if it has at least
    `numNodes` nodes, and all of them are ready.

    A row stays while its pod's claim is not in the fold yet: the claim requests the index of this row.
    """
    uid = domain.metadata.uid
    nodes: dict[str, NodeRow] = {}
    for key in sorted(state.domains.get(uid, ())):
        of = CliqueId(uid, key.partition("/")[2])
        for index, member, name in _holders(state, of):
            address = member.address or FREE_SLOT_ADDRESS
            nodes.setdefault(name, NodeRow(name, address, of.clique, index, _status(member)))
    for row in (domain.status.nodes if domain.status is not None else None) or ():
        if row.name not in nodes and _is_claiming(state, CliqueId(uid, row.clique_id), row.name, pods):
            nodes[row.name] = row
    for name, pod in sorted(pods.newest_by_node(uid, "").items()):
        if name and pod.address and name not in nodes:
            status = READY if pod.is_ready else NOT_READY
            nodes[name] = NodeRow(name, pod.address, "", NO_FABRIC_INDEX, status)
    is_ready = len(nodes) >= domain.spec.num_nodes and all(row.status == READY for row in nodes.values())
    return DomainStatus(READY if is_ready else NOT_READY, list(nodes.values()))


def domain_status_body(domain: DomainObject, wanted: DomainStatus) -> dict[str, Any] | None:
    """The object to PUT to the status of a domain; None if the domain has this status already."""
    shown = domain.status
    if shown is not None and shown.status == wanted.status and _by_name(shown) == _by_name(wanted):
        return None
    about = domain.metadata
    nodes = [
        {
            "name": row.name,
            "ipAddress": row.ip_address,
            "cliqueID": row.clique_id,
            "index": row.index,
            "status": row.status,
        }
        for row in wanted.nodes or ()
    ]
    return {
        "apiVersion": COMPUTE_DOMAIN.api_version,
        "kind": COMPUTE_DOMAIN.name,
        "metadata": {
            "name": about.name,
            "namespace": about.namespace,
            "uid": about.uid,
            "resourceVersion": about.resource_version,
        },
        "status": {"status": wanted.status, "nodes": nodes},
    }


def _by_name(status: DomainStatus) -> dict[str, NodeRow]:
    return {row.name: row for row in status.nodes or ()}


def _by_index(row: DaemonRow) -> tuple[int, str]:
    return row.index or 0, row.node_name


def _holders(state: CliquesState, of: CliqueId) -> Iterator[tuple[int, CliqueMember, str]]:
    """The index, row and Node name of each node that holds an index."""
    found = state.cliques.get(of.key)
    for index, node in sorted(found.holders.items()) if found is not None else ():
        yield index, state.members.rows[f"{of.key}/{node}"], node_name(node)


def _are_deleted(state: CliquesState, of: CliqueId, pods: DaemonPods) -> bool:
    """Whether the pods of all claims of a clique were deleted."""
    return all(member.uid in pods.gone for _, member, _ in _holders(state, of))


def _is_claiming(state: CliquesState, of: CliqueId, name: str, pods: DaemonPods) -> bool:
    """Whether a node has a pod that can claim an index of a clique, and the fold has no claim of the node."""
    pod = pods.newest_by_node(of.domain, of.clique).get(name)
    if pod is None or not pod.can_claim:
        return False
    found = state.cliques.get(of.key)
    return found is None or all(node_name(node) != name for node in (*found.holders.values(), *found.queue))


def _status(member: CliqueMember) -> str:
    return READY if member.ready else NOT_READY


def _is_newer_readiness(known: DaemonRow, row: DaemonRow, member: CliqueMember, pod: DaemonPod | None) -> bool:
    """Whether a daemon's row shows readiness that the log lacks. Its pod must be ready, and be the pod of the claim."""
    return (
        known.status == READY
        and known.ip_address == row.ip_address
        and pod is not None
        and pod.is_ready
        and pod.uid == member.uid
        and (member.session_alive or not member.session)
    )


def _is_ending(member: CliqueMember, pod: DaemonPod | None) -> bool:
    """Whether the pod of a claim terminates or is not known. A claim of a caller without a pod has a command id."""
    return pod.is_terminating if pod is not None else not is_command_id(member.uid)


def _is_row_of_another_pod(known: DaemonRow, index: int, member: CliqueMember, pod: DaemonPod | None) -> bool:
    """Whether a row with the index of a claim is that of the node's newest pod, whose own claim is not folded yet or
    was refused. Its daemon would replace another address again."""
    return pod is not None and pod.uid != member.uid and (known.index, known.ip_address) == (index, pod.address)


def _daemons(shown: CliqueObject | None) -> Sequence[DaemonRow]:
    return (shown.daemons if shown is not None else None) or ()


def _foreign_rows(
    state: CliquesState,
    of: CliqueId,
    shown: CliqueObject | None,
    held: Mapping[str, DaemonRow],
    pods: DaemonPods,
    *,
    is_leftover_kept: bool,
) -> CliqueRows:
    """The rows of an object that stay without a claim in the fold. In mode `beside`, a row without a pod stays too,
    because the watch may report a daemon's row before its pod. If the node has left, a row with another address than
    that of its last pod stays too: it may be the row of a new daemon. A row with a faulty index stays while the claim
    of its pod is not folded yet. Without a row, the daemon would choose an index itself.
    """
    found = state.cliques.get(of.key)
    left = {node_name(node) for node in found.left} if found is not None else set()
    member_names = {node_name(node) for node in found.holders.values()} if found is not None else set()
    waiting = {node_name(node) for node in found.queue} if found is not None else set()
    live = pods.newest_by_node(of.domain, of.clique)
    capacity = found.capacity if found is not None else DEFAULT_CAPACITY
    by_index = {row.index: row.node_name for row in held.values()}
    rows: list[DaemonRow] = []
    faults: dict[str, str] = {}
    for row in _daemons(shown):
        name, index = row.node_name, row.index
        if name in held or name in member_names:
            continue
        if index is None or not 0 <= index < capacity:
            faults[name] = f"index: {index} of node {name!r} must be from 0 to {capacity - 1}"
        elif index in by_index:
            faults[name] = f"index: {index} of node {name!r} is held by node {by_index[index]!r}, the older claim"
        has_ended = pods.ended.get((of.domain, name)) == row.ip_address
        is_claiming = name in live and live[name].can_claim and name not in waiting
        is_leftover = is_leftover_kept and not (name in left and has_ended) and name not in faults
        if is_claiming or is_leftover:
            rows.append(row)
    return CliqueRows(rows, faults, frozenset(row.node_name for row in rows))


def _row_json(row: DaemonRow) -> dict[str, Any]:
    return {
        "nodeName": row.node_name,
        "ipAddress": row.ip_address,
        "cliqueID": row.clique_id,
        "index": row.index,
        "status": row.status,
    }


def _reference_json(owner: OwnerReference) -> dict[str, Any]:
    found: dict[str, Any] = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
    }
    if owner.controller is not None:
        found["controller"] = owner.controller
    if owner.block_owner_deletion is not None:
        found["blockOwnerDeletion"] = owner.block_owner_deletion
    return found
