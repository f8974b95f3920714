"""The topics of a plane, with their folds: a new fold is a row of this table."""

from __future__ import annotations

from eventstore.log import CLIQUES, DECISIONS, FLEET, INSTALLS, REPLICAS, RESOURCES, ZONES
from eventstore.replicas.role_names import API, DECISION_WRITER, KUBERNETES, PROVISIONER, RELAY
from eventstore.topics import TopicSpec, TopicTable
from projections.cliques.fold import CliquesFold
from projections.fleet.fold import FleetFold, FleetFold2
from projections.installs.fold import InstallsFold
from projections.resources.fold import ResourcesFold
from projections.zones.fold import ZonesFold, ZonesFold2

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS

READER = "reader"
"""The role of commands that read the log directly (verify, history, backup ...)."""

TOPICS = TopicTable(
    (
        TopicSpec(
            name=ZONES,
            is_deciding=True,
            callers="independent",
            folds=(lambda _: ZonesFold(), lambda _: ZonesFold2()),
            readers=frozenset({API, RELAY, PROVISIONER, DECISION_WRITER, KUBERNETES, READER}),
            writers=frozenset({API, RELAY, PROVISIONER, KUBERNETES}),
        ),
        TopicSpec(
            name=CLIQUES,
            is_deciding=True,
            callers="together",
            folds=(lambda _: CliquesFold(),),
            readers=frozenset({API, DECISION_WRITER, KUBERNETES, READER}),
            writers=frozenset({API, KUBERNETES}),
        ),
        TopicSpec(
            name=FLEET,
            is_keyed=False,
            is_deciding=True,
            folds=(FleetFold, FleetFold2),
            readers=frozenset({API, RELAY, PROVISIONER, DECISION_WRITER, KUBERNETES, READER}),
            writers=frozenset({API, KUBERNETES}),
        ),
        TopicSpec(
            name=RESOURCES,
            is_deciding=True,
            folds=(lambda _: ResourcesFold(),),
            readers=frozenset({API, PROVISIONER, DECISION_WRITER, KUBERNETES, READER}),
            writers=frozenset({API, PROVISIONER, KUBERNETES}),
        ),
        TopicSpec(
            name=INSTALLS,
            retention_ms=30 * _DAY_MS,
            folds=(lambda _: InstallsFold(),),
            readers=frozenset({API, KUBERNETES, READER}),
            writers=frozenset({RELAY}),
        ),
        TopicSpec(
            name=DECISIONS,
            is_compacted=True,
            retention_ms=30 * _DAY_MS,
            readers=frozenset({API, DECISION_WRITER, READER}),
            writers=frozenset({DECISION_WRITER}),
        ),
        TopicSpec(
            name=REPLICAS,
            is_keyed=False,
            has_events=False,
            retention_ms=_HOUR_MS,
            readers=frozenset({API, RELAY, PROVISIONER, DECISION_WRITER, KUBERNETES, READER}),
            writers=frozenset({API, RELAY, PROVISIONER, DECISION_WRITER, KUBERNETES}),
        ),
    )
)
