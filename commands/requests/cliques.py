"""Requests about cliques, as events. Their key is the domain: a domain is decided in one partition."""

from __future__ import annotations

from commands.requests.validation import EnvelopeFactory, NewEvent, require, require_range, time_of
from eventstore.log import CLIQUES
from projections import field_checks
from projections.cliques.state import MAX_CAPACITY
from schemas.api import dpuplane_pb2 as pb
from schemas.events import CliqueCapacitySet, DaemonReadinessReported, IndexClaimed, IndexReleased, SessionOpened


def claim_index(request: pb.ClaimIndexRequest, envelope: EnvelopeFactory) -> NewEvent:
    subject = _subject(request.domain, request.clique, request.node)
    created_ms = time_of("create_time", request.create_time)
    require(field_checks.check_uid("uid", request.uid))
    requested_index = request.requested_index if request.HasField("requested_index") else -1
    require_range("requested_index", requested_index, -1, MAX_CAPACITY - 1)
    address = str(field_checks.parse_address("address", request.address)) if request.address else ""
    event = IndexClaimed(
        envelope=envelope(subject),
        domain=request.domain,
        clique=request.clique,
        node=request.node,
        address=address,
        created_ms=created_ms,
        uid=request.uid,
        requested_index=requested_index,
    )
    return NewEvent(CLIQUES, request.domain, event)


def release_index(request: pb.ReleaseIndexRequest, envelope: EnvelopeFactory) -> NewEvent:
    subject = _subject(request.domain, request.clique, request.node)
    created_ms = time_of("create_time", request.create_time)
    require(field_checks.check_uid("uid", request.uid))
    event = IndexReleased(envelope(subject), request.domain, request.clique, request.node, created_ms, request.uid)
    return NewEvent(CLIQUES, request.domain, event)


def set_clique_capacity(request: pb.SetCliqueCapacityRequest, envelope: EnvelopeFactory) -> NewEvent:
    subject = _subject(request.domain, request.clique, None)
    require_range("capacity", request.capacity, 1, MAX_CAPACITY)
    event = CliqueCapacitySet(envelope(subject), request.domain, request.clique, request.capacity)
    return NewEvent(CLIQUES, request.domain, event)


def report_daemon_readiness(request: pb.ReportDaemonReadinessRequest, envelope: EnvelopeFactory) -> NewEvent:
    subject = _subject(request.domain, request.clique, request.node)
    require(field_checks.check_uid("uid", request.uid))
    event = DaemonReadinessReported(
        envelope(subject), request.domain, request.clique, request.node, request.uid, request.ready
    )
    return NewEvent(CLIQUES, request.domain, event)


def open_session(request: pb.OpenSessionRequest, envelope: EnvelopeFactory, edge: str) -> NewEvent:
    """Event of a new session. `edge` is this replica, which now reports for the session."""
    subject = _subject(request.domain, request.clique, request.node)
    require(field_checks.check_uid("uid", request.uid))
    require(field_checks.check_clique("session", request.session))
    event = SessionOpened(
        envelope(subject), request.domain, request.clique, request.node, request.uid, request.session, edge
    )
    return NewEvent(CLIQUES, request.domain, event)


def _subject(domain: str, clique: str, node: str | None) -> str:
    require(field_checks.check_clique("domain", domain))
    require(field_checks.check_clique("clique", clique))
    if node is not None:
        require(field_checks.check_name("node", node))
    return f"{domain}/{clique}"
