"""Prometheus metrics of a process, read from its parts at each scrape, so that no part keeps a second copy of a count.

The parts are created one by one while a process starts. A part that does not exist yet, or not in this role, is left
out. `deploy.web.metrics.catalog` describes each metric.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from platform import python_version
from typing import Protocol

from cryptography.x509 import load_pem_x509_certificate
from prometheus_client.core import Metric

from commands.server import ApiServer
from deploy.composition.kubernetes_edge import KubernetesEdge
from deploy.composition.roles import ROLES, Actor
from deploy.telemetry.peer_log_sampler import suppressed_lines
from deploy.tls.security import Security
from deploy.web.metrics import api, catalog, fleet, images, kubernetes, log, relay
from deploy.web.metrics.survey import Survey
from drivers.forwarder import Forwarder
from drivers.images.images import Images
from drivers.images.installations import Installations
from drivers.images.server import ImageServer
from drivers.internal_events import RANK_MAX
from drivers.provisioning.provisioner import Provisioner
from drivers.relays.relay import Relay
from drivers.stall_detector import StallDetector
from drivers.timers import Timers
from drivers.wire.bounded_listener import REFUSAL_REASONS, BoundedListener
from eventstore.replicas.beacons import Beacons
from eventstore.replicas.clock_skew import ClockSkew
from eventstore.replicas.replica import Replica


class ImageCounts(Protocol):
    """The parts of an image store that count."""

    @property
    def images(self) -> Images: ...

    @property
    def server(self) -> ImageServer: ...

    @property
    def installations(self) -> Installations: ...


class DecisionCounts(Protocol):
    """Progress of the writer of decisions, which runs in this process or in a child process."""

    @property
    def written(self) -> int: ...

    @property
    def failures(self) -> int: ...

    @property
    def lag(self) -> int: ...


@dataclass(slots=True, kw_only=True)
class Parts:
    """The parts of a process that exist so far."""

    replica: Replica
    roles: Collection[str]
    version: str
    engine: str
    now_ms: Callable[[], int]
    unready: Callable[[], str]
    security: Security | None
    survey: Survey | None = None
    relay: Relay | None = None
    beacons: Beacons | None = None
    server: ApiServer | None = None
    stall_detector: StallDetector | None = None
    clocks: ClockSkew | None = None
    actors: Mapping[str, Actor] = field(default_factory=dict)
    decisions: DecisionCounts | None = None
    images: ImageCounts | None = None
    kubernetes: Sequence[KubernetesEdge] = ()
    """The edges of the source clusters."""
    refused_feeds: Callable[[], int] | None = None
    """Refused feeds of the page."""
    listeners: dict[str, BoundedListener] = field(default_factory=dict)
    """Listeners, by the name of the setting with their address."""


class PlaneCollector:
    """Collects the metrics of all parts of a process."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        parts = self._parts
        yield from _process(parts)
        yield from log.collect(parts.replica, parts.stall_detector, parts.now_ms())
        if parts.clocks is not None:
            yield from log.collect_clocks(parts.clocks)
        if parts.server is not None:
            yield from api.collect(parts.server)
        yield from _connections(parts)
        yield from _admissions(parts)
        yield from fleet.collect(parts.replica, parts.survey)
        if parts.relay is not None and parts.survey is not None:
            yield from relay.collect(parts.relay, parts.survey.found)
        yield from _actors(parts.actors, parts.decisions)
        if parts.kubernetes:
            yield from kubernetes.collect(parts.kubernetes)
        if parts.images is not None:
            yield from images.collect(parts.images.images, parts.images.server, parts.images.installations)


def _process(parts: Parts) -> Iterator[Metric]:
    build, replica = catalog.BUILD_INFO.family(), catalog.REPLICA_INFO.family()
    build.add_metric([parts.version, python_version()], 1)
    replica.add_metric([parts.replica.name, ",".join(sorted(parts.roles)), parts.engine], 1)
    yield from (build, replica)
    yield catalog.READY.family(0 if parts.unready() else 1)
    alive = [beacon.roles for beacon in parts.beacons.alive()] if parts.beacons is not None else [parts.roles]
    replicas = catalog.REPLICAS.family()
    for role in ROLES:
        replicas.add_metric([role], sum(role in roles for roles in alive))
    yield replicas
    yield catalog.DIVERGENCES.family(parts.beacons.divergences if parts.beacons is not None else 0)
    yield catalog.SUPPRESSED_LINES.family(suppressed_lines())
    if parts.security is not None:
        certificate = load_pem_x509_certificate(parts.security.certificates.material.cert)
        if (revocations := parts.security.revocations) is not None:
            yield catalog.REVOKED.family(len(revocations.serials))
            yield catalog.REVOCATIONS_UNREAD.family(int(bool(revocations.fault)))
        yield catalog.CERTIFICATE_EXPIRY.family(certificate.not_valid_after_utc.timestamp())


def _connections(parts: Parts) -> Iterator[Metric]:
    """Connections per listener, and refused connections per limit."""
    connections, most = catalog.CONNECTIONS.family(), catalog.CONNECTIONS_MAX.family()
    refused = catalog.REFUSED_CONNECTIONS.family()
    for name, listener in parts.listeners.items():
        connections.add_metric([name], listener.connections)
        most.add_metric([name], listener.limits.most)
        for limit in REFUSAL_REASONS:
            refused.add_metric([name, limit], listener.refused[limit])
    yield from (connections, most, refused)


def _admissions(parts: Parts) -> Iterator[Metric]:
    """Calls, links and feeds that a limit refused, and requests that access control denied."""
    refused = catalog.REFUSED_ADMISSIONS.family()
    if parts.server is not None:
        refused.add_metric(["api"], parts.server.admission.refused)
    if parts.relay is not None:
        refused.add_metric(["agents"], parts.relay.admission.refused)
    if parts.refused_feeds is not None:
        refused.add_metric(["page"], parts.refused_feeds())
    yield refused
    if parts.security is not None:
        denials = catalog.DENIALS.family()
        denials.add_metric(["denied"], parts.security.denials.denied)
        denials.add_metric(["unauthenticated"], parts.security.denials.unauthenticated)
        yield denials


def _actors(actors: Mapping[str, Actor], decisions: DecisionCounts | None) -> Iterator[Metric]:
    turns, failures = catalog.SIDE_EFFECTS.family(), catalog.APPEND_FAILURES.family()
    for name, actor in actors.items():
        failures.add_metric([name], actor.internal_events.failures)
        for rank in range(RANK_MAX + 1):
            turns.add_metric([name, str(rank)], actor.internal_events.turns[rank])
    if decisions is not None:
        failures.add_metric(["decisions"], decisions.failures)
        yield catalog.DECISIONS.family(decisions.written)
        yield catalog.DECISIONS_LAG.family(decisions.lag)
    yield from (turns, failures)
    for actor in actors.values():
        yield from _own(actor)


def _own(actor: Actor) -> Iterator[Metric]:
    """The metrics that are specific to the kind of this actor."""
    match actor:
        case Forwarder():
            yield catalog.FORWARDS.family(actor.forwards)
            yield catalog.FORWARDED.family(actor.forwarded_items)
            yield catalog.OUTBOX_DELIVERIES.family(actor.outbox_deliveries)
        case Timers():
            yield catalog.DEADLINES.family(actor.appended)
        case Provisioner():
            steps = catalog.STEPS.family()
            for (phase, result), count in sorted(actor.ended.items()):
                steps.add_metric([phase, result], count)
            yield steps
            yield catalog.STEPS_UNDER_WAY.family(actor.under_way)
