"""Rows of zones in fleet, grouped by labels: the cost of an edit grows with distinct label sets, not with the zones.

The labels of a zone and the policies alone decide which list the zone has. Zones with equal labels therefore change to
another list together, and the version of this change is stored once for all of them. The row of a single zone has such
a version only if the labels of the zone were edited. This version applies until the next change of the list of all
zones with these labels.

Fleet keeps the row of a zone while the zone has a node, or once its labels were edited, or while it has limits. A zone
without a row has the table and the history of a zone that never had labels, so forgetting a row changes no device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from eventstore.folding.state_table import StateTable
from projections.attempt_limits import AttemptsByFailure
from projections.fleet.staging.rows import zone_labels
from projections.fleet.tables.rulesets import RuleSet
from projections.rules.policies import Selector, selector

MAX_PREVIOUS_LISTS = 8
"""Maximum number of previous lists retained per label set, or per zone: deltas start from these."""


class ZoneLimits(NamedTuple):
    """The limits that fleet sends to a zone: the rollout limits, and the addresses and label keys that node agents may
    set there."""

    parallel_installs: int
    unavailable_nodes: int
    agent_networks: tuple[str, ...] = ()
    agent_label_keys: tuple[str, ...] = ()
    attempt_limits: AttemptsByFailure = AttemptsByFailure()


NO_LIMITS = ZoneLimits(0, 0)
"""The limits of a zone for which none were set."""


class FleetZone(msgspec.Struct, frozen=True):
    """The row of a zone in fleet. A limit of 0 is the default.

    `since_version` is the version at which the row was added. `labels_version` is the version of the last edit of the
    labels (0 if there was none). `list_version` belongs to the list that the zone had right after that edit: it is the
    version at which the zone got this list, with that edit or earlier.
    """

    labels: dict[str, str]
    parallel_installs: int = 0
    unavailable_nodes: int = 0
    list_version: int = 0
    list_since_ms: int = 0
    since_version: int = 0
    labels_version: int = 0
    agent_networks: tuple[str, ...] = ()
    agent_label_keys: tuple[str, ...] = ()
    attempt_limits: AttemptsByFailure = AttemptsByFailure()

    @property
    def limits(self) -> ZoneLimits:
        installs, nodes = self.parallel_installs, self.unavailable_nodes
        return ZoneLimits(installs, nodes, self.agent_networks, self.agent_label_keys, self.attempt_limits)

    def is_forgettable(self) -> bool:
        """Whether the zone has neither labels nor limits, and never had labels. Such a zone has the history of
        UNKNOWN_ZONE."""
        return not self.labels_version and not self.has_labels_or_limits()

    def has_labels_or_limits(self) -> bool:
        """Whether the zone has labels or limits."""
        return bool(self.labels) or self.limits != NO_LIMITS


UNKNOWN_ZONE = FleetZone({})
"""Stands for every zone that has no row."""


class ListChange(msgspec.Struct, frozen=True, array_like=True):
    """The version at which zones with equal labels got another list, and the append time of its record."""

    version: int
    time_ms: int


NO_LIST_CHANGE = ListChange(0, 0)


class PreviousList(NamedTuple):
    """The list that a zone had from version `since` on, until it got another list at version `until`."""

    since: int
    until: int
    list_id: str
    sets: tuple[RuleSet, ...]


class FleetZones(StateTable[FleetZone]):
    """The saved rows of zones, and the zones of each label set."""

    __slots__ = ("by_labels",)

    def __init__(self) -> None:
        super().__init__("zones", FleetZone)
        self.by_labels: dict[Selector, dict[str, None]] = {(): {}}

    def put(self, key: str, row: FleetZone) -> None:
        self._ungroup(key)
        super().put(key, row)
        self.by_labels.setdefault(selector(row.labels), {})[key] = None

    def remove(self, key: str) -> None:
        self._ungroup(key)
        super().remove(key)

    def regroup(self) -> None:
        """Group the rows anew, after they were loaded."""
        self.by_labels = {(): {}}
        for name, row in self.rows.items():
            self.by_labels.setdefault(selector(row.labels), {})[name] = None

    def with_labels(self, labels: Selector) -> Mapping[str, None]:
        """The zones of a label set, which may be that of a cohort."""
        return self.by_labels[zone_labels(labels)]

    def _ungroup(self, key: str) -> None:
        old = self.rows.get(key)
        if old is None:
            return
        labels = selector(old.labels)
        del self.by_labels[labels][key]
        if labels and not self.by_labels[labels]:
            del self.by_labels[labels]


class PreviousLists:
    """The previous rule lists of each label set, and those that a zone had before its labels were edited. Not saved."""

    def __init__(self) -> None:
        self._of_labels: dict[Selector, tuple[PreviousList, ...]] = {}
        self._of_zone: dict[str, tuple[PreviousList, ...]] = {}

    def of(self, name: str, info: FleetZone, labels: Selector) -> tuple[PreviousList, ...]:
        """The previous lists of a zone, oldest first. The lists of its label set (or that of a cohort) count only from
        the version at which the zone got its labels."""
        changes = self._of_labels.get(labels, ())
        if not info.labels_version:
            return changes
        shared = [
            previous._replace(since=info.list_version) if previous.since <= info.labels_version else previous
            for previous in changes
            if previous.until > info.labels_version
        ]
        return (*self._of_zone.get(name, ()), *shared)[-MAX_PREVIOUS_LISTS:]

    def add(self, labels: Selector, previous: PreviousList) -> None:
        """Add a list that zones with these labels had."""
        self._of_labels[labels] = (*self._of_labels.get(labels, ()), previous)[-MAX_PREVIOUS_LISTS:]

    def copy(self, labels: Selector, to: Selector) -> None:
        """Give a label set the previous lists of another."""
        if labels in self._of_labels:
            self._of_labels[to] = self._of_labels[labels]

    def cut(self, labels: Selector, version: int) -> None:
        """Forget what zones with these labels had from `version` on, until their present list."""
        found = self._of_labels.get(labels, ())
        kept = (each._replace(until=min(each.until, version)) for each in found if each.since < version)
        self._of_labels[labels] = tuple(kept)

    def label(self, name: str, previous: Collection[PreviousList]) -> None:
        """Replace the previous lists of a zone, which gets other labels."""
        self._of_zone[name] = tuple(previous)[-MAX_PREVIOUS_LISTS:]

    def keep(self, labels: Collection[Selector]) -> None:
        """Drop the label sets that no zone has."""
        for gone in [found for found in self._of_labels if found not in labels]:
            del self._of_labels[gone]


def key_of_labels(labels: Selector) -> str:
    """A label set as the key of a saved row."""
    return msgspec.json.encode(labels).decode()


def labels_of_key(key: str) -> Selector:
    """The label set of a saved row's key."""
    return msgspec.json.decode(key, type=Selector)


def without_row(zones: Iterable[str], rows: Mapping[str, object]) -> list[str]:
    """The zones that have no row, in order. (`set - mapping.keys()` walks every key of the mapping.)"""
    return sorted(zone for zone in set(zones) if zone not in rows)
