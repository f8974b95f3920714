"""The topics of a plane, with their folds: a new fold is a row of this table."""

from __future__ import annotations

from eventstore.log import CLIQUES, DECISIONS, FLEET, INSTALLS, REPLICAS, RESOURCES, ZONES
from eventstore.topics import TopicSpec, TopicTable
from projections.cliques.fold import CliquesFold
from projections.fleet.fold import FleetFold
from projections.installs.fold import InstallsFold
from projections.resources.fold import ResourcesFold
from projections.zones.fold import ZonesFold

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
            folds=(lambda _: ZonesFold(),),
            readers=frozenset({"api", "relay", "provisioner", "decisions", "kubernetes", READER}),
            writers=frozenset({"api", "provisioner", "kubernetes"}),
        ),
        TopicSpec(
            name=CLIQUES,
            is_deciding=True,
            callers="together",
            folds=(lambda _: CliquesFold(),),
            readers=frozenset({"api", "decisions", "kubernetes", READER}),
            writers=frozenset({"api", "kubernetes"}),
        ),
        TopicSpec(
            name=FLEET,
            is_keyed=False,
            is_deciding=True,
            folds=(FleetFold,),
            readers=frozenset({"api", "relay", "provisioner", "decisions", "kubernetes", READER}),
            writers=frozenset({"api", "kubernetes"}),
        ),
        TopicSpec(
            name=RESOURCES,
            is_deciding=True,
            folds=(lambda _: ResourcesFold(),),
            readers=frozenset({"api", "decisions", READER}),
            writers=frozenset({"api"}),
        ),
        TopicSpec(
            name=INSTALLS,
            retention_ms=30 * _DAY_MS,
            folds=(lambda _: InstallsFold(),),
            readers=frozenset({"api", "kubernetes", READER}),
            writers=frozenset({"relay"}),
        ),
        TopicSpec(
            name=DECISIONS,
            is_compacted=True,
            retention_ms=30 * _DAY_MS,
            readers=frozenset({"api", "decisions", READER}),
            writers=frozenset({"decisions"}),
        ),
        TopicSpec(
            name=REPLICAS,
            is_keyed=False,
            has_events=False,
            retention_ms=_HOUR_MS,
            readers=frozenset({"api", "relay", "provisioner", "decisions", "kubernetes", READER}),
            writers=frozenset({"api", "relay", "provisioner", "decisions", "kubernetes"}),
        ),
    )
)
