"""The clique fold: assignment of indices, the queue, and the readiness of daemons.

A clique is (domain uid, clique id). All cliques of a domain are in one partition, and the claims of a partition are
decided one after the other in log order. So no two writers contend for an index. In upstream's driver, such contention
takes most of the time in which daemons start. `claims` decides claims, `state` holds rows and invariants, and this
module decides all other events.

A daemon's liveness is a session: one record opens the session, and another records its expiry. The daemon is then not
ready and keeps its index, because only a release (of a deleted pod) frees an index.
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter

from msgspec.structs import replace

from eventstore.folding.fold import DONE, UNCHANGED, Decision, RecordMetadata, refusal, unchanged
from eventstore.log import CLIQUES, Partition
from eventstore.reasons import Fault, Reason
from projections.cliques.claims import assign_waiting, claim, is_late_copy, issued_ms, release
from projections.cliques.items import Release, claims_of, decide_in_order, releases_of
from projections.cliques.state import (
    MAX_CAPACITY,
    MAX_UNUSED,
    Capacity,
    Clique,
    CliqueMember,
    CliquesChange,
    CliquesState,
    ItemChanges,
    Since,
    clique_key,
)
from projections.field_checks import check_clique, check_text, quoted
from schemas.events import (
    CliqueCapacitySet,
    DaemonReadinessReported,
    Event,
    IndicesClaimed,
    IndicesReleased,
    SessionExpired,
    SessionOpened,
)

__all__ = ["Capacity", "Clique", "CliqueMember", "CliquesFold", "CliquesState"]


_AboutMember = Release | DaemonReadinessReported | SessionOpened | SessionExpired


class CliquesFold:
    """The cliques fold, version 1."""

    topic = CLIQUES
    version = 1
    accepts = frozenset(
        event.__name__
        for event in (
            IndicesClaimed,
            IndicesReleased,
            CliqueCapacitySet,
            DaemonReadinessReported,
            SessionOpened,
            SessionExpired,
        )
    )

    def initial_state(self, partition: Partition) -> CliquesState:
        return CliquesState()

    def decide(self, state: CliquesState, event: Event, at: RecordMetadata) -> Decision:
        match event:
            case IndicesClaimed():
                claims = claims_of(event, at.time_ms, at.offset)
                if isinstance(claims, str):
                    return refusal(claims)
                return decide_in_order(state, claims, partial(claim, at=at))
            case IndicesReleased():
                releases = releases_of(event, at.offset)
                if isinstance(releases, str):
                    return refusal(releases)
                return decide_in_order(state, releases, partial(_release, at=at))
            case CliqueCapacitySet():
                return _resize(state, event, at)
            case DaemonReadinessReported():
                return _ready(state, event, at)
            case SessionOpened():
                return _open_session(state, event, at)
            case SessionExpired():
                return _session_expired(state, event)
            case _:
                return refusal(f"event: {type(event).__name__} is not an event of the cliques topic")

    def rewind(self, state: CliquesState, time_ms: int) -> None:
        """Correct the state for a clock that was fast and has been set back to `time_ms`. Times in rows that are later
        than `time_ms` are set to `time_ms`, so that new records do not count as older."""
        rows = []
        for key, member in state.members.rows.items():
            said, ready, session = member.issued_ms, member.ready_ms, member.session_ms
            if max(said, ready, session) > time_ms:
                said, ready, session = min(said, time_ms), min(ready, time_ms), min(session, time_ms)
                rows.append((key, replace(member, issued_ms=said, ready_ms=ready, session_ms=session)))
        state.apply(CliquesChange(tuple(sorted(rows, key=itemgetter(0)))))

    def evolve(self, state: CliquesState, change: CliquesChange | ItemChanges, at: RecordMetadata) -> None:
        for each in change.changes if isinstance(change, ItemChanges) else (change,):
            if each is not None:
                state.apply(each)


def _release(state: CliquesState, item: Release, at: RecordMetadata) -> Decision:
    """Release the index of the named incarnation. Nothing changes if another incarnation holds it."""
    key, member, absence = _find(state, item, item.uid)
    if member is None:
        return unchanged(absence)
    if is_late_copy(item.envelope, member.issued_ms):
        return unchanged(f"uid: {quoted(member.uid)} claimed the index later and keeps it")
    rows = release(state, key, member, issued_ms(item.envelope, at), item.since)
    return Decision(CliquesChange(tuple(rows.items())), DONE)


def _resize(state: CliquesState, event: CliqueCapacitySet, at: RecordMetadata) -> Decision:
    fault = check_clique("domain", event.domain) or check_clique("clique", event.clique)
    if fault is not None:
        return refusal(fault)
    if not 1 <= event.capacity <= MAX_CAPACITY:
        return refusal(f"capacity: {event.capacity} must be from 1 to {MAX_CAPACITY}")
    key = clique_key(event.domain, event.clique)
    clique = state.cliques.get(key) or Clique()
    highest = clique.used.bit_length() - 1
    if highest >= event.capacity:
        reason = (
            f"capacity: {event.capacity} is too small for index {highest}, held by node {clique.holders[highest]!r}"
        )
        node = clique.holders[highest]
        return refusal(Fault(reason, Reason.CAPACITY_TOO_SMALL, index=highest, node=node))
    if clique.capacity == event.capacity:
        return Decision(None, UNCHANGED)
    if clique.is_empty and key not in state.unused and len(state.unused) >= MAX_UNUSED:
        reason = f"clique: {event.clique!r} would be over the limit of {MAX_UNUSED} cliques with a capacity and no node"
        return refusal(Fault(reason, Reason.LIMIT_REACHED, limit=MAX_UNUSED))
    rows = assign_waiting(state, key, clique.used, event.capacity, Since(at.offset))
    return Decision(CliquesChange(tuple(rows.items()), capacity=(key, event.capacity)), DONE)


def _ready(state: CliquesState, event: DaemonReadinessReported, at: RecordMetadata) -> Decision:
    key, member, fault = _find(state, event, event.uid)
    if member is None:
        return refusal(fault)
    if member.claim_state != "holds":
        reason = f"node: {event.node!r} waits for an index, so its daemon has no readiness"
        return refusal(Fault(reason, Reason.CLAIM_WAITING, node=event.node))
    if event.envelope.issued_at_ms < member.ready_ms:
        reason = f"issued_at_ms: {event.envelope.issued_at_ms} is before that of the last report"
        return refusal(Fault(reason, Reason.REPORT_OUTDATED, node=event.node))
    if event.ready and member.session and not member.session_alive:
        reason = f"session: {quoted(member.session)} has expired, so its daemon cannot be ready"
        return refusal(Fault(reason, Reason.SESSION_EXPIRED, node=event.node, session=member.session))
    row = replace(member, ready=event.ready, ready_ms=issued_ms(event.envelope, at))
    return Decision(CliquesChange(((key, row),)), DONE) if row != member else Decision(None, UNCHANGED)


def _open_session(state: CliquesState, event: SessionOpened, at: RecordMetadata) -> Decision:
    key, member, fault = _find(state, event, event.uid)
    if member is None:
        return refusal(fault)
    fault = check_text("session", event.session) or check_text("edge", event.edge) or ""
    if fault or not event.session:
        return refusal(fault or "session: '' must not be empty")
    if event.session == member.session or event.envelope.issued_at_ms < member.session_ms:
        return unchanged(f"session: {quoted(member.session)} is this one or a newer one")
    said = issued_ms(event.envelope, at)
    row = replace(member, session=event.session, session_ms=said, edge=event.edge, session_alive=True)
    return Decision(CliquesChange(((key, row),)), DONE)


def _session_expired(state: CliquesState, event: SessionExpired) -> Decision:
    key, member, fault = _find(state, event, "")
    if member is None:
        return refusal(fault)
    if member.session != event.session or not member.session_alive:
        return unchanged(f"session: {quoted(event.session)} is not the session that is open")
    return Decision(CliquesChange(((key, replace(member, session_alive=False, ready=False)),)), DONE)


def _find(state: CliquesState, event: _AboutMember, uid: str) -> tuple[str, CliqueMember | None, str]:
    """Find the incarnation that an event names. Returns its key, its row and an empty text, or no row and the reason.
    An empty uid matches any incarnation."""
    key = f"{clique_key(event.domain, event.clique)}/{event.node}"
    fault = check_clique("domain", event.domain) or check_clique("clique", event.clique)
    if fault is not None:
        return key, None, fault
    member = state.members.rows.get(key)
    if member is None or member.claim_state == "left":
        reason = f"node: {quoted(event.node)} has no index and no queue place in clique {event.clique!r}"
        return key, None, Fault(reason, Reason.CLAIM_NOT_FOUND, node=event.node, clique=event.clique)
    if uid not in ("", member.uid):
        reason = f"uid: {quoted(uid)} must be {quoted(member.uid)}, which node {event.node!r} runs now"
        return key, None, Fault(reason, Reason.INCARNATION_DIFFERS, node=event.node, uid=member.uid)
    return key, member, ""
