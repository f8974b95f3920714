"""The objects of cliques in source clusters: each write of the plane has the rows of the fold at the log position that
the write names, and leaves the rows of foreign daemons alone.

The rows of the fold are taken from the steps of the log, not from the code that computes the objects.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from math import inf
from typing import Any, NamedTuple

from eventstore.log import CLIQUES
from projections.cliques.state import CliqueMember
from schemas.resources.compute_domain import CLIQUE_LABEL, COMPUTE_DOMAIN, COMPUTE_DOMAIN_CLIQUE, DOMAIN_LABEL
from tests.simulation.checkers.evidence import Evidence
from tests.simulation.history import CliqueCommitted, CliqueModeSet, FinalObject, ServerRestored

Found = Iterator[str]

AMPLIFICATION = 1.1
"""Maximum writes of an object per change of its content, also under faults."""
REPEATED_MIN = 4
"""Repeated writes that a short run may have, whatever its number of changes."""
NO_ADDRESS = "127.0.0.2"
"""The address in the row of a node whose claim has none."""


class _Held(NamedTuple):
    """The claims of a clique that hold an index, by node, from a position on."""

    position: int
    members: Mapping[str, CliqueMember]


def check_rows(run: Evidence) -> Found:
    """I29: the plane writes each claimed index, and no other, and changes no row without a claim. It removes the row of
    a foreign daemon only after the pod of the daemon, or if an older claim has its index. After a restore, a deleted
    pod may live again. In mode `beside`, it leaves
    the address of a pod without a claim in the row of its node.
    """
    timelines = _timelines(run)
    restored_s = min((restore.at_s for restore in run.history.of(ServerRestored)), default=inf)
    for write in _writes(run):
        where = f"{write.name} at {write.at_s:.1f} s by {write.writer}"
        rows, before = _rows(write.after), _rows(write.before)
        if write.after is None:
            lost = [row for node, row in before.items() if write.live.get(node) == row["ipAddress"]]
            yield from (f"{where}: the object was deleted with {row}, and the pod of its daemon lives" for row in lost)
            continue
        held = _held_at(timelines.get(write.name, ()), write.place)
        indices = {member.last for member in held.values()}
        claimed = [rows[node].get("index") for node in held if node in rows]
        if len(set(claimed)) < len(claimed):
            yield f"{where}: the indices {sorted(map(str, claimed))} are not unique"
        for node, member in held.items():
            shown, wanted = _shown(rows.get(node)), (member.last, member.address or NO_ADDRESS)
            if shown is None and node not in before:
                continue  # a daemon that stops has removed its own row
            is_row_of_another_pod = shown == (member.last, write.live.get(node)) == _shown(before.get(node))
            if shown != wanted and not is_row_of_another_pod:
                yield f"{where}: node {node} has {shown} in its row, and {wanted} in the log at {write.place}"
        for node, row in rows.items():
            if node not in held and row != before.get(node):
                yield f"{where}: node {node} has no claim, and its row changed from {before.get(node)} to {row}"
        for node in before.keys() - rows.keys() - held.keys():
            if before[node].get("index") in indices or write.at_s >= restored_s:
                continue
            if write.mode == "beside" and write.live.get(node) == before[node]["ipAddress"]:
                yield f"{where}: the row {before[node]} was removed, and the pod of its daemon lives"


def check_amplification(run: Evidence) -> Found:
    """I29: at most a tenth of the plane's writes leave an object as it is."""
    writes = _writes(run)
    repeated = [write for write in writes if write.before == write.after]
    if len(repeated) > max(REPEATED_MIN, (AMPLIFICATION - 1) * (len(writes) - len(repeated))):
        shown = sorted({write.name for write in repeated})[:3]
        yield f"{len(repeated)} of {len(writes)} writes of cliques changed nothing: {shown}"


def check_claims(run: Evidence) -> Found:
    """I29, at rest: each daemon pod of a domain has a claim with its address, and each claim has a pod. In a domain
    without any pod, and after a restore of the API server, claims may stay without a pod. After a restore, a pod may be
    older than the claim of its node, or have the address of a claim without a pod.
    """
    pods = {pod["metadata"]["uid"]: pod for pod in _final(run, "pods")}
    domains = {domain["metadata"]["uid"]: domain for domain in _final(run, COMPUTE_DOMAIN.plural)}
    members, was_restored = dict(_members(run)), bool(run.history.of(ServerRestored))
    claims = {member.uid: (key, member) for key, member in members.items() if member.claim_state != "left"}
    for uid, pod in pods.items():
        labels, node = pod["metadata"]["labels"], pod["spec"]["nodeName"]
        address = (pod.get("status") or {}).get("podIP", "")
        domain = domains.get(labels[DOMAIN_LABEL])
        if domain is None or _is_deleted(domain) or _is_deleted(pod) or not address or not labels.get(CLIQUE_LABEL):
            continue
        wanted = f"{labels[DOMAIN_LABEL]}/{labels[CLIQUE_LABEL]}/{node}"
        key, member = claims.get(uid, ("", None))
        newer = members.get(wanted)
        if was_restored and newer is not None and (newer.uid != uid or not newer.address):
            continue
        if member is None or member.claim_state != "holds" or (key, member.address) != (wanted, address):
            yield f"pod {uid} of {wanted} with {address} has the claim {key} {member}"
    if not was_restored:
        for uid, (key, _) in claims.items():
            domain_uid = key.partition("/")[0]
            has_pods = any(pod["metadata"]["labels"][DOMAIN_LABEL] == domain_uid for pod in pods.values())
            if domain_uid in domains and has_pods and uid not in pods:
                yield f"claim {key} has the pod {uid}, which exists no more"


def check_shown(run: Evidence) -> Found:
    """I29, at rest: the object of each clique has exactly the rows of the fold, and unique indices. In mode `assign`,
    the status of the domain has them too. In mode `beside`, a claim without its pod may have no row, or the row of
    another pod of its node. A row without a claim may stay while its node has a pod of any domain: upstream's
    controller keeps it too. After a restore, the row of a pod whose claim is refused may stay.
    """
    cliques = {clique["metadata"]["name"]: clique for clique in _final(run, COMPUTE_DOMAIN_CLIQUE.plural)}
    pods = _final(run, "pods")
    uids = {pod["metadata"]["uid"] for pod in pods}
    modes = run.history.of(CliqueModeSet)
    is_assigning = bool(modes) and modes[-1].mode == "assign"
    wanted: defaultdict[str, dict[str, tuple[Any, ...]]] = defaultdict(dict)
    is_strict = is_assigning and not run.history.of(ServerRestored)
    with_pods: frozenset[str] = frozenset() if is_strict else frozenset(pod["spec"]["nodeName"] for pod in pods)
    strict: defaultdict[str, set[str]] = defaultdict(set)
    loose: defaultdict[str, set[str]] = defaultdict(set)
    for key, member in _members(run):
        if member.claim_state == "holds":
            uid, clique, node = key.split("/", 2)
            status = "Ready" if member.ready else "NotReady"
            wanted[f"{uid}.{clique}"][node] = (member.last, member.address or NO_ADDRESS, clique, status)
            is_shown = is_assigning or member.uid in uids
            (strict if is_shown else loose)[f"{uid}.{clique}"].add(node)
    for domain in _final(run, COMPUTE_DOMAIN.plural):
        uid = domain["metadata"]["uid"]
        if _is_deleted(domain):
            continue
        for name in sorted({*wanted, *cliques}):
            if name.partition(".")[0] == uid:
                yield from _object_faults(
                    name, cliques.get(name), wanted.get(name, {}), loose[name] | (with_pods - strict[name])
                )
        if is_assigning:
            rows = {node: row for name in wanted if name.startswith(f"{uid}.") for node, row in wanted[name].items()}
            if is_strict:
                yield from _status_faults(domain, rows, pods)


def _object_faults(
    name: str, clique: Mapping[str, Any] | None, wanted: Mapping[str, tuple[Any, ...]], loose: Set[str]
) -> Found:
    rows = (clique or {}).get("daemons") or []
    shown = {row["nodeName"]: (row.get("index"), row["ipAddress"], row["cliqueID"], row["status"]) for row in rows}
    compared = [{node: row for node, row in each.items() if node not in loose} for each in (shown, wanted)]
    if compared[0] != compared[1] or any(
        shown[node][0] != wanted[node][0] for node in loose & shown.keys() & wanted.keys()
    ):
        yield f"clique {name} shows {shown}, and the folds have {dict(wanted)}"
    if len({row.get("index") for row in rows}) < len(rows):
        yield f"clique {name} shows an index twice: {shown}"
    labels = (clique or {"metadata": {}})["metadata"].get("labels") or {}
    if wanted and f"{labels.get(DOMAIN_LABEL)}.{labels.get(CLIQUE_LABEL)}" != name:
        yield f"clique {name} has the labels {labels}"


def _status_faults(
    domain: Mapping[str, Any], rows: Mapping[str, tuple[Any, ...]], pods: list[Mapping[str, Any]]
) -> Found:
    about, status = domain["metadata"], domain.get("status") or {}
    wanted = dict(rows)
    for pod in pods:
        labels, found = pod["metadata"]["labels"], pod.get("status") or {}
        if labels[DOMAIN_LABEL] == about["uid"] and labels.get(CLIQUE_LABEL) == "" and found.get("podIP"):
            is_ready = any(each["status"] == "True" for each in found["conditions"])
            wanted[pod["spec"]["nodeName"]] = (-1, found["podIP"], "", "Ready" if is_ready else "NotReady")
    nodes = status.get("nodes") or []
    shown = {node["name"]: (node.get("index"), node["ipAddress"], node["cliqueID"], node["status"]) for node in nodes}
    if shown != wanted:
        yield f"domain {about['name']} shows {shown}, and the folds and pods have {wanted}"
    is_ready = len(wanted) >= domain["spec"]["numNodes"] and all(row[-1] == "Ready" for row in wanted.values())
    if (status.get("status") == "Ready") != is_ready:
        yield f"domain {about['name']} shows {status.get('status')}, and its nodes are {wanted}"


def _writes(run: Evidence) -> list[CliqueCommitted]:
    """The writes of the plane."""
    return [write for write in run.history.of(CliqueCommitted) if write.mode]


def _rows(content: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = content["rows"] if content is not None else {}
    return rows


def _shown(row: Mapping[str, Any] | None) -> tuple[Any, Any] | None:
    return None if row is None else (row.get("index"), row.get("ipAddress"))


def _timelines(run: Evidence) -> dict[str, list[_Held]]:
    """The claims that hold an index after each record that changed them, by the name of the clique's object."""
    found: defaultdict[str, list[_Held]] = defaultdict(list)
    for partition, steps in run.steps.items():
        if partition.topic != CLIQUES:
            continue
        for step in steps:
            changed: defaultdict[str, dict[str, CliqueMember | None]] = defaultdict(dict)
            for key, row in step.rows.get("members", ()):
                domain, clique, node = key.split("/", 2)
                changed[f"{domain}.{clique}"][node] = row if row is not None and row.claim_state == "holds" else None
            for name, members in changed.items():
                before = found[name][-1].members if found[name] else {}
                merged = {**before, **members}
                held = {node: row for node, row in merged.items() if row is not None}
                found[name].append(_Held(step.position, held))
    return found


def _held_at(timeline: list[_Held] | tuple[()], place: str) -> Mapping[str, CliqueMember]:
    """The claims at a log position, which is written GENERATION/OFFSET."""
    count = bisect_right([held.position for held in timeline], int(place.partition("/")[2] or 0))
    return timeline[count - 1].members if count else {}


def _members(run: Evidence) -> Iterator[tuple[str, CliqueMember]]:
    for partition, folded in run.folded.items():
        if partition.topic == CLIQUES:
            yield from folded.state.members.rows.items()


def _final(run: Evidence, kind: str) -> list[Mapping[str, Any]]:
    return [item.body for item in run.history.of(FinalObject) if item.kind == kind]


def _is_deleted(found: Mapping[str, Any]) -> bool:
    return bool(found["metadata"].get("deletionTimestamp"))
