"""Requests about cliques, as events. Their key is the domain, because one partition decides all cliques of a domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from commands.requests.validation import (
    TIME_MS_MAX,
    EnvelopeFactory,
    NewEvent,
    require,
    require_count,
    require_range,
    time_of,
)
from eventstore.log import CLIQUES
from projections import field_checks
from projections.cliques.items import claims_of, releases_of
from projections.cliques.state import MAX_CAPACITY
from schemas.api import dpuplane_pb2 as pb
from schemas.events import CliqueCapacitySet, DaemonReadinessReported, IndicesClaimed, IndicesReleased, SessionOpened

T = TypeVar("T")


def claim_indices(request: pb.ClaimIndicesRequest, envelope: EnvelopeFactory) -> NewEvent:
    claims = request.claims
    require_count("claims", len(claims))
    requested_indices = [spec.requested_index if spec.HasField("requested_index") else -1 for spec in claims]
    event = IndicesClaimed(
        envelope(f"{request.domain}/{request.clique}"),
        request.domain,
        request.clique,
        [spec.node for spec in claims],
        _column([spec.address for spec in claims], ""),
        _column([time_of(f"create_time[{item}]", spec.create_time) for item, spec in enumerate(claims)], 0),
        _column([spec.uid for spec in claims], ""),
        _column(requested_indices, -1),
    )
    return _valid(event, claims_of(event, TIME_MS_MAX, 0))


def release_indices(request: pb.ReleaseIndicesRequest, envelope: EnvelopeFactory) -> NewEvent:
    releases = request.releases
    require_count("releases", len(releases))
    event = IndicesReleased(
        envelope(f"{request.domain}/{request.clique}"),
        request.domain,
        request.clique,
        [spec.node for spec in releases],
        _column([spec.uid for spec in releases], ""),
    )
    return _valid(event, releases_of(event, 0))


def _column(values: list[T], absent: T) -> list[T]:
    """A column of the log: empty if no item has a value."""
    return [] if values.count(absent) == len(values) else values


def _valid(event: IndicesClaimed | IndicesReleased, items: Sequence[object] | str) -> NewEvent:
    """The event, if it is valid. `items` is the result of reading the event's columns: the items, or the fault as text.
    Raises InvalidRequest."""
    require(items if isinstance(items, str) else None)
    return NewEvent(CLIQUES, event.domain, event)


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
