"""Decisions on claims, and assignment of a freed index to a waiting node.

A claim gets the index that its node holds; else the index it last held, if free; else the lowest free index; else a
place at the end of the queue. A claim may request an index, as an import of rows does: it gets that index or is
refused. The index of a running incarnation never changes, because a daemon reads its own only at start.

Every claim names an incarnation of its node, (created_ms, uid). A claim of an incarnation older than the stored one
changes nothing. Of two created at the same time (Kubernetes counts seconds) the later one in the log is the newer. A
node is in one clique of a domain, so the claim of a newer incarnation in another clique frees the index of the older
one. Two live pods never share an address. If two claim the same one, the newer pod gets it and the other row loses it;
otherwise peers would connect to the wrong pod.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from eventstore.folding.fold import Decision, Outcome, RecordMetadata, refusal
from eventstore.reasons import Fault, Reason
from projections.cliques.state import (
    MAX_LEFT,
    MAX_LEFT_PER_CLIQUE,
    MAX_QUEUE,
    Clique,
    CliqueMember,
    CliquesChange,
    CliquesState,
    clique_key,
    lowest_free,
    split_key,
)
from projections.field_checks import (
    MAX_AHEAD_MS,
    BadAddress,
    check_clique,
    check_name,
    check_uid,
    parse_address,
    quoted,
)
from projections.incarnations import is_older
from schemas.events import Envelope, IndexClaimed

ClaimRows = dict[str, CliqueMember | None]
"""Rows to be applied, in this order."""


class Incarnation(NamedTuple):
    """An incarnation of a node."""

    created_ms: int
    uid: str


def issued_ms(envelope: Envelope, at: RecordMetadata) -> int:
    """The time at which a record was issued, capped at the log's time: a fast clock must not block the records of
    others."""
    return min(envelope.issued_at_ms, at.time_ms)


def is_late_copy(envelope: Envelope, since_ms: int) -> bool:
    """Whether a record was issued before `since_ms`. A command is in the log once; an internal event may be there
    again."""
    return not envelope.command_id and envelope.issued_at_ms < since_ms


def claim(state: CliquesState, event: IndexClaimed, at: RecordMetadata) -> Decision:
    pod = _pod(event)
    fault = _fault(event, pod, at) or _outdated(state, event, pod, at)
    if fault is not None:
        return refusal(fault)
    key = clique_key(event.domain, event.clique)
    current = state.member(key, event.node)
    clique = state.cliques.get(key) or Clique()
    if current is not None and current.uid == pod.uid and current.claim_state != "left":
        return _repeat_claim(state, event, current, at)
    index = _index(clique, event, current)
    if isinstance(index, str):
        return refusal(index)
    rows = _release_elsewhere(state, event, key, at)
    row = _new_row(current, pod, index, at)
    row = replace(row, address=_address(state, event, pod, rows, at), issued_ms=issued_ms(event.envelope, at))
    rows.pop(f"{key}/{event.node}", None)
    rows[f"{key}/{event.node}"] = row
    place = len(clique.queue) + (event.node not in clique.queue)
    return Decision(CliquesChange(tuple(rows.items())), _outcome(clique, index, place))


def release(state: CliquesState, key: str, member: CliqueMember, said: int, at: RecordMetadata) -> ClaimRows:
    """The rows that a release changes: evicted rows, the member's own row, and the row of the node that gets its
    index."""
    clique_id = split_key(key)[0]
    clique = state.cliques[clique_id]
    rows: ClaimRows = dict.fromkeys(_forgotten(state, clique_id))
    rows[key] = CliqueMember("left", member.last, at.offset, "", member.created_ms, member.uid, said)
    if member.claim_state == "holds":
        rows |= assign_waiting(state, clique_id, clique.used & ~(1 << member.last), clique.capacity, at)
    return rows


def assign_waiting(state: CliquesState, clique_id: str, used: int, capacity: int, at: RecordMetadata) -> ClaimRows:
    """Rows of the waiting nodes that get an index, in queue order, when `used` of `capacity` indices are in use."""
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
        rows[key] = replace(waiter, claim_state="holds", last=index, since=at.offset)
    return rows


def _pod(event: IndexClaimed) -> Incarnation:
    created_ms = event.created_ms if event.created_ms > 0 else event.envelope.issued_at_ms
    return Incarnation(created_ms, event.uid or event.envelope.command_id)


def _fault(event: IndexClaimed, pod: Incarnation, at: RecordMetadata) -> str | None:
    """Why a claim is invalid, independent of the state."""
    fault = (
        check_clique("domain", event.domain)
        or check_clique("clique", event.clique)
        or check_name("node", event.node)
        or check_uid("uid", event.uid)
    )
    if fault is not None:
        return fault
    if pod.created_ms > at.time_ms + MAX_AHEAD_MS:
        return f"create_time: {pod.created_ms} must be at most one minute after the log's time, {at.time_ms}"
    if event.requested_index < -1:
        return f"requested_index: {event.requested_index} must be an index, or -1 for none"
    try:
        if event.address:
            parse_address("address", event.address)
    except BadAddress as error:
        return str(error)
    return None


def _outdated(state: CliquesState, event: IndexClaimed, pod: Incarnation, at: RecordMetadata) -> str | None:
    """Whether the claim names an outdated incarnation, or one that is in another clique."""
    key = clique_key(event.domain, event.clique)
    home = state.home(event.domain, event.node) or key
    for where in dict.fromkeys((key, home)):
        known = state.member(where, event.node)
        if known is None:
            continue
        is_late = is_late_copy(event.envelope, known.issued_ms)
        if known.uid != pod.uid:
            if is_older(pod.created_ms, known.created_ms, at.time_ms) or (
                pod.created_ms == known.created_ms and is_late
            ):
                reason = (
                    f"uid: {quoted(pod.uid)} is older than {quoted(known.uid)}, the newest uid of node {event.node!r}"
                )
                return Fault(reason, Reason.INCARNATION_OUTDATED, node=event.node, uid=known.uid)
        elif known.claim_state == "left" and is_late:
            reason = f"uid: {quoted(pod.uid)} of node {event.node!r} was released later"
            return Fault(reason, Reason.INCARNATION_OUTDATED, node=event.node)
        elif known.claim_state != "left" and where != key:
            reason = f"clique: {event.clique!r} must be the clique of uid {quoted(pod.uid)}, {where!r}"
            return Fault(reason, Reason.CLAIM_IN_OTHER_CLIQUE, node=event.node, clique=where)
    return None


def _repeat_claim(state: CliquesState, event: IndexClaimed, current: CliqueMember, at: RecordMetadata) -> Decision:
    """A repeated claim of an incarnation that holds an index or waits. Only its address can change, which ends its
    readiness."""
    key = clique_key(event.domain, event.clique)
    clique = state.cliques[key]
    held = current.last if current.claim_state == "holds" else -1
    if event.requested_index not in (-1, held):
        fault = _requested_index_fault(clique, event, held)
        assert fault is not None, f"{key}: {event.node} waits while {event.requested_index} is free"
        return refusal(fault)
    place = 0 if held >= 0 else list(clique.queue).index(event.node) + 1
    outcome = _outcome(clique, held, place)
    if not event.address or is_late_copy(event.envelope, current.issued_ms):
        return Decision(None, outcome)
    rows: ClaimRows = {}
    address = _address(state, event, Incarnation(current.created_ms, current.uid), rows, at)
    if address == current.address:
        return Decision(None, outcome)
    said = max(issued_ms(event.envelope, at), current.issued_ms)
    rows[f"{key}/{event.node}"] = replace(current, address=address, issued_ms=said, ready=False, ready_ms=said)
    return Decision(CliquesChange(tuple(rows.items())), outcome)


def _index(clique: Clique, event: IndexClaimed, current: CliqueMember | None) -> int | str:
    """The index for a new incarnation, -1 for a place in the queue, or the reason for a refusal."""
    held = current.last if current is not None and current.claim_state == "holds" else -1
    if event.requested_index >= 0 and event.requested_index != held:
        return _requested_index_fault(clique, event, -1) or event.requested_index
    if held >= 0:
        return held
    if current is not None and clique.is_free(current.last):
        return current.last
    if not clique.is_full:
        return lowest_free(clique.used)
    if len(clique.queue) >= MAX_QUEUE and event.node not in clique.queue:
        reason = f"clique: {event.clique!r} has {MAX_QUEUE} nodes in its queue, the limit"
        return Fault(reason, Reason.LIMIT_REACHED, limit=MAX_QUEUE)
    return -1


def _requested_index_fault(clique: Clique, event: IndexClaimed, running: int) -> str | None:
    """Why a requested index is refused. `running` is the index that the claiming incarnation holds, or -1."""
    index = event.requested_index
    if index >= clique.capacity:
        reason = f"requested_index: {index} must be from 0 to {clique.capacity - 1}, the clique's capacity less 1"
        return Fault(reason, Reason.INDEX_OUT_OF_RANGE, index=index, capacity=clique.capacity)
    if index in clique.holders:
        reason = f"requested_index: {index} is held by node {clique.holders[index]!r}, and a claim cannot take it over"
        return Fault(reason, Reason.INDEX_IN_USE, index=index, node=clique.holders[index])
    if running >= 0:
        reason = (
            f"requested_index: {index} cannot replace {running}, which node {event.node!r} holds while its pod runs"
        )
        return Fault(reason, Reason.INDEX_FIXED, index=running, node=event.node)
    return None


def _release_elsewhere(state: CliquesState, event: IndexClaimed, key: str, at: RecordMetadata) -> ClaimRows:
    home = state.home(event.domain, event.node)
    if home is None or home == key:
        return {}
    old_key = f"{home}/{event.node}"
    return release(state, old_key, state.members.rows[old_key], issued_ms(event.envelope, at), at)


def _address(state: CliquesState, event: IndexClaimed, pod: Incarnation, rows: ClaimRows, at: RecordMetadata) -> str:
    """The address for the claimant; in `rows`, an older pod that has this address loses it.

    A claim without an address and without a pod refers to the node's present pod, and keeps its address. A new pod has
    an address of its own, so a claim that names one never inherits the address of the former pod.
    """
    if not event.address:
        return "" if event.uid else _known_address(state, event)
    address = str(parse_address("address", event.address))
    other_key = state.addresses.get(f"{event.domain}/{address}")
    if other_key is None or split_key(other_key)[1] == event.node:
        return address
    other = rows.get(other_key) or state.members.rows[other_key]
    if is_older(pod.created_ms, other.created_ms, at.time_ms):
        return ""
    rows[other_key] = replace(other, address="", ready=False)
    return address


def _known_address(state: CliquesState, event: IndexClaimed) -> str:
    """The address of the node's claim, in whichever clique of the domain."""
    home = state.home(event.domain, event.node)
    known = state.member(home, event.node) if home is not None else None
    return known.address if known is not None else ""


def _new_row(current: CliqueMember | None, pod: Incarnation, index: int, at: RecordMetadata) -> CliqueMember:
    """The row of a new incarnation. It is not ready yet, even if the former one was."""
    if index < 0:
        return CliqueMember("waits", current.last if current is not None else -1, at.offset, "", *pod, 0)
    keeps_index = current is not None and current.claim_state == "holds" and current.last == index
    return CliqueMember(
        "holds", index, current.since if current is not None and keeps_index else at.offset, "", *pod, 0
    )


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
