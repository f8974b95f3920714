"""How a claim is decided, and what a freed index leads to.

A claim gets the index that its node holds; else the one it last held, if free; else the lowest free; else a place at
the end of the line. A row that something else wrote already shows an index: its claim wishes that index, and gets it or
is refused. The index of a running incarnation never changes: a daemon reads its own at start and keeps it.

Every claim names an incarnation of its node, (created_ms, uid), and what is about an older one than is known changes
nothing. Of two created at the same time (Kubernetes counts seconds) the one that the log has later is the newer. A node
is in one clique of a domain, so the claim of a newer incarnation elsewhere frees what the older one had. Two live pods
never share an address: of two that claim with one, the newer keeps it and the other row loses it, or its peers would be
sent to a stranger.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from eventstore.folding.fold import Decision, Outcome, RecordMetadata, refusal
from projections.cliques.state import (
    MAX_LEFT,
    MAX_LEFT_PER_CLIQUE,
    MAX_LINE,
    Clique,
    CliquesChange,
    CliquesState,
    Member,
    clique_key,
    lowest_free,
    split_key,
)
from projections.incarnations import is_older
from projections.names import MAX_AHEAD_MS, BadAddress, check_clique, check_name, check_uid, parse_address, shown
from schemas.events import Envelope, IndexClaimed

Rows = dict[str, Member | None]
"""Rows to be applied, in this order."""


class Pod(NamedTuple):
    """An incarnation of a node."""

    created_ms: int
    uid: str


def said_ms(envelope: Envelope, at: RecordMetadata) -> int:
    """When something was said, but never later than the log's own time: a fast clock must not silence others."""
    return min(envelope.issued_at_ms, at.time_ms)


def is_late_copy(envelope: Envelope, since_ms: int) -> bool:
    """Whether this is a statement from before `since_ms`. A command lands once; a statement may land again."""
    return not envelope.command_id and envelope.issued_at_ms < since_ms


def claim(state: CliquesState, event: IndexClaimed, at: RecordMetadata) -> Decision:
    pod = _pod(event)
    fault = _fault(event, pod, at) or _outdated(state, event, pod, at)
    if fault is not None:
        return refusal(fault)
    key = clique_key(event.domain, event.clique)
    mine = state.member(key, event.node)
    clique = state.cliques.get(key) or Clique()
    if mine is not None and mine.uid == pod.uid and mine.standing != "left":
        return _again(state, event, mine, at)
    index = _index(clique, event, mine)
    if isinstance(index, str):
        return refusal(index)
    rows = _leave_home(state, event, key, at)
    row = _new_row(mine, pod, index, at)
    row = replace(row, address=_address(state, event, pod, rows, at), said_ms=said_ms(event.envelope, at))
    rows.pop(f"{key}/{event.node}", None)
    rows[f"{key}/{event.node}"] = row
    place = len(clique.line) + (event.node not in clique.line)
    return Decision(CliquesChange(tuple(rows.items())), _outcome(clique, index, place))


def depart(state: CliquesState, key: str, member: Member, said: int, at: RecordMetadata) -> Rows:
    """The rows of a member that leaves: what is forgotten for it, its own, and that of who gets its index."""
    clique_id = split_key(key)[0]
    clique = state.cliques[clique_id]
    rows: Rows = dict.fromkeys(_forgotten(state, clique_id))
    rows[key] = Member("left", member.last, at.offset, "", member.created_ms, member.uid, said)
    if member.standing == "holds":
        rows |= serve(state, clique_id, clique.used & ~(1 << member.last), clique.capacity, at)
    return rows


def serve(state: CliquesState, clique_id: str, used: int, capacity: int, at: RecordMetadata) -> Rows:
    """Rows of those in line who get an index, first come first served, when `used` of `capacity` are in use."""
    rows: Rows = {}
    clique = state.cliques.get(clique_id)
    for node in clique.line if clique else ():
        if used.bit_count() == capacity:
            break
        key = f"{clique_id}/{node}"
        waiter = state.members.rows[key]
        is_last_free = 0 <= waiter.last < capacity and not used >> waiter.last & 1
        index = waiter.last if is_last_free else lowest_free(used)
        used |= 1 << index
        rows[key] = replace(waiter, standing="holds", last=index, since=at.offset)
    return rows


def _pod(event: IndexClaimed) -> Pod:
    created_ms = event.created_ms if event.created_ms > 0 else event.envelope.issued_at_ms
    return Pod(created_ms, event.uid or event.envelope.command_id)


def _fault(event: IndexClaimed, pod: Pod, at: RecordMetadata) -> str | None:
    """What is wrong with a claim, whatever the state."""
    fault = (
        check_clique("domain", event.domain)
        or check_clique("clique", event.clique)
        or check_name("node", event.node)
        or check_uid("uid", event.uid)
    )
    if fault is not None:
        return fault
    if pod.created_ms > at.time_ms + MAX_AHEAD_MS:
        return f"created_ms: {pod.created_ms} must not be more than a minute after the log's time, {at.time_ms}"
    if event.requested_index < -1:
        return f"requested_index: {event.requested_index} must be an index, or -1 for none"
    try:
        if event.address:
            parse_address("address", event.address)
    except BadAddress as error:
        return str(error)
    return None


def _outdated(state: CliquesState, event: IndexClaimed, pod: Pod, at: RecordMetadata) -> str | None:
    """Whether the claim is about an incarnation whose time is over, or that is in another clique."""
    key = clique_key(event.domain, event.clique)
    home = state.home(event.domain, event.node) or key
    for where in dict.fromkeys((key, home)):
        known = state.member(where, event.node)
        if known is None:
            continue
        is_late = is_late_copy(event.envelope, known.said_ms)
        if known.uid != pod.uid:
            if is_older(pod.created_ms, known.created_ms, at.time_ms) or (
                pod.created_ms == known.created_ms and is_late
            ):
                return (
                    f"uid: {shown(pod.uid)} is older than {shown(known.uid)}, the newest known of node {event.node!r}"
                )
        elif known.standing == "left" and is_late:
            return f"uid: {shown(pod.uid)} of node {event.node!r} was released after this was said"
        elif known.standing != "left" and where != key:
            return f"clique: {event.clique!r} is not the one that uid {shown(pod.uid)} is in, which is {where!r}"
    return None


def _again(state: CliquesState, event: IndexClaimed, mine: Member, at: RecordMetadata) -> Decision:
    """A claim of an incarnation that holds an index or waits: only its address can change, and it is not ready then."""
    key = clique_key(event.domain, event.clique)
    clique = state.cliques[key]
    held = mine.last if mine.standing == "holds" else -1
    if event.requested_index not in (-1, held):
        fault = _requested_index_fault(clique, event, held)
        assert fault is not None, f"{key}: {event.node} waits while {event.requested_index} is free"
        return refusal(fault)
    place = 0 if held >= 0 else list(clique.line).index(event.node) + 1
    outcome = _outcome(clique, held, place)
    if not event.address or is_late_copy(event.envelope, mine.said_ms):
        return Decision(None, outcome)
    rows: Rows = {}
    address = _address(state, event, Pod(mine.created_ms, mine.uid), rows, at)
    if address == mine.address:
        return Decision(None, outcome)
    said = max(said_ms(event.envelope, at), mine.said_ms)
    rows[f"{key}/{event.node}"] = replace(mine, address=address, said_ms=said, ready=False, ready_ms=said)
    return Decision(CliquesChange(tuple(rows.items())), outcome)


def _index(clique: Clique, event: IndexClaimed, mine: Member | None) -> int | str:
    """The index to give a new incarnation, -1 for a place in line, or why neither."""
    held = mine.last if mine is not None and mine.standing == "holds" else -1
    if event.requested_index >= 0 and event.requested_index != held:
        return _requested_index_fault(clique, event, -1) or event.requested_index
    if held >= 0:
        return held
    if mine is not None and clique.is_free(mine.last):
        return mine.last
    if not clique.is_full:
        return lowest_free(clique.used)
    if len(clique.line) >= MAX_LINE and event.node not in clique.line:
        return f"clique: {event.clique!r} has {MAX_LINE} nodes in line, the most there may be"
    return -1


def _requested_index_fault(clique: Clique, event: IndexClaimed, running: int) -> str | None:
    """`running` is the index that the claiming incarnation holds already, or -1."""
    index = event.requested_index
    if index >= clique.capacity:
        return f"requested_index: {index} must be from 0 to {clique.capacity - 1}, the clique's capacity less 1"
    if index in clique.holders:
        return f"requested_index: {index} is held by node {clique.holders[index]!r}, and a claim cannot take it away"
    if running >= 0:
        return (
            f"requested_index: {index} cannot replace {running}, which node {event.node!r} holds for as long as it runs"
        )
    return None


def _leave_home(state: CliquesState, event: IndexClaimed, key: str, at: RecordMetadata) -> Rows:
    home = state.home(event.domain, event.node)
    if home is None or home == key:
        return {}
    old_key = f"{home}/{event.node}"
    return depart(state, old_key, state.members.rows[old_key], said_ms(event.envelope, at), at)


def _address(state: CliquesState, event: IndexClaimed, pod: Pod, rows: Rows, at: RecordMetadata) -> str:
    """The address that the claimant gets; in `rows`, an older pod that has it loses it.

    A claim that names neither an address nor a pod is about the pod that the node has, and keeps its address. A new pod
    has an address of its own, so a claim that names one never gets that of the pod before it.
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
    """The address that the node's claim has, in whichever clique of the domain that is."""
    home = state.home(event.domain, event.node)
    known = state.member(home, event.node) if home is not None else None
    return known.address if known is not None else ""


def _new_row(mine: Member | None, pod: Pod, index: int, at: RecordMetadata) -> Member:
    """The row of a new incarnation, which is not ready yet, whatever the one before it was."""
    if index < 0:
        return Member("waits", mine.last if mine is not None else -1, at.offset, "", *pod, 0)
    keeps_seat = mine is not None and mine.standing == "holds" and mine.last == index
    return Member("holds", index, mine.since if mine is not None and keeps_seat else at.offset, "", *pod, 0)


def _outcome(clique: Clique, index: int, place: int) -> Outcome:
    """Waiting is told in upstream's words, which people search for."""
    if index >= 0:
        return Outcome("done", index=index)
    return Outcome(
        "waiting", f"no available indices within maxNodesPerIMEXDomain ({clique.capacity})", queue_position=place
    )


def _forgotten(state: CliquesState, clique_id: str) -> list[str]:
    """Whom to forget, so that one more who left can be remembered."""
    left = state.cliques[clique_id].left
    if len(left) >= MAX_LEFT_PER_CLIQUE:
        return [f"{clique_id}/{next(iter(left))}"]
    return [next(iter(state.left))] if len(state.left) >= MAX_LEFT else []
