"""Decisions on claims, and assignment of a freed index to a waiting node.

A claim gets the index that its node holds; else the index it last held, if free; else the lowest free index; else a
place at the end of the queue. A claim may request an index, for example when existing rows are imported. It then gets
that index or is refused. The index of a running incarnation never changes, because a daemon reads its index only at
start.

Every claim names an incarnation of its node, (created_ms, uid). A claim of an incarnation older than the stored one
changes nothing. If two incarnations were created at the same time (Kubernetes counts seconds), the later one in the log
is the newer. A node is in one clique of a domain, so the claim of a newer incarnation in another clique frees the index
of the older one. Two live pods never share an address. If two pods claim the same address, the newer pod gets it, and
the row of the older pod loses it. Otherwise peers would connect to the wrong pod.
"""

from __future__ import annotations

from msgspec.structs import replace

from eventstore.folding.fold import Decision, Outcome, RecordMetadata, refusal
from eventstore.reasons import Fault, Reason
from projections.cliques.items import Claim, Incarnation
from projections.cliques.state import (
    MAX_LEFT,
    MAX_LEFT_PER_CLIQUE,
    MAX_QUEUE,
    Clique,
    CliqueMember,
    CliquesChange,
    CliquesState,
    Since,
    clique_key,
    lowest_free,
    split_key,
)
from projections.field_checks import quoted
from projections.incarnations import is_older
from schemas.events import Envelope

ClaimRows = dict[str, CliqueMember | None]
"""Rows to be applied, in this order."""


def issued_ms(envelope: Envelope, at: RecordMetadata) -> int:
    """The time at which a record was issued, capped at the log's time: a fast clock must not block the records of
    others."""
    return min(envelope.issued_at_ms, at.time_ms)


def is_late_copy(envelope: Envelope, since_ms: int) -> bool:
    """Whether a record may be a duplicate that arrived late: an internal event that was issued before `since_ms`.

    The ledger drops duplicates of commands, but not of internal events, which have no command id.
    """
    return not envelope.command_id and envelope.issued_at_ms < since_ms


def claim(state: CliquesState, item: Claim, at: RecordMetadata) -> Decision:
    """The decision about one claim of a record. `state` already contains the effects of the claims before it."""
    fault = _outdated(state, item, at)
    if fault is not None:
        return refusal(fault)
    key = clique_key(item.domain, item.clique)
    current = state.member(key, item.node)
    clique = state.cliques.get(key) or Clique()
    if current is not None and current.uid == item.pod.uid and current.claim_state != "left":
        return _repeat_claim(state, item, current, at)
    index = _index(clique, item, current)
    if isinstance(index, str):
        return refusal(index)
    rows = _release_elsewhere(state, item, key, at)
    row = _new_row(current, item, index)
    row = replace(row, address=_address(state, item, item.pod, rows, at), issued_ms=issued_ms(item.envelope, at))
    rows.pop(f"{key}/{item.node}", None)
    rows[f"{key}/{item.node}"] = row
    place = len(clique.queue) + (item.node not in clique.queue)
    return Decision(CliquesChange(tuple(rows.items())), _outcome(clique, index, place))


def release(state: CliquesState, key: str, member: CliqueMember, said: int, since: Since) -> ClaimRows:
    """The rows that a release changes: evicted rows, the member's own row, and the row of the node that gets its
    index."""
    clique_id = split_key(key)[0]
    clique = state.cliques[clique_id]
    rows: ClaimRows = dict.fromkeys(_forgotten(state, clique_id))
    rows[key] = CliqueMember("left", member.last, since, "", member.created_ms, member.uid, said)
    if member.claim_state == "holds":
        rows |= assign_waiting(state, clique_id, clique.used & ~(1 << member.last), clique.capacity, since)
    return rows


def assign_waiting(state: CliquesState, clique_id: str, used: int, capacity: int, since: Since) -> ClaimRows:
    """Rows of the waiting nodes that get an index, in queue order. `used` has a bit for each index in use; `capacity`
    is the number of indices."""
    rows: ClaimRows = {}
    clique = state.cliques.get(clique_id)
    for node in clique.queue if clique else ():
        if used.bit_count() == capacity:
            break
        key = f"{clique_id}/{node}"
        waiter = state.members.rows[key]
        is_last_free = 0 <= waiter.last < capacity and not used >> waiter.last & 1
        index = waiter.last if is_last_free else lowest_free(used)
        used |= 1 << index
        rows[key] = replace(waiter, claim_state="holds", last=index, since=since)
    return rows


def _outdated(state: CliquesState, item: Claim, at: RecordMetadata) -> str | None:
    """Why a claim is refused because its incarnation is outdated or is in another clique; None if it is neither."""
    key, pod = clique_key(item.domain, item.clique), item.pod
    home = state.home(item.domain, item.node) or key
    for where in dict.fromkeys((key, home)):
        known = state.member(where, item.node)
        if known is None:
            continue
        is_late = is_late_copy(item.envelope, known.issued_ms)
        if known.uid != pod.uid:
            if is_older(pod.created_ms, known.created_ms, at.time_ms) or (
                pod.created_ms == known.created_ms and is_late
            ):
                reason = (
                    f"uid: {quoted(pod.uid)} is older than {quoted(known.uid)}, the newest uid of node {item.node!r}"
                )
                return Fault(reason, Reason.INCARNATION_OUTDATED, node=item.node, uid=known.uid)
        elif known.claim_state == "left" and is_late:
            reason = f"uid: {quoted(pod.uid)} of node {item.node!r} was released later"
            return Fault(reason, Reason.INCARNATION_OUTDATED, node=item.node)
        elif known.claim_state != "left" and where != key:
            reason = f"clique: {item.clique!r} must be the clique of uid {quoted(pod.uid)}, {where!r}"
            return Fault(reason, Reason.CLAIM_IN_OTHER_CLIQUE, node=item.node, clique=where)
    return None


def _repeat_claim(state: CliquesState, item: Claim, current: CliqueMember, at: RecordMetadata) -> Decision:
    """A repeated claim of an incarnation that holds an index or waits. Only the address can change. A new address makes
    the member unready."""
    key = clique_key(item.domain, item.clique)
    clique = state.cliques[key]
    held = current.last if current.claim_state == "holds" else -1
    if item.requested_index not in (-1, held):
        fault = _requested_index_fault(clique, item, held)
        assert fault is not None, f"{key}: {item.node} waits while {item.requested_index} is free"
        return refusal(fault)
    place = 0 if held >= 0 else list(clique.queue).index(item.node) + 1
    outcome = _outcome(clique, held, place)
    if not item.address or is_late_copy(item.envelope, current.issued_ms):
        return Decision(None, outcome)
    rows: ClaimRows = {}
    address = _address(state, item, Incarnation(current.created_ms, current.uid), rows, at)
    if address == current.address:
        return Decision(None, outcome)
    said = max(issued_ms(item.envelope, at), current.issued_ms)
    rows[f"{key}/{item.node}"] = replace(current, address=address, issued_ms=said, ready=False, ready_ms=said)
    return Decision(CliquesChange(tuple(rows.items())), outcome)


def _index(clique: Clique, item: Claim, current: CliqueMember | None) -> int | str:
    """The index for a new incarnation, -1 for a place in the queue, or the reason for a refusal."""
    held = current.last if current is not None and current.claim_state == "holds" else -1
    if item.requested_index >= 0 and item.requested_index != held:
        return _requested_index_fault(clique, item, -1) or item.requested_index
    if held >= 0:
        return held
    if current is not None and clique.is_free(current.last):
        return current.last
    if not clique.is_full:
        return lowest_free(clique.used)
    if len(clique.queue) >= MAX_QUEUE and item.node not in clique.queue:
        reason = f"clique: {item.clique!r} has {MAX_QUEUE} nodes in its queue, the limit"
        return Fault(reason, Reason.LIMIT_REACHED, limit=MAX_QUEUE)
    return -1


def _requested_index_fault(clique: Clique, item: Claim, running: int) -> str | None:
    """Why a requested index is refused. `running` is the index that the claiming incarnation holds, or -1."""
    index = item.requested_index
    if index >= clique.capacity:
        reason = f"requested_index: {index} must be from 0 to {clique.capacity - 1}, the clique's capacity less 1"
        return Fault(reason, Reason.INDEX_OUT_OF_RANGE, index=index, capacity=clique.capacity)
    if index in clique.holders:
        reason = f"requested_index: {index} is held by node {clique.holders[index]!r}, and a claim cannot take it over"
        return Fault(reason, Reason.INDEX_IN_USE, index=index, node=clique.holders[index])
    if running >= 0:
        reason = f"requested_index: {index} cannot replace {running}, which node {item.node!r} holds while its pod runs"
        return Fault(reason, Reason.INDEX_FIXED, index=running, node=item.node)
    return None


def _release_elsewhere(state: CliquesState, item: Claim, key: str, at: RecordMetadata) -> ClaimRows:
    home = state.home(item.domain, item.node)
    if home is None or home == key:
        return {}
    old_key = f"{home}/{item.node}"
    return release(state, old_key, state.members.rows[old_key], issued_ms(item.envelope, at), item.since)


def _address(state: CliquesState, item: Claim, pod: Incarnation, rows: ClaimRows, at: RecordMetadata) -> str:
    """The address for the claimant. If an older pod has this address, `rows` gets that pod's row without the address.

    A claim without an address and without a pod refers to the node's present pod, and keeps its address. A new pod has
    an address of its own, so a claim that names a pod never inherits the address of the former pod.
    """
    if not item.address:
        return "" if item.names_pod else _known_address(state, item)
    other_key = state.addresses.get(f"{item.domain}/{item.address}")
    if other_key is None or split_key(other_key)[1] == item.node:
        return item.address
    other = rows.get(other_key) or state.members.rows[other_key]
    if is_older(pod.created_ms, other.created_ms, at.time_ms):
        return ""
    rows[other_key] = replace(other, address="", ready=False)
    return item.address


def _known_address(state: CliquesState, item: Claim) -> str:
    """The address of the node's claim in any clique of the domain."""
    home = state.home(item.domain, item.node)
    known = state.member(home, item.node) if home is not None else None
    return known.address if known is not None else ""


def _new_row(current: CliqueMember | None, item: Claim, index: int) -> CliqueMember:
    """The row of a new incarnation. It is not ready yet, even if the former one was."""
    if index < 0:
        return CliqueMember("waits", current.last if current is not None else -1, item.since, "", *item.pod, 0)
    keeps_index = current is not None and current.claim_state == "holds" and current.last == index
    since = current.since if current is not None and keeps_index else item.since
    return CliqueMember("holds", index, since, "", *item.pod, 0)


def _outcome(clique: Clique, index: int, place: int) -> Outcome:
    """The outcome of a claim. The text for a waiting node is upstream's, because users search for it."""
    if index >= 0:
        return Outcome("done", result={"index": index})
    return Outcome(
        "waiting",
        f"no available indices within maxNodesPerIMEXDomain ({clique.capacity})",
        {"queue_position": place},
    )


def _forgotten(state: CliquesState, clique_id: str) -> list[str]:
    """Released members to evict, so that one more can be remembered."""
    left = state.cliques[clique_id].left
    if len(left) >= MAX_LEFT_PER_CLIQUE:
        return [f"{clique_id}/{next(iter(left))}"]
    return [next(iter(state.left))] if len(state.left) >= MAX_LEFT else []
